"""What a study costs on this machine, from a minute's measurement of its own steps."""

import heapq
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridgerl.agent import build_agent
from bridgerl.bench.clock import TICK
from bridgerl.bench.ours import folderless
from bridgerl.config import RunConfig, decode, decode_fields
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.streams import Streams
from bridgerl.studies.jobs import Job, evaluation_cell, gamble_cell, league_cell
from bridgerl.training.replay import row_bytes
from bridgerl.truth.gambles import learn, one_step
from bridgerl.truth.league import run_cell
from bridgerl.truth.settings import PROBLEMS, EvaluationCell, GambleCell, LeagueCell, ToyConfig
from bridgerl.truth.toy import run_toy
from bridgerl.types import EnvSpec

EPISODE = 1_000
"""Steps of an evaluation episode at most, on every task of the paper."""
ENOUGH = 2_000
"""Steps after which a measurement ends, also where the clock stands still."""
OVERHEAD = 5.0
"""Seconds to start a training: Python, torch, the first checkpoint."""


@dataclass(frozen=True)
class StepCost:
    """Seconds of the three kinds of steps a job is made of."""

    learn: float
    warmup: float = 0.0
    evaluate: float = 0.0

    def of(self, job: Job) -> float:
        """Seconds of a whole job, its evaluation episodes at full length."""
        if not job.trains:
            return job.steps * self.learn
        config = decode(job.work)
        episodes = -(-job.steps // config.eval.every) * config.eval.episodes
        evaluation = episodes * min(EPISODE, config.eval.max_steps) * self.evaluate
        learning = (job.steps - config.warmup) * self.learn
        return OVERHEAD + config.warmup * self.warmup + learning + evaluation


Costs = dict[tuple[str, str], StepCost]
"""What a step costs, by setting and task."""


def measure_costs(jobs: Iterable[Job], seconds: float, tick: Callable[[], None]) -> Costs:
    """The cost of a step by setting and task, all within about so many seconds.

    Where one update takes a quarter of its share, other tasks of the setting take its cost over:
    such updates are dominated by atoms, not by the size of an observation.
    """
    samples = {(job.setting, job.task): job for job in jobs}
    share = seconds / max(len(samples), 1)
    costs: Costs = {}
    slow: dict[str, float] = {}
    for (setting, task), job in samples.items():
        match job.kind:
            case "train":
                cost = time_training(decode(job.work), share, slow.get(setting))
            case "toy":
                cost = time_toy(decode_fields(ToyConfig, job.work, "toy"))
            case "league":
                cell = replace(league_cell(job), updates=20)
                cost = StepCost(1 / run_cell(cell)["figures"]["updates_per_second"])
            case "evaluation":
                cost = StepCost(time_evaluation(evaluation_cell(job)))
            case "gamble":
                cost = StepCost(time_gamble(gamble_cell(job)))
            case _:
                cost = StepCost(1e-3)  # It follows from a formula.
        if cost.learn > share / 4:
            slow[setting] = cost.learn
        costs[setting, task] = cost
        tick()
    return costs


def estimate(jobs: list[Job], left: list[Job], costs: Costs, workers: int) -> dict[str, Any]:
    """What is left of a study in steps, hours and bytes, in all and setting by setting."""
    seconds = [costs[job.setting, job.task].of(job) for job in left]
    return {
        "runs": len(jobs),
        "finished": len(jobs) - len(left),
        "steps": sum(job.steps for job in left),
        "core_hours": sum(seconds) / 3600,
        "disk_gb": sum(_sizes(left)) / 1e9,
        "hours_by_workers": {n: makespan(seconds, n) / 3600 for n in sorted({1, 8, workers})},
        "settings": [_setting(key, left, cost) for key, cost in costs.items()],
    }


def _setting(key: tuple[str, str], left: list[Job], cost: StepCost) -> dict[str, Any]:
    own = [job for job in left if (job.setting, job.task) == key]
    speeds = {"steps_per_second": 1 / cost.learn, "hours_per_run": cost.of(own[0]) / 3600}
    return {"setting": key[0], "task": key[1], "runs": len(own), **speeds}


def _sizes(jobs: list[Job]) -> list[int]:
    """Bytes of every training; other jobs leave next to nothing."""
    samples, sizes = {(job.setting, job.task): job for job in jobs if job.trains}, {}
    for key, job in samples.items():
        config = decode(job.work)
        with closing(Task(Recipe.of(config), 0)) as task:
            sizes[key] = disk_bytes(config, task.spec)
    return [sizes[job.setting, job.task] for job in jobs if job.trains]


def time_training(config: RunConfig, seconds: float, learn: float | None = None) -> StepCost:
    """The typical cost of a step of each kind; of a learning one only if it is not known yet."""
    with folderless(config) as (state, act_at_random, learn_once):
        agent, task, draws = state.agent, state.task, state.streams("explore")

        def play() -> None:
            out = task.step(agent.act(task.obs, generator=draws))
            if out.terminated or out.truncated:
                task.reset(0)

        def learn_step() -> None:
            learn_once()
            float(state.metrics["critic/grad_norm"])  # A GPU's update is over when it answers.

        warmup = _typical(act_at_random, 0.1 * seconds, config.train.batch_size)
        evaluate = _typical(play, 0.1 * seconds, 5)
        if learn is None:
            learn_step()  # The first one allocates.
            learn = _typical(learn_step, 0.6 * seconds, config.actor.delay)
        return StepCost(learn, warmup, evaluate)


def _typical(step: Callable[[], object], seconds: float, period: int) -> float:
    """Mean seconds of a step over whole periods, the outermost twentieths capped, for so long."""
    spent: list[float] = []
    while (sum(spent) < seconds and len(spent) < ENOUGH) or len(spent) % period or not spent:
        started = time.perf_counter()
        step()
        spent.append(time.perf_counter() - started)
    # Delayed policies take turns of cheap and dear steps: a median would miss one kind.
    low, high = np.quantile(spent, [0.05, 0.95])
    return max(float(np.clip(spent, low, high).mean()), TICK)


def time_toy(toy: ToyConfig) -> StepCost:
    """The mean cost of an update of the toy, from a short one: a backup may cost ten fits."""
    ticks: list[float] = []
    short = replace(toy, fit_steps=100, iterations=1, steps_per_iteration=20)
    run_toy(short, lambda: ticks.append(time.perf_counter()))
    # Between the two kinds, the distribution is measured and backed up once.
    fit, between, backup = np.split(np.diff(ticks), [99, 100])
    iteration = between.sum() + (toy.steps_per_iteration - 1) * np.median(backup)
    whole = toy.fit_steps * np.median(fit) + toy.iterations * iteration
    return StepCost(max(float(whole) / toy.updates, TICK))


def time_evaluation(cell: EvaluationCell) -> float:
    """Seconds of an update, as in the league; the policies, a fraction of the whole, are left out.

    The league's problems have other sizes, but the same critic.
    """
    known = LeagueCell(PROBLEMS[0], cell.critic, cell.config, cell.seed, 20, cell.batch)
    return 1 / run_cell(known)["figures"]["updates_per_second"]


def time_gamble(cell: GambleCell) -> float:
    """Seconds of an update, without the first ones, which are slow."""
    seconds = []
    for updates in (5, 25):
        begun = time.process_time()
        learn(one_step(), replace(cell, updates=updates))
        seconds.append(time.process_time() - begun)
    return max(seconds[1] - seconds[0], TICK) / 20


def disk_bytes(config: RunConfig, spec: EnvSpec) -> int:
    """What a run folder takes at its end: replay rows once, checkpoints, and weights alone."""
    agent = build_agent(config.actor, config.critic, spec, Streams(0))
    tensors = {k: t for k, t in agent.state_dict().items() if hasattr(t, "numel")}
    sizes = {name: t.numel() * t.element_size() for name, t in tensors.items()}
    whole, played = sum(sizes.values()), sum(agent.played(sizes).values())
    row = row_bytes(spec, fine_rewards=config.train.normalize_returns)
    checkpoints = min(config.save.keep, config.steps // config.save_every + 1)
    weights = config.steps // config.save.weights_every + 1
    rows = min(config.steps, config.train.buffer_size)
    return rows * row + checkpoints * whole + weights * played


def makespan(seconds: Iterable[float], workers: int) -> float:
    """When the last of so many workers is done, each taking the next run when it is free."""
    loads = [0.0] * workers
    for duration in seconds:
        heapq.heapreplace(loads, loads[0] + duration)
    return max(loads)
