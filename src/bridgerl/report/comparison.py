"""Any two settings side by side: difference, interval, and the chance that one beats the other."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from bridgerl.errors import choose
from bridgerl.report import stats
from bridgerl.report.load import Run
from bridgerl.studies.claims import Contrast

MOST_SETTINGS = 8
"""Up to so many, every setting is compared with every other; above, with the baseline alone."""
ALL_TASKS = "all tasks"
Samples = Mapping[tuple[str, str], list[float]]


FEWEST = 5
"""Scores of each side below which a bootstrap of the chance to win would be too narrow."""


class Compared(NamedTuple):
    """Two settings on one task: `value` is ours less theirs."""

    pairs: int
    """Seeds that both have, or 0 where means of different seeds are compared."""
    value: float | None
    interval: stats.Interval | None
    chance: float
    chance_interval: stats.Interval | None

    def turned(self) -> "Compared":
        """This comparison from the other setting's side."""
        value = None if self.value is None else -self.value
        gap, chance = self.interval, self.chance_interval
        return Compared(
            self.pairs,
            value,
            gap and stats.Interval(-gap.high, -gap.low),
            1 - self.chance,
            chance and stats.Interval(1 - chance.high, 1 - chance.low),
        )


def pick_baseline(wanted: str | None, runs: list[Run]) -> str:
    """The wanted setting, or the first that trains with CDQ, or the first of all."""
    settings = {part.setting: run for run in runs for part in run.parts}
    if wanted is not None:
        choose("baseline", wanted, settings)
        return wanted
    pointwise = [setting for setting, run in settings.items() if run.pair and run.pair[1] == "cdq"]
    return next(iter([*pointwise, *settings]), "")


def compare_settings(
    measure: str, samples: Samples, seeds: stats.Seeds, baseline: str
) -> list[dict[str, Any]]:
    """A row per task and pair of settings, both ways round; then over all tasks that both have."""
    settings = list(dict.fromkeys(setting for setting, _ in samples))
    tasks = list(dict.fromkeys(task for _, task in samples))
    few = len(settings) <= MOST_SETTINGS
    couples = combinations(settings, 2) if few else [(s, baseline) for s in settings]
    found: dict[tuple[str, str, str], Compared] = {}
    for ours, theirs in couples:
        both = [t for t in tasks if ours != theirs and {(ours, t), (theirs, t)} <= samples.keys()]
        rows = {task: _on_one(ours, theirs, task, samples, seeds) for task in both}
        if len(both) > 1:
            rows[ALL_TASKS] = _on_all(*([samples[s, t] for t in both] for s in (ours, theirs)))
        for task, row in rows.items():
            found[ours, theirs, task] = row
            found |= {(theirs, ours, task): row.turned()} if few else {}
    order = {task: i for i, task in enumerate([*tasks, ALL_TASKS])}
    places = sorted(found, key=lambda p: (order[p[2]], *map(settings.index, p[1::-1])))
    return [_row(measure, place, found[place]) for place in places]


def _row(measure: str, place: tuple[str, str, str], found: Compared) -> dict[str, Any]:
    names = dict(zip(("setting", "baseline", "task"), place, strict=True))
    low, high = found.interval or (None, None)
    chance_low, chance_high = found.chance_interval or (None, None)
    return {
        "measure": measure,
        **names,
        "pairs": found.pairs,
        "difference": found.value,
        "low": low,
        "high": high,
        "improvement": found.chance,
        "improvement_low": chance_low,
        "improvement_high": chance_high,
    }


def _on_one(ours: str, theirs: str, task: str, samples: Samples, seeds: stats.Seeds) -> Compared:
    """Seed by seed where one has the other's seeds, two or more; else mean against mean."""
    cells = (ours, task), (theirs, task)
    one, other = (seeds.get(cell, {}) for cell in cells)
    common = sorted((one.keys() & other.keys()) - {None})
    once = all(len(samples[cell]) == len(seeds.get(cell, {})) for cell in cells)
    chance = _on_all(*([samples[cell]] for cell in cells))
    if min(len(samples[cell]) for cell in cells) < FEWEST:
        chance = chance._replace(chance_interval=None)
    whole = len(common) == min(len(one), len(other))  # Or pairs would leave most runs out.
    if once and whole and len(common) > 1:
        gaps = np.array([one[seed] - other[seed] for seed in common])
        interval = stats.Interval(*map(float, stats.mean_interval(gaps))) if np.ptp(gaps) else None
        return chance._replace(pairs=len(common), value=float(gaps.mean()), interval=interval)
    means = {cell: stats.summarise(samples[cell]) for cell in cells}
    value = means[cells[0]].mean - means[cells[1]].mean
    contrast = Contrast(value, ((1.0, *cells[0]), (-1.0, *cells[1])))
    spreads = all(cell.n > 1 for cell in means.values()) and any(c.std for c in means.values())
    interval = stats.contrast_interval(contrast, means) if spreads else None
    return chance._replace(value=value, interval=interval)


def _on_all(ours: Iterable[list[float]], theirs: Iterable[list[float]]) -> Compared:
    """The chance to win, over tasks; their returns have no common unit."""
    one, other = ([np.array(scores) for scores in side] for side in (ours, theirs))
    interval = stats.improvement_interval(one, other, np.random.default_rng(0))
    return Compared(0, None, None, stats.improvement(one, other), interval)
