"""The league: critics learn known return laws, on equal data and budget, measured against truth.

Training goes through `update` and `track`, the read-out through `particles` of the target network:
the Polyak average that bootstraps, free of the last updates' noise. `w1_online` tells that noise.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bridgerl.agent import build_critic
from bridgerl.cli.entrants import Entrant, read_entrant
from bridgerl.critics.base import Critic
from bridgerl.errors import BridgeError, StorageFault
from bridgerl.runs import store
from bridgerl.streams import Streams, derive_seed
from bridgerl.training.process import fingerprint, tuned_process
from bridgerl.truth.problems import PROBLEMS, Problem, Query

N_PARTICLES = 10_000
CURVE = 201
"""Levels at which the learned inverse CDF is kept for the picture."""

# DBC's own choices, one changed at a time. The paper's sizes are cut to what a CPU can pay.
_PAPER = "dbc --preset paper --hidden 64 64 64 --n-target 64 --n-online 32"
ABLATION: dict[str, dict[str, str]] = {
    "base": {"lite": "dbc"},
    "input at t > 0": {
        "label": "dbc --bridge-input label",
        "path": "dbc --bridge-input path",
    },
    "steps M": {
        "M = 1": "dbc --bridge-steps 1",
        "M = 2": "dbc --bridge-steps 2",
        "M = 10": "dbc --bridge-steps 10",
        "label, M = 1": "dbc --bridge-input label --bridge-steps 1",
    },
    "anchor": {
        "w = 0": "dbc --anchor-weight 0",
        "w = 0.1": "dbc --anchor-weight 0.1",
        "anchor only": "dbc --quantile-weight 0 --anchor-weight 1",
    },
    "scale of z": {
        "z / 100": "dbc --z-scale 100",
        "label, z / 100": "dbc --bridge-input label --z-scale 100",
    },
    "kappa": {"kappa 0.1": "dbc --kappa 0.1", "kappa 10": "dbc --kappa 10"},
    "levels": {"iid levels": "dbc --no-stratified --no-shared-levels"},
    "paper": {"paper": _PAPER, "paper, self": f"{_PAPER} --bridge-input self"},
}

# DBC's sizes, one changed at a time: what a better fit costs.
SIZES: dict[str, dict[str, str]] = {
    "base": {"lite": "dbc"},
    "particle network": {
        "particle 8x8": "dbc --particle 8 8",
        "particle 32x32": "dbc --particle 32 32",
        "particle 64x64": "dbc --particle 64 64",
        "particle 32, one layer": "dbc --particle 32",
    },
    "trunk": {
        "trunk 2x64": "dbc --hidden 64 64",
        "trunk 2x128": "dbc --hidden 128 128",
        "trunk 2x256": "dbc --hidden 256 256",
        "trunk 2x512": "dbc --hidden 512 512",
    },
    "atoms": {
        "target 4": "dbc --n-target 4",
        "target 16": "dbc --n-target 16",
        "target 32": "dbc --n-target 32",
        "online 8": "dbc --n-online 8",
        "online 32": "dbc --n-online 32",
    },
    "levels": {
        "iid, shared": "dbc --no-stratified",
        "stratified, own": "dbc --no-shared-levels",
        "iid, own": "dbc --no-stratified --no-shared-levels",
    },
    "embedding": {
        "32 cosines": "dbc --n-embed 32",
        "128 cosines": "dbc --n-embed 128",
    },
}


@dataclass(frozen=True)
class Budget:
    """What every critic gets."""

    updates: int = 2_500
    batch: int = 128


@dataclass(frozen=True)
class Cell:
    """One critic on one problem with one seed."""

    problem: str
    entrant: Entrant
    seed: int
    budget: Budget

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result."""
        return {
            "problem": self.problem,
            "critic": {"type": self.entrant.critic, **asdict(self.entrant.config)},
            "seed": self.seed,
            **asdict(self.budget),
            "fingerprint": fingerprint(1, "cpu"),
        }

    @property
    def file_name(self) -> str:
        """A name that changes with everything that decides the result."""
        return f"{store.sha256(store.to_json(self.identity))[:24]}.json"


def variants(groups: dict[str, dict[str, str]]) -> list[Entrant]:
    """DBC and its variants, group by group."""
    rows = [row for group in groups.values() for row in group.items()]
    return [read_entrant(f"{label} = {text}") for label, text in rows]


