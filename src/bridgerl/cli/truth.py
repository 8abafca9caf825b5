"""The verbs of the lab: league, toy and bridge-error."""

import json
import shlex
import sys
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bridgerl.bridge.schedule import Constant, Cosine, Linear
from bridgerl.cli.entrants import read_entrant
from bridgerl.cli.output import make_folder, progress, require_some, writing
from bridgerl.critics import CRITICS
from bridgerl.errors import choose, require
from bridgerl.plots import check_plotting
from bridgerl.runs import store
from bridgerl.truth import endpoint as bias
from bridgerl.truth.league import (
    ABLATION,
    SIZES,
    Budget,
    Cell,
    figure,
    run_league,
    variants,
    write_results,
)
from bridgerl.truth.league_plots import draw_distances, draw_laws, draw_price
from bridgerl.truth.problems import PROBLEMS
from bridgerl.truth.toy import ToyConfig, draw_toy, run_toy, show_toy

MOST_LAWS = 8
"""Entrants that one panel can show as lines."""


@dataclass(frozen=True)
class League:
    """Let critics learn known return laws, and measure W1 and CRPS to the truth.

    Results are kept cell by cell: the same command again runs only what is missing.
    A critic may carry a label and flags: --critics cdq "printed = dbc --bridge-input label".
    Example: bridgerl league --critics dbc cdq --tasks two-point --seeds 0 1 2
    """

    critics: tuple[str, ...] = tuple(CRITICS)
    """Critics to compare, each a name or a quoted name with its flags."""
    ablation: bool = False
    """Compare DBC with its own variants instead."""
    sizes: bool = False
    """Compare DBC's sizes instead: what a better fit costs."""
    tasks: tuple[str, ...] = tuple(PROBLEMS)
    """Problems to learn."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; data depend on seed and problem alone."""
    updates: int = Budget.updates
    """Updates that every critic gets."""
    batch: int = Budget.batch
    """Transitions per update."""
    workers: int = 1
    """Processes; each uses one thread."""
    out: Path = Path("runs/league")
    """Folder for results and pictures."""
    plot: bool = True
    """Draw pictures."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Run what is missing, print a table, write JSON, Markdown and pictures."""
        cells = self._cells()
        if self.plot:
            check_plotting()
        make_folder(self.out / "cells")
        results = []
        try:
            with progress(len(cells), "league") as bar:
                for result in run_league(cells, self.out, self.workers):
                    results.append(result)
                    bar.advance(bar.task_ids[0])
        except KeyboardInterrupt:
            done = f"{len(results)} of {len(cells)} cells"
            print(f"bridgerl: stopped after {done}; the same command goes on", file=sys.stderr)
            raise
        order = {(c.problem, c.entrant.label, c.seed): i for i, c in enumerate(cells)}
        results.sort(key=lambda r: order[r["problem"], r["entrant"], r["seed"]])
        with writing(self.out):
            data = write_results(self.out, shlex.join(["bridgerl", *sys.argv[1:]]), results)
            # No picture of other results may stand beside these.
            for name in ("distances.png", "laws.png", "price.png"):
                (self.out / name).unlink(missing_ok=True)
            if self.plot:
                draw_distances(results, self.out / "distances.png")
                draw_price(results, self.out / "price.png")
                if len({r["entrant"] for r in results}) <= MOST_LAWS:
                    draw_laws(results, self.out / "laws.png")
        if self.json:
            print(json.dumps(data["summary"]))
        else:
            self._show(data["summary"])
        return 0

    def _cells(self) -> list[Cell]:
        for name in ("updates", "batch", "workers"):
            value = getattr(self, name)
            require(1 <= value <= 10**7, name, value, "must be from 1 to 10**7")
        for name in ("critics", "tasks", "seeds"):
            require_some(name, getattr(self, name))
        for task in self.tasks:
            choose("task", task, PROBLEMS)
        for seed in self.seeds:
            require(0 <= seed < 2**32, "seeds", seed, "must be from 0 to 2**32 - 1")
        both = self.ablation and self.sizes
        require(not both, "sizes", True, "and --ablation are two leagues")
        groups = ABLATION if self.ablation else SIZES
        listed = [read_entrant(text) for text in self.critics]
        entrants = variants(groups) if self.ablation or self.sizes else listed
        labels = [entrant.label for entrant in entrants]
        require(len(set(labels)) == len(labels), "critics", labels, "give one label twice")
        budget = Budget(self.updates, self.batch)
        combinations = product(self.tasks, entrants, self.seeds)
        return [Cell(task, entrant, seed, budget) for task, entrant, seed in combinations]

    def _show(self, rows: list[dict[str, Any]]) -> None:
        table = Table(title=f"league, {self.updates:,} updates, {len(self.seeds)} seed(s)")
        for head in ("critic", "W1", "W1 / std", "CRPS", "mean error", "updates/s"):
            table.add_column(head, justify="left" if head == "critic" else "right")
        for before, r in zip([None, *rows], rows, strict=False):
            if before is None or before["problem"] != r["problem"]:
                table.add_section()
                table.add_row(f"[bold]{r['problem']}")
            cells = [escape(f" {r['entrant']}"), figure(r, "w1")]
            if r["w1"] is not None:
                cells += [f"{r['w1'] / r['std']:.1%}", f"{r['crps']:.2f}", f"{r['mean_error']:.2f}"]
                cells += [f"{r['updates_per_second']:.0f}"]
            table.add_row(*cells)
        Console(highlight=False).print(table)
        print("W1 and CRPS are distances to the truth; CRPS is counted above the truth's own")
        print(f"results: {self.out}")


