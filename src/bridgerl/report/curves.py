"""Learning curves of settings: means over seeds with bands, as data for the page."""

import math
from typing import Any

import numpy as np

from bridgerl.report.load import Part, Run
from bridgerl.report.stats import mean_interval
from bridgerl.runs.records import Array, Clock

Drawn = tuple[Part, Clock]
FEW = 5
"""Below so many seeds, a band shows their range instead of an interval."""


def draw_curves(title: str, runs: list[Run], settings: list[str]) -> list[dict[str, Any]]:
    """Per task, a curve per setting, coloured by its place among all settings.

    What follows from formulas is one picture under the title.
    """
    groups: dict[str, dict[str, list[Drawn]]] = {}
    for run in runs:
        for part in run.parts:
            if len(part.curve.steps):
                task = groups.setdefault(title if part.exact else part.task, {})
                task.setdefault(part.setting, []).append((part, run.clock))
    return [
        {
            "task": task,
            "curves": [
                {"setting": s, "color": settings.index(s), **_curve(group)}
                for s, group in sorted(curves.items(), key=lambda item: settings.index(item[0]))
            ],
        }
        for task, curves in groups.items()
    ]


def _curve(group: list[Drawn]) -> dict[str, Any]:
    """Mean and band at every step some seed was evaluated at, over the seeds that got there."""
    steps = np.unique(np.concatenate([part.curve.steps for part, _ in group]))
    values = np.array([_at(steps, *part.curve) for part, _ in group])
    there = np.isfinite(values)
    count, mean = there.sum(axis=0), np.nanmean(values, axis=0)
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    for i in np.flatnonzero(count >= FEW):
        low[i], high[i] = mean_interval(values[there[:, i], i])
    hours = np.mean([clock.hours_at(steps) for _, clock in group], axis=0, where=there)
    exact = group[0][0].exact
    return {
        "steps": [int(s) for s in steps],
        "hours": hours.tolist() if np.isfinite(hours).all() else None,
        "mean": mean.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "n": [None] * len(steps) if exact else count.tolist(),
        "seeds": None if exact else len(group),
    }


def _at(steps: Array, own: Array, means: Array) -> Array:
    """A seed's curve at these steps, straight between its evaluations, NaN outside them."""
    return np.interp(steps, own, means, left=math.nan, right=math.nan)