def run_cell(cell: Cell) -> dict[str, Any]:
    """Train one critic and measure it; the data depend on problem and seed alone."""
    problem, budget = PROBLEMS[cell.problem], cell.budget
    with tuned_process(1):
        critic = build_critic(cell.entrant.config, problem.spec, Streams(cell.seed))
        rng = np.random.default_rng(derive_seed(cell.seed, "league", cell.problem))
        started = time.process_time()  # One thread: what a cell takes, however busy the machine is.
        for update in range(1, budget.updates + 1):
            critic.update(*problem.draw(budget.batch, rng))
            if update % cell.entrant.config.target_every == 0:
                critic.track()
        spent = time.process_time() - started
        rows = [_measure(critic, problem, query) for query in problem.queries]
    means = {key: float(np.mean([r[key] for r in rows])) for key in rows[0] if key != "curve"}
    figures = {**means, "updates_per_second": budget.updates / spent}
    finite = {k: v if np.isfinite(v) else None for k, v in figures.items()}
    curves = [r["curve"] for r in rows]
    return {"identity": cell.identity, "figures": finite, "curves": curves}


def _measure(critic: Critic, problem: Problem, query: Query) -> dict[str, Any]:
    """Distances between the learned law and the truth at one query."""
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


def run_league(cells: Sequence[Cell], folder: Path, workers: int) -> Iterator[dict[str, Any]]:
    """Every cell's result as it comes; those already in the folder are not run again."""
    store.make_folder(folder / "cells")
    missing: list[Cell] = []
    for cell in cells:
        path = folder / "cells" / cell.file_name
        if path.is_file():
            yield _labelled(cell, _kept(path, cell))
        else:
            missing.append(cell)
    with _pool(workers) as pool:
        jobs = {pool.submit(run_cell, cell): cell for cell in missing}
        for job in as_completed(jobs):
            try:
                cell, result = jobs[job], job.result()
            except BrokenProcessPool:
                raise BridgeError(
                    "a worker process died, perhaps for lack of memory; "
                    "the same command with fewer --workers runs what is missing"
                ) from None
            try:
                path = folder / "cells" / cell.file_name
                store.publish_file(path, store.to_sealed_json(result))
            except OSError as error:
                raise StorageFault(f"{folder}: result not written: {error}") from error
            yield _labelled(cell, result)


def _kept(path: Path, cell: Cell) -> dict[str, Any]:
    """A result from the folder; the seal tells whether it is what was once measured."""
    try:
        result = store.open_sealed_json(store.read_bytes(path), str(path))
        if result.get("identity") != store.parse_json(store.to_json(cell.identity), "identity"):
            raise StorageFault(f"{path} is damaged: it belongs to another cell")
    except StorageFault as fault:
        raise StorageFault(f"{fault}; delete it to run this cell again") from None
    return result


def _start_worker() -> None:
    """End quietly on Ctrl-C, and end when the parent does, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that start clean and end with us, whatever ends us."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown()


def _labelled(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "problem": cell.problem,
        "entrant": cell.entrant.label,
        "seed": cell.seed,
        **result,
    }


def summarise(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds, per problem and entrant."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for r in results:
        groups.setdefault((r["problem"], r["entrant"]), []).append(r)
    rows = []
    for (problem, entrant), group in groups.items():
        row: dict[str, Any] = {"problem": problem, "entrant": entrant, "seeds": len(group)}
        for key in group[0]["figures"]:
            values = [r["figures"][key] for r in group]
            lost = any(v is None for v in values)
            row[key] = None if lost else float(np.mean(values))
            row[f"{key}_spread"] = None if lost else float(np.std(values, ddof=len(values) > 1))
        rows.append(row)
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """W1 as entrants x problems, then every figure."""
    problems = list(dict.fromkeys(r["problem"] for r in rows))
    entrants = list(dict.fromkeys(r["entrant"] for r in rows))
    found = {(r["problem"], r["entrant"]): r for r in rows}
    lines = ["| W1 | " + " | ".join(problems) + " |", "|---" * (len(problems) + 1) + "|"]
    for entrant in entrants:
        cells = [figure(found.get((p, entrant), {}), "w1") for p in problems]
        lines.append(f"| {entrant} | " + " | ".join(cells) + " |")
    keys = ("w1", "w1_online", "crps", "mean_error", "updates_per_second")
    lines += ["", "| problem | critic | " + " | ".join(keys) + " |", "|---" * 7 + "|"]
    lines += [
        f"| {r['problem']} | {r['entrant']} | " + " | ".join(figure(r, k) for k in keys) + " |"
        for r in rows
    ]
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
