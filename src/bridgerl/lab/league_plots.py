"""Pictures of a league: learned inverse CDFs over the true ones, and distances side by side."""

from pathlib import Path
from typing import Any

import numpy as np

from bridgerl.lab.league import CURVE, N_PARTICLES
from bridgerl.lab.plots import COLORS, TRUTH, panels, save
from bridgerl.lab.problems import PROBLEMS


def draw_laws(results: list[dict[str, Any]], path: Path) -> None:
    """One panel per query: the truth, and a thin line per entrant and seed."""
    shown = [p for name, p in PROBLEMS.items() if any(r["problem"] == name for r in results)]
    queries = [(p, i) for p in shown for i in range(len(p.queries))]
    columns = min(4, len(queries))
    figure, axes = panels(-(-len(queries) // columns), columns, width=3, height=2.5)
    entrants = list(dict.fromkeys(r["entrant"] for r in results))
    tau = np.linspace(0.5 / N_PARTICLES, 1 - 0.5 / N_PARTICLES, CURVE)
    for ax, (problem, i) in zip(axes, queries, strict=False):
        query = problem.queries[i]
        truth = query.quantile(tau)
        ax.plot(tau, truth, color=TRUTH, lw=4, alpha=0.3, label="truth")
        # The outermost quantiles of a heavy tail would flatten all the others.
        margin = 0.1 * (truth[-2] - truth[1])
        ax.set_ylim(truth[1] - margin, truth[-2] + margin)
        for r in (r for r in results if r["problem"] == problem.name):
            at = entrants.index(r["entrant"])
            values = [np.nan if z is None else z for z in r["curves"][i]]
            label = r["entrant"] if r["seed"] == results[0]["seed"] else None
            ax.plot(tau, values, color=COLORS[at % len(COLORS)], lw=1, label=label)
        several = len(problem.queries) > 1
        ax.set_title(problem.name + (f", action {query.action:+g}" if several else ""))
        ax.set_xlabel("quantile level")
    for ax in axes[::columns]:
        ax.set_ylabel("return")
    for ax in axes[len(queries) :]:
        ax.axis("off")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", frameon=False, ncols=min(6, len(labels))
    )
    save(figure, path)


def draw_distances(results: list[dict[str, Any]], path: Path) -> None:
    """One panel per problem: W1 of every entrant, a dot per seed, on a logarithmic axis."""
    problems = list(dict.fromkeys(r["problem"] for r in results))
    entrants = list(dict.fromkeys(r["entrant"] for r in results))
    few = len(entrants) <= len(COLORS)
    height, room = 0.9 + 0.24 * len(entrants), 0.07 * max(map(len, entrants)) / len(problems)
    figure, axes = panels(1, len(problems), width=2.4 + room, height=height)
    for ax, problem in zip(axes, problems, strict=True):
        for row, entrant in enumerate(entrants):
            cells = [r for r in results if (r["problem"], r["entrant"]) == (problem, entrant)]
            values = [c["figures"]["w1"] for c in cells if c["figures"]["w1"] is not None]
            color = COLORS[(row if few else row == 0) % len(COLORS)]
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
        ax.set_title(problem)
        ax.set_xlabel("W1 to the truth")
        ax.set_ylim(len(entrants) - 0.5, -0.5)
        ax.set_yticks(range(len(entrants)), entrants if ax is axes[0] else [""] * len(entrants))
    save(figure, path)
