"""Learning curves of settings: means over seeds with bands, as data for the page."""

import math
from typing import Any

import numpy as np

from bridgerl.report.load import Part, Run
from bridgerl.report.stats import mean_interval
from bridgerl.runs.records import Clock

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
    drawn: dict[str, list[dict[str, Any]]] = {}
    for task, curves in groups.items():
        colors = sorted((settings.index(setting), setting) for setting in curves)
        drawn[task] = [{"setting": s, "color": i, **_curve(curves[s])} for i, s in colors]
    return [{"task": task, "curves": curves} for task, curves in drawn.items()]


def _curve(group: list[Drawn]) -> dict[str, Any]:
    """Mean and band at every step some seed was evaluated at, over the seeds that got there."""
    steps = np.unique(np.concatenate([part.curve.steps for part, _ in group]))
    # Straight between a seed's evaluations, NaN outside them.
    beyond = {"left": math.nan, "right": math.nan}
    values = np.array([np.interp(steps, *part.curve, **beyond) for part, _ in group])
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
