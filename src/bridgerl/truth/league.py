"""The league: critics learn known returns, on equal data and budget, measured against the truth.

Training goes through `update` and `update_target`, the read-out through `particles` of the target
network: the Polyak average that bootstraps, free of the last updates' noise. `w1_online` tells that
noise.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bridgerl.agent import build_critic
from bridgerl.critics.base import Critic
from bridgerl.runs import store
from bridgerl.streams import Streams, derive_seed
from bridgerl.training.process import tuned_process
from bridgerl.truth.problems import PROBLEMS, Problem, Query, bernoulli_loop, sure_loop
from bridgerl.truth.random_problems import random_problem
from bridgerl.truth.settings import LOOP, RANDOM, SURE, LeagueCell

N_PARTICLES = 10_000
TAILS: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "cvar_5_error": lambda z: float(z[: len(z) // 20].mean()),
    "cvar_10_error": lambda z: float(z[: len(z) // 10].mean()),
    "upper_90_error": lambda z: float(z[-(len(z) // 10) :].mean()),
}
"""Means of the worst 5 and 10 % and of the best 10 % of ascending returns."""
TAIL_HEADS = ("CVaR 5 % off", "CVaR 10 % off", "top 10 % off")
CURVE = 201
"""Levels at which the learned inverse CDF is kept for the picture."""


def problem_of(name: str) -> Problem:
    """One of the league's own problems, or one made from the number in its name."""
    if name.startswith(SURE):
        return sure_loop(float(name.removeprefix(SURE)))
    if name.startswith(LOOP):
        return bernoulli_loop(name, float(name.removeprefix(LOOP)))
    seed = name.removeprefix(RANDOM)
    return PROBLEMS[name] if seed == name else random_problem(int(seed))


def run_cell(cell: LeagueCell) -> dict[str, Any]:
    """Train one critic and measure it; the data depend on problem and seed alone."""
    problem = problem_of(cell.problem)
    with tuned_process(1):
        critic = build_critic(cell.config, problem.spec, Streams(cell.seed))
        rng = np.random.default_rng(derive_seed(cell.seed, "league", cell.problem))
        started = time.process_time()  # One thread: what a cell takes, however busy the machine is.
        for update in range(1, cell.updates + 1):
            critic.update(*problem.draw(cell.batch, rng))
            if update % cell.config.target_every == 0:
                critic.update_target()
        spent = max(time.process_time() - started, 1e-9)  # A clock may stand still.
        rows = [distances(critic, problem, query) for query in problem.queries]
    means = {key: float(np.mean([r[key] for r in rows])) for key in rows[0] if key != "curve"}
    figures = {**means, "updates_per_second": cell.updates / spent}
    finite = {key: _finite(value) for key, value in figures.items()}
    return {"figures": finite, "curves": [r["curve"] for r in rows]}


def distances(critic: Critic, problem: Problem, query: Query) -> dict[str, Any]:
    """How far the learned distribution is from the truth at one query."""
    tau = (np.arange(N_PARTICLES) + 0.5) / N_PARTICLES
    truth = query.quantile(tau)
    learned, online = (_read(critic, problem, query, target=target) for target in (True, False))
    at = np.linspace(0, N_PARTICLES - 1, CURVE).round().astype(int)
    return {
        "w1": float(np.abs(learned - truth).mean()),
        "w1_online": float(np.abs(online - truth).mean()),
        "crps": cramer(learned, truth),
        "mean_error": float(abs(learned.mean() - truth.mean())),
        "mean": float(learned.mean()),
        "bias": float(learned.mean() - truth.mean()),
        **{key: abs(tail(learned) - tail(truth)) for key, tail in TAILS.items()},
        "std": float(truth.std()),
        "curve": [round(float(z), 3) if np.isfinite(z) else None for z in learned[at]],
    }


def _read(critic: Critic, problem: Problem, query: Query, *, target: bool) -> NDArray[np.float64]:
    """The learned return at one query, ascending: (n,)."""
    obs, action = problem.observe([query.state]), torch.tensor([[query.action]])
    z = critic.particles(obs, action, N_PARTICLES, target=target)[0]
    return np.sort(z.numpy().astype(np.float64))


