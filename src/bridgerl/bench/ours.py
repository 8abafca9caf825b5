"""One measurement of a pair: milliseconds per part of the trainer's step, FLOPs, memory."""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from bridgerl.agent import Agent, build_agent
from bridgerl.bench.clock import PARTS, Clock, GraphTime, Setting
from bridgerl.bench.steps import Steps
from bridgerl.cli.entrants import Pair
from bridgerl.streams import Streams
from bridgerl.training.envs import Task
from bridgerl.training.process import tuned_process
from bridgerl.types import Batch

FILL = 1_000


def measure(pair: Pair, setting: Setting) -> dict[str, float]:
    """Milliseconds per step and part of one pair, in the order of the trainer's step."""
    setting.pin()
    with tuned_process(setting.threads):
        task, streams = Task(setting.env, 0), Streams(0)
        agent = build_agent(pair.actor_config, pair.critic_config, task.spec, streams)
        steps, period = Steps(task, agent, streams, setting.batch), pair.actor_config.delay
        for _ in range(FILL):
            steps.act_at_random()
        gflop = _gflop(agent, [steps.draw() for _ in range(period)])
        share = _target_share(agent, steps.draw)
        _until(steps.learn, 0.1 * setting.seconds, period)  # Warms up.
        _watch(agent, steps.clock)
        steps.clock.spent.update(dict.fromkeys(PARTS, 0.0))
        n_steps, seconds = _until(steps.learn, setting.seconds, period)
        peak = gemm_peak()
        task.close()
    spent = {name: 1e3 * s / n_steps for name, s in steps.clock.spent.items()}
    spent["target"] += share * spent["forward"]
    spent["forward"] *= 1 - share
    update = sum(spent[part] for part in PARTS[3:])
    return {
        "steps_per_second": n_steps / seconds,
        **{f"{name}_ms": value for name, value in spent.items()},
        "update_ms": update,
        "gflop": gflop,
        "peak_gflops": peak,
        "peak_share": gflop / (1e-3 * update * peak),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def isolated(call: Callable[..., Any], *args: Any) -> Any:
    """Run a measurement in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, args)


def gemm_peak(n: int = 1024) -> float:
    """The best rate of a square float32 product, GFLOP/s."""
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    spent = []
    for _ in range(12):
        started = time.perf_counter()
        torch.mm(a, b, out=out)
        spent.append(time.perf_counter() - started)
    return 2e-9 * n**3 / min(spent)


def _until(step: Callable[[], object], seconds: float, period: int) -> tuple[int, float]:
    """Step for so long, whole periods of the actor's delay: steps and seconds."""
    steps, started = 0, time.perf_counter()
    while steps == 0 or time.perf_counter() - started < seconds:
        for _ in range(period):
            step()
        steps += period
    return steps, time.perf_counter() - started


def _watch(agent: Agent, clock: Clock) -> None:
    """Charge the parts of an update. A loss goes to `forward` until its target is told apart."""
    critic, actor = agent.critic, agent.actor
    clock.watch(actor, "bootstrap", "target")
    clock.watch(critic, "loss", "forward")
    clock.watch(critic.optimizer, "step", "backward")
    clock.watch(critic.optimizer, "descend", "optimiser")
    clock.watch(critic, "track", "optimiser")
    clock.watch(actor, "update", "actor")


def _target_share(agent: Agent, draw: Callable[[], Batch]) -> float:
    """Share of the loss's operator time that its target takes."""
    shares = []
    for _ in range(3):
        batch, mode = draw(), GraphTime()
        with torch.no_grad():
            boot = agent.actor.bootstrap(batch.next_obs, agent.critic.q_rank)
        with mode:
            agent.critic.loss(batch, boot)
        shares.append(mode.spent[False] / (mode.spent[False] + mode.spent[True]))
    return statistics.median(shares)


def _gflop(agent: Agent, batches: Sequence[Batch]) -> float:
    """Matrix products of one update, counted from their shapes."""
    with FlopCounterMode(display=False) as counter:
        for batch in batches:
            agent.update(batch, measuring=False)
    return counter.get_total_flops() / len(batches) / 1e9
