"""A race at equal time: everybody learns for the same minutes of one core."""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from bridgerl.bench.ours import isolated
from bridgerl.bench.peers import LOOK, against_the_clock
from bridgerl.bench.table import ask, describe
from bridgerl.config import EvalConfig, RunConfig, encode
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.plots import COLORS, CRITICS, critic_color, legend_below, panels, save
from bridgerl.runs import store
from bridgerl.runs.result import read_kept
from bridgerl.training.evaluate import play_episodes
from bridgerl.training.process import tuned_process
from bridgerl.training.state import RunState
from bridgerl.training.step import TrainStep

Stroke = str | tuple[int, tuple[float, ...]]
PEER_STROKES: tuple[Stroke, ...] = ("-", "--", ":", "-.", (0, (1, 4)))


@dataclass(frozen=True)
class Heat:
    """What all racers share, and whose turn it is."""

    env: str
    seed: int
    minutes: float
    """Minutes of training alone: evaluations stop the clock."""
    marks: int
    """Evaluations, spread evenly over these minutes."""
    episodes: int
    """Episodes of each evaluation."""


class Racer(NamedTuple):
    """Somebody who races, under the name that tables show."""

    label: str
    what: dict[str, Any]
    """All settings that decide how it learns."""
    run: Callable[[Heat, int], dict[str, list[float]]]
    """Minutes, steps and returns at every mark, on a core."""


def our_racer(label: str, config: RunConfig) -> Racer:
    """A racer that is one of our own pairs."""
    # Nothing is logged in a race, so what would be does not tell racers apart.
    what = store.plain(encode(config.changed(log={"every": 1_000, "tensorboard": True})))
    return Racer(label, what, partial(isolated, label, race, config))


def peer_racer(label: str, request: Mapping[str, Any], python: Path) -> Racer:
    """An algorithm of another library, in an interpreter that has it."""

    def run(heat: Heat, core: int) -> dict[str, list[float]]:
        return ask(python, {**request, **asdict(heat), "cores": [core], "race": True})

    return Racer(label, dict(request), run)