def cramer(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Integral of (F_a - F_b)^2 for ascending samples: the CRPS that a costs above the truth's."""
    z = np.sort(np.concatenate([a, b]))
    gap = np.searchsorted(a, z, "right") / len(a) - np.searchsorted(b, z, "right") / len(b)
    return float((gap[:-1] ** 2 * np.diff(z)).sum())


def summarise(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds, per problem and entrant."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for r in results:
        groups.setdefault((r["problem"], r["entrant"]), []).append(r["figures"])
    rows = []
    for (problem, entrant), group in groups.items():
        row: dict[str, Any] = {"problem": problem, "entrant": entrant, "seeds": len(group)}
        # Cells that an older version stored have fewer figures.
        for key in (k for k in group[0] if all(k in figures for figures in group)):
            values = [figures[key] for figures in group]
            lost = None in values
            row[key] = None if lost else float(np.mean(values))
            row[f"{key}_spread"] = None if lost else float(np.std(values, ddof=len(values) > 1))
        rows.append(row)
    return rows


def compare(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entrants over all problems, best first; W1 and means in per cent of the returns' deviation.

    Where a problem has two returns, their means are divided. `gap` is how much more W1 an entrant
    has than the first named, problem by problem.
    """
    entrants = list(dict.fromkeys(r["entrant"] for r in results))
    w1, off = (_by_problem(results, entrants, key) for key in ("w1", "mean_error"))
    known = [key for key in TAILS if all(key in r["figures"] for r in results)]
    tails = {key: _by_problem(results, entrants, key) for key in known}
    rows = []
    for i, entrant in enumerate(entrants):
        speeds = [r["figures"]["updates_per_second"] for r in results if r["entrant"] == entrant]
        row: dict[str, Any] = {"entrant": entrant, "w1": _finite(w1[i].mean())}
        row |= {"mean_error": _finite(off[i].mean())}
        row |= {key: _finite(tail[i].mean()) for key, tail in tails.items()}
        both = i > 0 and np.isfinite(w1[[0, i]]).all()
        row |= {"against": entrants[0], "gap": paired_interval(w1[i] - w1[0]) if both else None}
        best = np.isfinite(w1[i]) & (w1.argmin(0) == i)
        row |= {"best_on": int(best.sum()), "problems": w1.shape[1]}
        rows.append(row | {"ms_per_update": float(1e3 / np.median(speeds))})
    return sorted(rows, key=lambda row: np.inf if row["w1"] is None else row["w1"])


def _by_problem(
    results: Sequence[dict[str, Any]], entrants: Sequence[str], key: str
) -> NDArray[np.float64]:
    """A figure in per cent of the deviation, mean over seeds; inf if one diverged: (e, p)."""
    problems = list(dict.fromkeys(r["problem"] for r in results))
    cells: dict[tuple[str, str], list[float]] = {}
    for r in results:
        value, std = r["figures"][key], r["figures"]["std"]
        cells.setdefault((r["entrant"], r["problem"]), []).append(
            np.inf if value is None else 100 * value / (std or 1)
        )
    return np.array([[float(np.mean(cells[e, p])) for p in problems] for e in entrants])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def paired_interval(gaps: NDArray[np.float64]) -> list[float] | None:
    """Mean of the gaps and its 95 % interval by Student's t over problems; None of one problem."""
    if len(gaps) < 2:
        return None
    from scipy import stats  # Half a second to import.

    mean, error = gaps.mean(), gaps.std(ddof=1) / np.sqrt(len(gaps))
    reach = stats.t.ppf(0.975, len(gaps) - 1) * error
    return [float(mean), float(mean - reach), float(mean + reach)]


def markdown(rows: Sequence[dict[str, Any]], overview: Sequence[dict[str, Any]]) -> str:
    """Entrants over all problems, W1 as problems x entrants, then every figure."""
    against = f"more than {overview[0]['against']}, 95 %"
    heads = ("critic", "W1", against, "mean off", *TAIL_HEADS, "best on", "ms / update")
    lines = [_row(heads), "|---" * len(heads) + "|"]
    for r in overview:
        figures = [say_percent(r, "w1"), say_gap(r), say_percent(r, "mean_error")]
        figures += [say_percent(r, key) for key in TAILS]
        price = f"{r['ms_per_update']:.2f}"
        lines.append(_row((r["entrant"], *figures, f"{r['best_on']} of {r['problems']}", price)))
    lines += ["", "Per cent of the return's deviation, mean over problems.", ""]
    entrants = list(dict.fromkeys(r["entrant"] for r in rows))
    found = {(r["problem"], r["entrant"]): r for r in rows}
    lines += [_row(("W1", *entrants)), "|---" * (len(entrants) + 1) + "|"]
    for problem in dict.fromkeys(r["problem"] for r in rows):
        cells = [figure(found.get((problem, e), {}), "w1") for e in entrants]
        lines.append(_row((problem, *cells)))
    keys = ("w1", "w1_online", "crps", "mean_error", *TAILS, "updates_per_second")
    lines += ["", _row(("problem", "critic", *keys)), "|---" * (2 + len(keys)) + "|"]
    for r in rows:
        lines.append(_row((r["problem"], r["entrant"], *(figure(r, key) for key in keys))))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def say_percent(row: dict[str, Any], key: str) -> str:
    """A figure of the overview, in per cent."""
    if key not in row:
        return ""
    return "diverged" if row[key] is None else f"{row[key]:.2f} %"


def say_gap(row: dict[str, Any]) -> str:
    """How much more W1 than the first entrant's, with its interval."""
    return "" if row["gap"] is None else "{:+.2f} [{:+.2f}, {:+.2f}]".format(*row["gap"])


def figure(row: dict[str, Any], key: str) -> str:
    """`mean ± spread` of one figure, or what is known of it."""
    if key not in row:
        return ""
    if row[key] is None:
        return "diverged"
    spread = f" ± {row[f'{key}_spread']:.2f}" if row["seeds"] > 1 else ""
    return f"{row[key]:.2f}{spread}"


def write_results(folder: Path, command: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Write `league.json` and `league.md`, and return what they hold."""
    rows, overview = summarise(results), compare(results)
    data = {"command": command, "overview": overview, "summary": rows, "cells": results}
    store.publish_file(folder / "league.json", json.dumps(data, indent=1).encode())
    store.publish_file(folder / "league.md", markdown(rows, overview).encode())
    return data
