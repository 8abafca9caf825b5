"""Pictures of a league: learned inverse CDFs over the true ones, and distances side by side."""

from pathlib import Path
from typing import Any

import numpy as np

from bridgerl.plots import COLORS, legend_below, name_points, panels, save, theme
from bridgerl.truth.league import CURVE, N_PARTICLES, problem_of

MILLISECONDS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100, 200)
MOST_PANELS = 12
"""Problems whose quantiles are drawn."""
PERCENT = (1, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 20, 50, 100)


def draw_quantiles(results: list[dict[str, Any]], path: Path) -> None:
    """One panel per query: the truth, and a thin line per entrant and seed."""
    entrants, names = _names(results, "entrant"), _names(results, "problem")
    shown = [problem_of(name) for name in names[:MOST_PANELS]]
    queries = [(problem, i, q) for problem in shown for i, q in enumerate(problem.queries)]
    columns = min(4, len(queries))
    figure, axes = panels(-(-len(queries) // columns), columns, width=3, height=2.5)
    tau = np.linspace(0.5 / N_PARTICLES, 1 - 0.5 / N_PARTICLES, CURVE)
    for ax, (problem, i, query) in zip(axes, queries, strict=False):
        truth = query.quantile(tau)
        ax.plot(tau, truth, color=theme().ink, lw=4, alpha=0.3, label="truth")
        # The outermost quantiles of a heavy tail would flatten all the others.
        margin = 0.1 * (truth[-2] - truth[1])
        ax.set_ylim(truth[1] - margin, truth[-2] + margin)
        for r in (r for r in results if r["problem"] == problem.name):
            at = entrants.index(r["entrant"])
            values = [np.nan if z is None else z for z in r["curves"][i]]
            label = r["entrant"] if r["seed"] == results[0]["seed"] else None
            ax.plot(tau, values, color=COLORS[at % len(COLORS)], lw=1, label=label)
        action = f", action {query.action:+g}" if len(problem.queries) > 1 else ""
        ax.set(title=problem.name + action, xlabel="quantile level")
    for ax in axes[::columns]:
        ax.set_ylabel("return")
    for ax in axes[len(queries) :]:
        ax.axis("off")
    legend_below(figure, axes[0], most=6)
    save(figure, path)


def draw_distances(results: list[dict[str, Any]], path: Path) -> None:
    """W1 of every entrant: a panel per problem and a dot per seed, or of many a dot per problem."""
    entrants, problems = _names(results, "entrant"), _names(results, "problem")
    if len(problems) > MOST_PANELS:
        shown = {f"{len(problems)} problems": _dots(results, "problem", relative=True)}
        label = "W1 to the truth, % of the return's deviation"
    else:
        own = {p: [r for r in results if r["problem"] == p] for p in problems}
        shown = {problem: _dots(cells, "seed") for problem, cells in own.items()}
        label = "W1 to the truth"
    few = len(entrants) <= len(COLORS)
    height, room = 0.9 + 0.24 * len(entrants), 0.07 * max(map(len, entrants)) / len(shown)
    width = 2.4 if len(shown) > 1 else 6.0
    figure, axes = panels(1, len(shown), width=width + room, height=height)
    for ax, (title, dots) in zip(axes, shown.items(), strict=True):
        for row, entrant in enumerate(entrants):
            values, color = dots[entrant], COLORS[(row if few else row == 0) % len(COLORS)]
            ax.plot(values, [row] * len(values), "o", color=color, ms=4, alpha=0.6)
            if values:
                ax.plot(np.mean(values), row, "|", color=color, ms=12, mew=2)
                if row == 0:
                    ax.axvline(float(np.mean(values)), color=color, lw=0.8, alpha=0.5)
        ax.set_xscale("log")
        low, high = ax.get_xlim()  # At least a decade, so that the axis has a figure or two.
        middle = (low * high) ** 0.5
        ax.set_xlim(min(low, middle / 3.5), max(high, middle * 3.5))
        ax.minorticks_off()
        ax.set(title=title, xlabel=label, ylim=(len(entrants) - 0.5, -0.5))
        ax.set_yticks(range(len(entrants)), entrants if ax is axes[0] else [""] * len(entrants))
    save(figure, path)


def _dots(
    results: list[dict[str, Any]], per: str, *, relative: bool = False
) -> dict[str, list[float]]:
    """Every entrant's W1, a mean for every value of one key; what diverged is left out."""
    groups: dict[str, dict[Any, list[float]]] = {}
    for r in results:
        w1, std = r["figures"]["w1"], r["figures"]["std"]
        group = groups.setdefault(r["entrant"], {}).setdefault(r[per], [])
        if w1 is not None:
            group.append(100 * w1 / std if relative else w1)
    return {e: [float(np.mean(v)) for v in group.values() if v] for e, group in groups.items()}


def draw_cost(results: list[dict[str, Any]], path: Path) -> None:
    """Mean W1 / std over problems against milliseconds per update, and who is beaten by nobody."""
    rows: list[tuple[float, float, str]] = []
    for entrant in _names(results, "entrant"):
        cells = [r["figures"] for r in results if r["entrant"] == entrant]
        if all(c["w1"] is not None for c in cells):
            price = float(np.median([1e3 / c["updates_per_second"] for c in cells]))
            rows.append((price, float(np.mean([100 * c["w1"] / c["std"] for c in cells])), entrant))
    figure, axes = panels(1, 1, width=9.0, height=5.6)
    ax, front = axes[0], [a for a in rows if not any(_beats(b, a) for b in rows)]
    ax.plot(
        *zip(*sorted((x, y) for x, y, _ in front), strict=True),
        color=theme().ink,
        lw=0.8,
        alpha=0.5,
    )
    places = [1 if row == rows[0] else 0 if row in front else 6 for row in rows]
    colors = [COLORS[place] for place in places]
    for (x, y, _), color in zip(rows, colors, strict=True):
        ax.plot(x, y, "o", color=color, ms=7 if color == COLORS[1] else 5)
    ax.set(xscale="log", xlabel="milliseconds per critic update")
    ax.set(yscale="log", ylabel="W1 in % of the standard deviation, mean over problems")
    for axis, ticks in ((ax.xaxis, MILLISECONDS), (ax.yaxis, PERCENT)):
        low, high = axis.get_view_interval()
        inside = [tick for tick in ticks if low <= tick <= high]
        axis.set_ticks(inside, labels=[f"{tick:g}" for tick in inside])
    ax.minorticks_off()
    name_points(ax, rows, colors)
    save(figure, path)


def _names(results: list[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(r[key] for r in results))


def _beats(a: tuple[float, float, str], b: tuple[float, float, str]) -> bool:
    """Cheaper and closer, strictly in one."""
    return a[0] <= b[0] and a[1] <= b[1] and a[:2] != b[:2]
