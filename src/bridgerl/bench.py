"""Steps per second, ours and Stable-Baselines3's, interleaved on one machine.

Each repetition is a process of its own, so that nobody inherits threads, caches or an allocator.
"""

import dataclasses
import importlib.util
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bridgerl.agent import build_agent
from bridgerl.envs import Task, versions
from bridgerl.presets import resolve
from bridgerl.replay import Replay
from bridgerl.runtime import tuned_process
from bridgerl.streams import Streams

BATCH = 256
FILL = 1_000
SB3_NAMES = {"sac": "SAC", "td3": "TD3"}


def bench(env: str, actor: str, steps: int, repeats: int, threads: int) -> dict[str, Any]:
    """Median steps/s of each contender and the parts of ours, in milliseconds per step."""
    Task(env, 0).close()  # Refuses an unfit environment before any work.
    contenders: dict[str, Callable[..., Any]] = {"bridgerl": _ours}
    if actor in SB3_NAMES and importlib.util.find_spec("stable_baselines3") is not None:
        contenders["stable-baselines3"] = _sb3
    results: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, measure in contenders.items():
            results[name].append(_isolated(measure, env, actor, steps, threads))
    medians = {
        name: {key: statistics.median(r[key] for r in rows) for key in rows[0]}
        for name, rows in results.items()
    }
    speeds = {name: [r["steps_per_second"] for r in rows] for name, rows in results.items()}
    ratio = None
    if "stable-baselines3" in medians:
        pairs = zip(speeds["bridgerl"], speeds["stable-baselines3"], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
    return {
        "env": env,
        "actor": actor,
        "critic": "cdq",
        "network": "2x256",
        "batch": BATCH,
        "threads": threads,
        "steps": steps,
        "median": medians,
        "all_steps_per_second": speeds,
        "speedup_over_stable_baselines3": ratio,
        "versions": versions(),
    }


def show(result: dict[str, Any]) -> None:
    """Print a bench result as a table."""
    console = Console(highlight=False)
    table = Table(title=f"{result['actor']}+cdq on {result['env']}, {result['threads']} thread(s)")
    parts = ("env_ms", "act_ms", "sample_ms", "update_ms")
    for column in ("", "steps/s", *(p.replace("_", " ") for p in parts)):
        table.add_column(column, justify="right")
    for name, row in result["median"].items():
        cells = [f"{row[p]:.3f}" if p in row else "" for p in parts]
        table.add_row(name, f"{row['steps_per_second']:.1f}", *cells)
    console.print(table)
    ratio = result["speedup_over_stable_baselines3"]
    if ratio is None:
        hint = "pip install 'bridgerl[sb3]' to compare with Stable-Baselines3"
        if result["actor"] not in SB3_NAMES:
            hint = f"Stable-Baselines3 has no {result['actor']} to compare with"
        console.print(hint, markup=False)
    else:
        console.print(f"{ratio:.2f}x Stable-Baselines3 (median of interleaved pairs)")


def _isolated(measure: Callable[..., Any], *args: Any) -> dict[str, float]:
    """Run a measurement in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, args)


def _ours(env: str, actor: str, steps: int, threads: int) -> dict[str, float]:
    """The trainer's step as our users run it."""
    with tuned_process(threads):
        return _timed_steps(env, actor, steps)


def _timed_steps(env: str, actor: str, steps: int) -> dict[str, float]:
    """The trainer's step, with a clock around each part."""
    config = resolve(env, actor, "cdq", "lite")
    train = dataclasses.replace(config.train, batch_size=BATCH)
    task, streams = Task(env, 0), Streams(0)
    agent = build_agent(config.actor, config.critic, task.spec, streams)
    replay = Replay(100_000, task.spec)
    explore, draws = streams("explore"), streams("replay")
    clock = {"env_ms": 0.0, "act_ms": 0.0, "sample_ms": 0.0, "update_ms": 0.0}
    episode, obs = 0, task.reset(0)
    noise = np.random.default_rng(0)
    started = 0.0
    warm = 100
    for step in range(-FILL - warm, steps):
        if step == 0:
            started = time.perf_counter()
            clock = dict.fromkeys(clock, 0.0)
        t0 = time.perf_counter()
        if step < -warm:
            action = noise.uniform(-1, 1, task.spec.action_dim).astype(np.float32)
        else:
            action = agent.act(obs, explore=True, generator=explore)
        t1 = time.perf_counter()
        out = task.step(action)
        replay.add(obs, action, out.reward, train.discount * (not out.terminated), out.obs)
        obs = out.obs
        if out.terminated or out.truncated:
            episode += 1
            obs = task.reset(episode)
        t2 = t3 = t4 = time.perf_counter()
        if step >= -warm:
            batch = replay.sample(train.batch_size, draws)
            t3 = time.perf_counter()
            agent.update(batch)
            t4 = time.perf_counter()
        for name, spent in zip(clock, (t2 - t1, t1 - t0, t3 - t2, t4 - t3), strict=True):
            clock[name] += spent
    total = time.perf_counter() - started
    task.close()
    return {"steps_per_second": steps / total} | {k: 1e3 * v / steps for k, v in clock.items()}


def _sb3(env: str, actor: str, steps: int, threads: int) -> dict[str, float]:
    """Stable-Baselines3 as its users run it, at the same sizes."""
    import stable_baselines3

    torch.set_num_threads(threads)
    common: dict[str, Any] = {
        "device": "cpu",
        "learning_starts": FILL,
        "buffer_size": 100_000,
        "batch_size": BATCH,
        "seed": 0,
    }
    if actor == "td3":
        common["policy_kwargs"] = {"net_arch": [256, 256]}
    model = getattr(stable_baselines3, SB3_NAMES[actor])("MlpPolicy", env, **common)
    model.learn(FILL + 100)
    started = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return {"steps_per_second": steps / (time.perf_counter() - started)}
