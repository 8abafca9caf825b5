"""The verbs league, toy and bridge-error."""

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

from bridgerl.cli.entrants import read_entrant
from bridgerl.cli.output import Bar, counted, make_folder, progress, writing
from bridgerl.critics import CRITICS
from bridgerl.errors import require, require_seeds, require_some
from bridgerl.plots import check_plotting
from bridgerl.runs import store
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.league import cell_jobs, run_league
from bridgerl.studies.run.pool import Watcher
from bridgerl.studies.run.work import JobEnd
from bridgerl.truth import endpoint
from bridgerl.truth.league import TAIL_HEADS, TAILS, figure, say_gap, say_percent, write_results
from bridgerl.truth.league_plots import draw_cost, draw_distances, draw_quantiles
from bridgerl.truth.settings import PROBLEMS, EndpointConfig, LeagueCell, ToyConfig, read_problems
from bridgerl.truth.toy import draw_toy, run_toy, show_toy

MOST_LINES = 8
"""Entrants that one panel can show as lines."""
MOST_SHOWN = 8
"""Problems that are shown one by one."""


class _Shown(Watcher):
    """Jobs of a runner on a progress bar that refreshes itself; only ends are counted."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar

    def died(self, job: Job, reason: str) -> None:
        self._bar.console.print(f"{job.name}: {reason}; it is taken up again", markup=False)

    def ended(self, job: Job, end: JobEnd) -> None:
        if end.status == "done":
            self._bar.tick()


@dataclass(frozen=True)
class League:
    """Let critics learn known return distributions, and measure W1 and CRPS to the truth.

    Results are kept cell by cell: the same command again runs only what is missing.
    A critic may carry a label and flags: --critics cdq "printed = dbc --bridge-input label".
    Example: bridgerl league --critics dbc cdq --tasks two-point --seeds 0 1 2
    """

    critics: tuple[str, ...] = tuple(CRITICS)
    """Critics to compare, each a name or a quoted name with its flags."""
    tasks: tuple[str, ...] = PROBLEMS
    """Problems to learn: names, or random ones by their seeds, e.g. random:1000..1039."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; data depend on seed and problem alone."""
    updates: int = LeagueCell.updates
    """Updates that every critic gets."""
    batch: int = LeagueCell.batch
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
        jobs = self._jobs()
        if self.plot:
            check_plotting()
        make_folder(self.out, "cells")
        for job in jobs:
            store.refuse_links(job.folder, self.out)
        with progress(len(jobs), "league") as bar:
            try:
                results = run_league(jobs, self.workers, self.out, _Shown(bar))
            except KeyboardInterrupt:
                done = f"{bar.tasks[0].completed:.0f} of {len(jobs)} cells"
                raise KeyboardInterrupt(f"stopped after {done}; the same command goes on") from None
        with writing(self.out):
            data = write_results(self.out, shlex.join(["bridgerl", *sys.argv[1:]]), results)
            draws = {"distances": draw_distances, "cost": draw_cost, "quantiles": draw_quantiles}
            for name, draw in draws.items():
                # No picture of other results may stand beside these.
                (self.out / f"{name}.png").unlink(missing_ok=True)
                if self.plot and (name != "quantiles" or len(self.critics) <= MOST_LINES):
                    draw(results, self.out / f"{name}.png")
        if self.json:
            print(json.dumps(data["summary"]))
        else:
            self._show(data)
        return 0

    def _jobs(self) -> list[Job]:
        for name in ("updates", "batch", "workers"):
            value = getattr(self, name)
            require(1 <= value <= 10**7, name, value, "must be from 1 to 10**7")
        for name in ("critics", "tasks", "seeds"):
            require_some(name, getattr(self, name))
        tasks = read_problems(self.tasks)
        require_seeds("seeds", *self.seeds)
        entrants = [read_entrant(text) for text in self.critics]
        labels = [entrant.label for entrant in entrants]
        require(len(set(labels)) == len(labels), "critics", labels, "give one label twice")
        cells, budget = [], (self.updates, self.batch)
        for task, e, seed in product(tasks, entrants, self.seeds):
            cells.append((e.label, LeagueCell(task, e.critic, e.config, seed, *budget)))
        return cell_jobs(cells, self.out)

    def _show(self, data: dict[str, Any]) -> None:
        console = Console(highlight=False)
        budget = f"{self.updates:,} updates, {counted(len(self.seeds), 'seed')}"
        problems = len({r["problem"] for r in data["summary"]})
        if problems <= MOST_SHOWN:
            heads = ("critic", "W1", "W1 / std", "CRPS", "mean error", "updates/s")
            table = _table(f"league, {budget}", heads)
            for before, r in zip([None, *data["summary"]], data["summary"], strict=False):
                if before is None or before["problem"] != r["problem"]:
                    table.add_section()
                    table.add_row(f"[bold]{r['problem']}")
                cells = [escape(f" {r['entrant']}"), figure(r, "w1")]
                if r["w1"] is not None:
                    cells += [f"{r['w1'] / r['std']:.1%}", f"{r['crps']:.2f}"]
                    cells += [f"{r['mean_error']:.2f}", f"{r['updates_per_second']:.0f}"]
                table.add_row(*cells)
            console.print(table)
            print("W1 and CRPS are distances to the truth; CRPS is counted above the truth's own")
        if problems > 1:
            against = f"more than {data['overview'][0]['against']}"
            heads = ("critic", "W1", against, "mean off", "best on", "ms/update")
            table = _table(f"{problems} problems, {budget}", heads)
            for r in data["overview"]:
                cells = [say_percent(r, "w1"), say_gap(r), say_percent(r, "mean_error")]
                cells += [str(r["best_on"]), f"{r['ms_per_update']:.1f}"]
                table.add_row(escape(r["entrant"]), *cells)
            console.print(table)
            print("% of the return's deviation, mean over problems; intervals of 95 %")
        self._show_tails(console, data["overview"])
        print(f"results: {self.out}")

    def _show_tails(self, console: Console, overview: list[dict[str, Any]]) -> None:
        """How far bad and good cases are off, of critics that were measured there."""
        known = [r for r in overview if r.keys() >= TAILS.keys()]
        if not known:
            return
        table = _table("errors in the tails, % of the deviation", ("critic", *TAIL_HEADS))
        for r in known:
            table.add_row(escape(r["entrant"]), *(say_percent(r, key) for key in TAILS))
        console.print(table)