@dataclass(frozen=True)
class Toy(ToyConfig):
    """Draw the paper's degradation figure: critics fit a law, then back it up again and again.

    Example: bridgerl toy --seeds 0 --iterations 10
    """

    out: Path = Path("runs/toy")
    """Folder for the result and the picture."""
    plot: bool = True
    """Draw the picture."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Run, write JSON and the picture, print a table."""
        if self.plot:
            check_plotting()
        make_folder(self.out)
        config = ToyConfig(**{f.name: getattr(self, f.name) for f in fields(ToyConfig)})
        total = len(config.critics) * len(config.seeds) * config.updates
        with progress(total, "toy") as bar:
            result = run_toy(config, lambda done, _: bar.update(bar.task_ids[0], completed=done))
        with writing(self.out):
            store.publish_file(self.out / "toy.json", json.dumps(result).encode())
            if self.plot:
                draw_toy(result, self.out / "toy.png")
        if self.json:
            print(json.dumps(result))
        else:
            show_toy(result)
            print(f"result: {self.out}")
        return 0


@dataclass(frozen=True)
class BridgeBias:
    """Print and plot how far Euler steps miss a fixed endpoint; exact weights miss it by nothing.

    Right endpoints give the paper's table, left ones are what its text defines.
    Example: bridgerl bridge-error --schedules linear --theta-max 10 --steps 1 2 5 50
    """

    schedules: tuple[str, ...] = ("constant", "linear", "cosine")
    """Schedules of the drift rate."""
    steps: tuple[int, ...] = bias.PAPER_STEPS
    """Numbers of bridge steps M."""
    theta: float = 1.0
    """Drift rate of the constant schedule."""
    theta_min: float = 0.1
    """Drift rate at the start of the others."""
    theta_max: float = 5.0
    """Drift rate at the end of the others."""
    out: Path = Path("runs/bridge-error")
    """Folder for the picture."""
    plot: bool = True
    """Draw the picture."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Compute, print, draw."""
        kinds = {
            "constant": lambda: Constant(self.theta),
            "linear": lambda: Linear(self.theta_min, self.theta_max),
            "cosine": lambda: Cosine(self.theta_min, self.theta_max),
        }
        for name in ("schedules", "steps"):
            require_some(name, getattr(self, name))
        for n in self.steps:
            require(1 <= n <= 10**6, "steps", n, "must be from 1 to 10**6")
        chosen = {name: choose("schedule", name, kinds)() for name in self.schedules}
        table = bias.error_table(chosen, self.steps)
        if self.plot:
            check_plotting()
            make_folder(self.out)
            with writing(self.out):
                bias.draw(table, self.out / "bridge-error.png")
        if self.json:
            print(json.dumps(table))
            return 0
        bias.show(table)
        if self.plot:
            print(f"picture: {self.out / 'bridge-error.png'}")
        return 0
