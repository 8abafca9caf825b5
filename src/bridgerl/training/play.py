"""Using what a run left: play its weights, or try an environment before any run."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bridgerl.agent import Agent, build_agent, plays
from bridgerl.errors import UserError, choose
from bridgerl.runs import checkpoint
from bridgerl.runs.folder import best_weights, last_weights, read_config, read_spec
from bridgerl.streams import Streams
from bridgerl.training.envs import Task, versions
from bridgerl.training.evaluate import evaluate
from bridgerl.training.process import tuned_process
from bridgerl.truth.calibration import measure


def load_agent(run: Path | str, weights: Literal["best", "last"] = "best") -> tuple[Agent, int]:
    """The agent of a run folder and the step its weights are from."""
    run = Path(run)
    find = choose("weights", weights, {"best": best_weights, "last": last_weights})
    config, spec = read_config(run), read_spec(run)
    path = find(run)
    agent = build_agent(config.actor, config.critic, spec, Streams(config.seed))
    state = agent.state_dict()
    wanted = {f"agent.{k}": v for k, v in state.items() if plays(k)}
    given = checkpoint.load_weights(path)
    given = {k: v for k, v in given.items() if k[:6] == "agent." and plays(k)}
    checkpoint.check_fit(given, wanted, str(path / checkpoint.TENSORS))
    agent.load_state_dict({k.removeprefix("agent."): v for k, v in given.items()}, strict=False)
    return agent, int(path.name.rpartition("-")[2])


def play(
    run: Path,
    weights: Literal["best", "last"],
    episodes: int,
    seed: int,
    *,
    values: bool = False,
) -> dict[str, Any]:
    """Deterministic episodes with a run's weights; on request others that test its values."""
    config = read_config(run)
    config = replace(config, eval=replace(config.eval, episodes=episodes))
    task = Task(config.env, seed, "play")
    try:
        agent, step = load_agent(run, weights)
        if task.spec != read_spec(run):
            raise UserError(f"{config.env} has other sizes now than when {run} was trained")
        with tuned_process(config.train.threads):
            result = evaluate(agent, task, config.eval, seed=seed, key=0)
            assert result is not None  # Nothing stops it on the way.
            extra = {"values": measure(agent, task, config)} if values else {}
    finally:
        task.close()
    return {
        "env": config.env,
        "step": step,
        "mean": result.mean,
        "std": result.std,
        "returns": result.returns,
        "lengths": result.lengths,
        **extra,
    }


def check_env(env_id: str, steps: int = 200) -> dict[str, Any]:
    """Step an environment twice with one seed and the same actions, and compare bit for bit."""
    task = Task(env_id, 0, "check")
    try:
        traces = [_trace(task, steps) for _ in range(2)]
    finally:
        task.close()
    same = len(traces[0]) == len(traces[1]) and all(
        np.array_equal(a, b) for a, b in zip(*traces, strict=True)
    )
    return {
        "env": env_id,
        "obs_dim": task.spec.obs_dim,
        "action_dim": task.spec.action_dim,
        "reproducible": same,
        "time_limit": None if task.env.spec is None else task.env.spec.max_episode_steps,
        "versions": versions(),
    }


def _trace(task: Task, steps: int) -> list[np.ndarray]:
    """Observations and rewards of a few episodes under fixed random actions."""
    draws = np.random.default_rng(0)
    episode = 0
    rows = [task.reset(episode)]
    for _ in range(steps):
        action = draws.uniform(-1, 1, task.spec.action_dim).astype(np.float32)
        out = task.step(action)
        rows.append(np.append(out.obs.astype(np.float64), out.reward))
        if out.terminated or out.truncated:
            episode += 1
            rows.append(task.reset(episode))
    return rows