def _table(title: str, heads: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for head in heads:
        table.add_column(escape(head), justify="left" if head == "critic" else "right")
    return table


@dataclass(frozen=True)
class Toy(ToyConfig):
    """Draw the paper's degradation figure: critics fit returns, then back them up again and again.

    Example: bridgerl toy --seeds 0 --iterations 10
    """

    out: Path = Path("runs/toy")
    """Folder for the result and the picture."""
    plot: bool = True
    """Draw the picture."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        if self.plot:
            check_plotting()
        make_folder(self.out)
        config = ToyConfig(**{f.name: getattr(self, f.name) for f in fields(ToyConfig)})
        with progress(config.total, "toy") as bar:
            result = run_toy(config, bar.tick)
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
class EndpointError(EndpointConfig):
    """Print and plot how far Euler steps miss a fixed endpoint; exact weights miss it by nothing.

    Right endpoints give the paper's table, left ones are what its text defines.
    Example: bridgerl bridge-error --schedules linear --theta-max 10 --steps 1 2 5 50
    """

    out: Path = Path("runs/bridge-error")
    """Folder for the picture."""
    plot: bool = True
    """Draw the picture."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        table, picture = endpoint.error_table(self), self.out / "bridge-error.png"
        if self.plot:
            check_plotting()
            make_folder(self.out)
            with writing(self.out):
                endpoint.draw(table, picture)
        if self.json:
            print(json.dumps(table))
            return 0
        endpoint.show(table)
        if self.plot:
            print(f"picture: {picture}")
        return 0
