"""The endpoint error: how far a walk with Euler's weights misses an endpoint that stands still."""

import math
from collections.abc import Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bridgerl.bridge.schedule import Constant, Schedule, make_schedule
from bridgerl.bridge.walk import Rule, endpoint_error, step_weights, uniform_times
from bridgerl.plots import COLORS, legend_below, panels, save, theme
from bridgerl.truth.settings import EndpointConfig

NAMES: dict[Rule, str] = {
    "right": "Euler, right endpoint (the paper's table)",
    "left": "Euler, left endpoint (the paper's text)",
    "exact": "exact integral (ours)",
}


def error_table(config: EndpointConfig) -> list[dict[str, Any]]:
    """|1 - sum of weights| in percent, per rule, schedule and M."""
    rates, rows = (config.theta, config.theta_min, config.theta_max), []
    for rule, name in product(NAMES, config.schedules):
        schedule = make_schedule(name, *rates)
        percent = {n: 100 * endpoint_error(schedule, n, rule) for n in config.steps}
        rows.append({"rule": rule, "schedule": name, "percent": percent})
    return rows


def weight_sum(rule: Rule, n_steps: int, schedule: Schedule | None = None) -> float:
    """S, the sum of the steps' weights; by default of the constant schedule with rate 1."""
    return float(step_weights(schedule or Constant(), uniform_times(n_steps), rule).sum())


def biased_value(discount: float, total: float) -> float:
    """The value of reward 1 for ever that a walk with weights of this sum learns.

    The walk ends at S Z + (1 - S) tau, so that Z <- 1 + discount (S Z + (1 - S) tau) contracts by
    discount S; its mean is infinite where that is not below 1.
    """
    shrinks = discount * total
    return math.inf if shrinks >= 1 else (1 + discount * (1 - total) / 2) / (1 - shrinks)


def draw_values(points: Sequence[tuple[str, float, float]], path: Path) -> None:
    """Learned against predicted values, a dot per run: (rule, predicted, learned)."""
    figure, (ax,) = panels(1, 1, width=4.2, height=3.6)
    colors: dict[str, str] = {"exact": COLORS[2], "left": COLORS[1], "right": COLORS[0]}
    finite = [p for p in points if math.isfinite(p[1]) and p[2] > 0]
    for rule, color in colors.items():
        mine = [(x, y) for name, x, y in finite if name == rule]
        if mine:
            ax.plot(*zip(*mine, strict=True), "o", color=color, ms=5, alpha=0.7, label=rule)
    ends = [min(p[1] for p in finite), max(p[1] for p in finite)]
    ax.plot(ends, ends, color=theme().ink, lw=0.8, zorder=0)
    ax.set(xscale="log", yscale="log", xlabel="predicted value", ylabel="learned value")
    ax.set_title("reward 1 for ever, learnt with three rules")
    legend_below(figure, ax, most=3)
    save(figure, path)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A line per rule and schedule, a column per M."""
    title = "endpoint error in %, by the number of steps M"
    table = Table("rule", "schedule", title=title, box=box.SIMPLE, pad_edge=False)
    for n in rows[0]["percent"]:
        table.add_column(f"{n}", justify="right", no_wrap=True)
    for rule, group in groupby(rows, key=lambda row: row["rule"]):
        table.add_section()
        for i, row in enumerate(group):
            figures = (f"{v:.2f}" for v in row["percent"].values())
            table.add_row("" if i else rule, row["schedule"], *figures)
    console = Console(highlight=False)
    console.print(table)
    for rule, name in NAMES.items():
        console.print(f"{rule}: {name}", markup=False)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel per schedule: both Euler rules over M; the exact weights only miss by rounding."""
    schedules = list(dict.fromkeys(r["schedule"] for r in rows))
    colors: dict[Rule, str] = {"right": theme().accent, "left": COLORS[1]}
    figure, axes = panels(1, len(schedules), width=1.5, height=2.3)
    for ax, schedule in zip(axes, schedules, strict=True):
        mine = {r["rule"]: r["percent"] for r in rows if r["schedule"] == schedule}
        for rule, color in colors.items():
            points = list(mine[rule]), list(mine[rule].values())
            ax.plot(*points, "o-", color=color, ms=4, label=NAMES[rule])
        ax.set(xscale="log", yscale="log", title=schedule, xlabel="bridge steps M")
    most = max(max(r["percent"].values()) for r in rows if r["rule"] == "exact")
    axes[0].plot([], [], " ", label=f"{NAMES['exact']}: {most:.1g} %")
    axes[0].set_ylabel("endpoint error in %")
    legend_below(figure, axes[0], most=1)
    save(figure, path)
