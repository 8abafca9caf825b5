"""One measurement of a pair: milliseconds per part of the trainer's own step, FLOPs, memory."""

import contextlib
import multiprocessing
import resource
import signal
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from bridgerl.agent import Agent
from bridgerl.bench.clock import PARTS, TICK, Clock, Flops, GraphTime, Setting, seconds_since
from bridgerl.config import RunConfig
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.errors import BridgeError
from bridgerl.training.process import tuned_process
from bridgerl.training.state import RunState
from bridgerl.training.step import TrainStep
from bridgerl.types import Batch

FILL = 1_000
"""Random steps before anything is measured."""


def measure(config: RunConfig, setting: Setting) -> dict[str, float]:
    """Milliseconds per step and part of one pair, on a setting's task, batch and cores."""
    setting.pin()
    config = config.changed(train={"batch_size": setting.batch, "threads": setting.threads})
    period, clock = config.actor.delay, Clock()
    with folderless(config) as (state, act_at_random, step):
        for _ in range(FILL):
            act_at_random()
        draw = partial(state.replay.sample, setting.batch, state.streams("replay", "cpu"))
        gflop = _gflop(state.agent, [draw() for _ in range(period)])
        share = _target_share(state.agent, draw)
        _until(step, 0.1 * setting.seconds, period)  # Warms up.
        _watch(state, clock)
        n_steps, seconds = _until(step, setting.seconds, period)
        peak = gemm_peak()
    spent = {name: 1e3 * s / n_steps for name, s in clock.spent.items()}
    spent["target"] += share * spent["forward"]
    spent["forward"] *= 1 - share
    update = sum(spent[part] for part in PARTS[3:])
    return {
        "steps_per_second": n_steps / seconds,
        **{f"{name}_ms": value for name, value in spent.items()},
        **{"update_ms": update, "gflop": gflop, "peak_gflops": peak},
        "peak_share": gflop / (max(1e-3 * update, TICK) * peak),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


@contextlib.contextmanager
def folderless(config: RunConfig) -> Generator[tuple[RunState, TrainStep, TrainStep]]:
    """A run without a folder: its state, its step during warm-up and its step after."""
    config = config.changed(train={"buffer_size": 100_000})
    train = config.train
    with (
        tuned_process(max(train.threads, 1)),
        contextlib.closing(Task(Recipe.of(config), 0)) as task,
    ):
        state = RunState(config, task)
        task.reset(0)
        yield state, TrainStep(state, train, warmup=10**9), TrainStep(state, train, warmup=1)


def isolated(label: str, call: Callable[..., Any], *args: Any) -> Any:
    """Run a measurement in a fresh process; whatever goes wrong there is one line under a label."""
    context = multiprocessing.get_context("spawn")
    answers, speaker = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(speaker, label, call, args), daemon=True)
    # Held back until the process can take it: an interrupted import prints a traceback.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    speaker.close()
    try:
        answer = answers.recv()
    except EOFError:
        raise BridgeError(f"{label}: its process was killed; is there enough memory?") from None
    finally:
        process.kill()
        process.join()
    if isinstance(answer, BridgeError):
        raise answer
    return answer


def _answer(speaker: Connection, label: str, call: Callable[..., Any], args: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Its parent is interrupted too, and speaks.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    try:
        answer = call(*args)
    except BridgeError as error:
        answer = error
    except Exception as error:
        answer = BridgeError(f"{label} cannot be measured: {type(error).__name__}: {error}")
    speaker.send(answer)


def gemm_peak(n: int = 1024) -> float:
    """The best rate of a square float32 product, GFLOP/s."""
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    spent = []
    for _ in range(12):
        started = time.perf_counter()
        torch.mm(a, b, out=out)
        spent.append(seconds_since(started))
    return 2e-9 * n**3 / min(spent)


def _until(step: Callable[[], object], seconds: float, period: int) -> tuple[int, float]:
    """Step for so long, whole periods of the actor's delay: steps and seconds.

    A clock that stands still would never say that it is over: then one period is all.
    """
    steps, started = 0, time.perf_counter()
    before, now = -1.0, started
    while before != now and now - started < seconds:
        for _ in range(period):
            step()
        steps += period
        before, now = now, time.perf_counter()
    return steps, seconds_since(started)


def _watch(state: RunState, clock: Clock) -> None:
    """Charge the parts of a step. A loss goes to `forward` until its target is told apart."""
    critic, actor = state.agent.critic, state.agent.actor
    clock.watch(state.task, "step", "env")
    clock.watch(state.task, "reset", "env")
    clock.watch(state.replay, "add", "env")
    clock.watch(state.replay, "sample", "sample")
    clock.watch(state.agent, "act", "act")
    clock.watch(actor, "bootstrap", "target")
    clock.watch(critic, "objective", "forward")
    clock.watch(critic.optimizer, "step", "backward")
    clock.watch(critic.optimizer, "descend", "optimiser")
    clock.watch(critic, "update_target", "optimiser")
    clock.watch(actor, "update", "actor")


def _target_share(agent: Agent, draw: Callable[[], Batch]) -> float:
    """Share of the loss's operator time that its target takes."""
    shares = []
    for _ in range(3):
        batch, mode = draw(), GraphTime()
        with torch.no_grad():
            boot = agent.actor.bootstrap(batch.next_obs, agent.critic.q_rank)
        with mode:
            agent.critic.objective(batch, boot)
        shares.append(mode.spent[False] / max(mode.spent[False] + mode.spent[True], TICK))
    return statistics.median(shares)


def _gflop(agent: Agent, batches: Sequence[Batch]) -> float:
    with Flops() as counter:
        for batch in batches:
            agent.update(batch)
    return counter.total / len(batches) / 1e9
