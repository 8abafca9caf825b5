"""The league: critics learn known returns, on equal data and budget, measured against the truth.

Training goes through `update` and `track`, the read-out through `particles` of the target network:
the Polyak average that bootstraps, free of the last updates' noise. `w1_online` tells that noise.
"""

import json
import time
from collections.abc import Iterable, Sequence
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
from bridgerl.truth.problems import PROBLEMS, Problem, Query
from bridgerl.truth.settings import LeagueCell

N_PARTICLES = 10_000
CURVE = 201
"""Levels at which the learned inverse CDF is kept for the picture."""


def run_cell(cell: LeagueCell) -> dict[str, Any]:
    """Train one critic and measure it; the data depend on problem and seed alone."""
    problem = PROBLEMS[cell.problem]
    with tuned_process(1):
        critic = build_critic(cell.config, problem.spec, Streams(cell.seed))
        rng = np.random.default_rng(derive_seed(cell.seed, "league", cell.problem))
        started = time.process_time()  # One thread: what a cell takes, however busy the machine is.
        for update in range(1, cell.updates + 1):
            critic.update(*problem.draw(cell.batch, rng))
            if update % cell.config.target_every == 0:
                critic.track()
        spent = time.process_time() - started
        rows = [distances(critic, problem, query) for query in problem.queries]
    means = {key: float(np.mean([r[key] for r in rows])) for key in rows[0] if key != "curve"}
    figures = {**means, "updates_per_second": cell.updates / spent}
    finite = {k: v if np.isfinite(v) else None for k, v in figures.items()}
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
        for key in group[0]:
            values = [figures[key] for figures in group]
            lost = None in values
            row[key] = None if lost else float(np.mean(values))
            row[f"{key}_spread"] = None if lost else float(np.std(values, ddof=len(values) > 1))
        rows.append(row)
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """W1 as entrants x problems, then every figure."""
    problems = list(dict.fromkeys(r["problem"] for r in rows))
    found = {(r["problem"], r["entrant"]): r for r in rows}
    lines = ["| W1 | " + " | ".join(problems) + " |", "|---" * (len(problems) + 1) + "|"]
    for entrant in dict.fromkeys(r["entrant"] for r in rows):
        cells = [figure(found.get((p, entrant), {}), "w1") for p in problems]
        lines.append(f"| {entrant} | " + " | ".join(cells) + " |")
    keys = ("w1", "w1_online", "crps", "mean_error", "updates_per_second")
    lines += ["", "| problem | critic | " + " | ".join(keys) + " |", "|---" * 7 + "|"]
    for r in rows:
        cells = [r["problem"], r["entrant"], *(figure(r, key) for key in keys)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def figure(row: dict[str, Any], key: str) -> str:
    """`mean ± spread` of one figure, or what is known of it."""
    if key not in row:
        return ""
    if row[key] is None:
        return "diverged"
    return f"{row[key]:.2f} ± {row[f'{key}_spread']:.2f}"


def write_results(folder: Path, command: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """`league.json` and `league.md`."""
    data = {"command": command, "summary": summarise(results), "cells": results}
    store.publish_file(folder / "league.json", json.dumps(data, indent=1).encode())
    store.publish_file(folder / "league.md", markdown(data["summary"]).encode())
    return data