def race(config: RunConfig, heat: Heat, core: int) -> dict[str, list[float]]:
    """Train one of ours as `bridgerl train` would, without a folder."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [core])
    config = replace(config, env=heat.env, seed=heat.seed)
    recipe = Recipe.of(config)
    stage = Task(recipe, heat.seed, "eval")
    with tuned_process(1), closing(stage), closing(Task(recipe, heat.seed)) as task:
        state = RunState(config, task)
        task.reset(0)
        step = TrainStep(state, config.train, config.warmup)
        judge = EvalConfig(episodes=heat.episodes)

        def look() -> float:
            key = state.counters.step
            result = play_episodes(state.agent, stage, judge, seed=heat.seed, key=key)
            assert result is not None  # Nothing stops it on the way.
            return result.mean

        def learn() -> int:
            for _ in range(LOOK):
                step()
            return LOOK

        return against_the_clock(learn, look, 60 * heat.minutes, heat.marks)


def run_race(
    starts: Sequence[tuple[Racer, Heat]],
    cores: Sequence[int],
    folder: Path,
    tick: Callable[[], None],
) -> list[dict[str, Any]]:
    """Every start, one to a core; what the folder holds already is not run again."""
    kept = [_kept(folder, *start) for start in starts]
    free: SimpleQueue[int] = SimpleQueue()
    for core in cores:
        free.put(core)

    def one(start: tuple[Racer, Heat], cell: dict[str, Any] | None) -> dict[str, Any]:
        racer, heat = start
        if cell is None:
            core = free.get()
            try:
                found = {"curve": racer.run(heat, core), "versions": describe()}
            finally:
                free.put(core)
            cell = _identity(racer, heat) | found
            store.publish_file(folder / file_name(racer, heat), store.to_sealed_json(cell))
        return cell

    cells = []
    with ThreadPoolExecutor(len(cores)) as pool:
        for cell in pool.map(one, starts, kept):
            cells.append(cell)
            tick()
    return cells


def file_name(racer: Racer, heat: Heat) -> str:
    """The file of one start, told apart by all that decides it."""
    text = json.dumps([racer.label, racer.what, asdict(heat)], sort_keys=True)
    plain = re.sub(r"[^A-Za-z0-9]+", "-", f"{heat.env} {racer.label}")[:60]
    return f"{plain}-seed{heat.seed}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"


def _identity(racer: Racer, heat: Heat) -> dict[str, Any]:
    """All that decides a cell but the machine."""
    return {"label": racer.label, "what": racer.what, **asdict(heat)}


def _kept(folder: Path, racer: Racer, heat: Heat) -> dict[str, Any] | None:
    """The finished cell of one start, None if it was not run."""
    identity = store.plain(_identity(racer, heat))

    def read(path: Path) -> dict[str, Any]:
        cell = store.open_sealed_json(store.read_json_bytes(path), str(path))
        own = {key: cell.get(key) for key in identity}
        store.require_intact(own == identity, path, "it belongs to another cell")
        return cell

    return read_kept(folder / file_name(racer, heat), read)


def summarise(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per environment and racer: returns at the end, and minutes to the best other's."""
    rows = []
    for env in dict.fromkeys(cell["env"] for cell in cells):
        finals: dict[str, list[float]] = {}
        for cell in cells:
            if cell["env"] == env:
                finals.setdefault(cell["label"], []).append(cell["curve"]["returns"][-1])
        for label, values in finals.items():
            mine = [c["curve"] for c in cells if c["env"] == env and c["label"] == label]
            others = [float(np.mean(v)) for name, v in finals.items() if name != label]
            row = {"env": env, "label": label, "final": float(np.mean(values)), "finals": values}
            row |= {"steps": float(np.mean([curve["steps"][-1] for curve in mine]))}
            reached = _minutes_to(mine, max(others)) if others else None
            rows.append(row | {"minutes_to_best_other": reached})
    return rows


def _minutes_to(curves: Sequence[dict[str, list[float]]], goal: float) -> float | None:
    """When the mean over seeds first reaches a return, None if it never does."""
    returns = np.mean([curve["returns"] for curve in curves], 0)
    minutes = np.mean([curve["minutes"] for curve in curves], 0)
    reached = np.flatnonzero(returns >= goal)
    return float(minutes[reached[0]]) if len(reached) else None


def draw_race(cells: Sequence[dict[str, Any]], path: Path) -> None:
    """Return against minutes, a panel per task: a thin line per seed, a thick one for the mean.

    Ours have the colours of their critics, other libraries are grey.
    """
    envs = list(dict.fromkeys(cell["env"] for cell in cells))
    labels = list(dict.fromkeys(cell["label"] for cell in cells))
    strokes, looks = itertools.cycle(PEER_STROKES), dict[str, tuple[str, Stroke]]()
    for label in labels:
        critic = label.lower().partition("+")[2]
        ours = critic in CRITICS
        looks[label] = (critic_color(critic), "-") if ours else (COLORS[6], next(strokes))
    figure, axes = panels(1, len(envs), width=4.2, height=2.8)
    for axis, env in zip(axes, envs, strict=True):
        for label, (color, stroke) in looks.items():
            curves = [c["curve"] for c in cells if c["env"] == env and c["label"] == label]
            for curve in curves:
                axis.plot(curve["minutes"], curve["returns"], color=color, lw=0.7, alpha=0.4)
            minutes, returns = [], []  # Who races in another panel alone is named here too.
            if curves:
                minutes, returns = (
                    np.mean([curve[name] for curve in curves], 0) for name in ("minutes", "returns")
                )
            axis.plot(minutes, returns, color=color, ls=stroke, lw=2, label=label)
        axis.set(title=env, xlabel="minutes of one core", ylabel="return")
    legend_below(figure, axes[0], most=4)
    save(figure, path)
