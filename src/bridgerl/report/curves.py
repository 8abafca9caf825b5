"""Learning curves of settings: means over seeds with bands, as data for the page."""

import math
from typing import Any

import numpy as np

from bridgerl.report.load import Run
from bridgerl.report.stats import Array, mean_interval
from bridgerl.studies.base import Curves

FEW = 5
"""Below so many seeds, a band shows their range instead of an interval."""


def draw_curves(runs: list[Run], settings: list[str]) -> list[dict[str, Any]]:
    """Per task, a curve per setting, coloured by its place among all settings."""
    shown = [r for r in runs if len(r.evaluations.steps)]
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in shown:
        groups.setdefault(run.env, {}).setdefault(run.setting, []).append(run)
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


def exact_curves(title: str, curves: Curves, settings: list[str]) -> list[dict[str, Any]]:
    """Curves without seeds, in the same form; none if there are none."""
    if not curves:
        return []
    drawn = [
        {"setting": setting, "color": settings.index(setting), "steps": list(points)}
        | {key: list(points.values()) for key in ("mean", "low", "high")}
        | {"n": [None] * len(points), "seeds": None, "hours": None}
        for setting, points in curves.items()
    ]
    return [{"task": title, "curves": drawn}]


def _curve(runs: list[Run]) -> dict[str, Any]:
    """Mean and band at every step some seed was evaluated at, over the seeds that got there."""
    steps = np.unique(np.concatenate([r.evaluations.steps for r in runs]))
    values = np.array([_at(steps, r.evaluations.steps, r.evaluations.means) for r in runs])
    hours = np.array([r.clock.hours_at(steps) for r in runs])
    there = np.isfinite(values)
    rows = [_point(values[there[:, i], i]) for i in range(len(steps))]
    clocks = [_mean(hours[there[:, i], i]) for i in range(len(steps))]
    mean, low, high, count = (list(column) for column in zip(*rows, strict=True))
    return {
        "steps": [int(s) for s in steps],
        "hours": None if None in clocks else clocks,
        "mean": mean,
        "low": low,
        "high": high,
        "n": count,
        "seeds": len(runs),
    }


def _at(steps: Array, own: Array, means: Array) -> Array:
    """A seed's curve at these steps, straight between its evaluations, NaN outside them."""
    return np.interp(steps, own, means, left=math.nan, right=math.nan)


def _point(values: Array) -> tuple[float, float, float, int]:
    mean, n = float(values.mean()), len(values)
    if n < FEW:
        return mean, float(values.min()), float(values.max()), n
    low, high = mean_interval(values)
    return mean, float(low), float(high), n


def _mean(hours: Array) -> float | None:
    return float(hours.mean()) if np.isfinite(hours).all() else None
