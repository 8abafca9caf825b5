"""The verb gamble."""

import json
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bridgerl.actors import ACTORS
from bridgerl.cli.output import counted, progress
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError, choose, require, require_seeds, require_some
from bridgerl.settings.measures import parse
from bridgerl.truth.gambles import best_action, run_gamble
from bridgerl.truth.settings import ADVISERS, CLOSE, RISKS, GambleCell


@dataclass(frozen=True)
class Gamble:
    """Let actors and critics learn a choice whose best action under a measure of risk is known.

    Action a pays N(10 a, (10 a^2)^2). Example: bridgerl gamble --critics dbc --measures cvar:0.1
    """

    actors: tuple[str, ...] = tuple(ACTORS)
    """Actors to try."""
    critics: tuple[str, ...] = tuple(ADVISERS)
    """Critics to try, of those that know a distribution."""
    measures: tuple[str, ...] = RISKS
    """Measures of risk whose best action is to be learnt."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds that every pair is run with."""
    updates: int = GambleCell.updates
    """Updates that every agent gets."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        self._check()
        cells = list(product(self.actors, self.critics, self.measures))
        rows: list[dict[str, Any]] = []
        with progress(len(cells) * len(self.seeds), "gamble") as bar:
            for actor, critic, measure in cells:
                learnt = []
                for seed in self.seeds:
                    cell = GambleCell.of(actor, critic, measure, seed, self.updates)
                    learnt.append(run_gamble(cell)["action"])
                    bar.tick()
                row = {"actor": actor, "critic": critic, "measure": measure, "learnt": learnt}
                rows.append(row | {"optimum": best_action(measure)})
        if self.json:
            print(json.dumps(rows))
        else:
            self._show(rows)
        return 0

    def _check(self) -> None:
        for name in ("actors", "critics", "measures", "seeds"):
            require_some(name, getattr(self, name))
        require_seeds("seeds", *self.seeds)
        require(1 <= self.updates <= 10**7, "updates", self.updates, "must be from 1 to 10**7")
        for actor in self.actors:
            choose("actor", actor, ACTORS)
        for critic in self.critics:
            if not choose("critic", critic, CRITICS).distributional:
                known = ", ".join(name for name, kind in CRITICS.items() if kind.distributional)
                raise UserError(f"critic {critic} knows no distribution; these do: {known}")
        for measure in self.measures:
            parse(measure)

    def _show(self, rows: list[dict[str, Any]]) -> None:
        seeds = counted(len(self.seeds), "seed")
        table = Table(title=f"mean action of {seeds}, {self.updates:,} updates")
        table.add_column("")
        for measure in self.measures:
            table.add_column(measure, justify="right")
        best = [f"{best_action(measure):.3f}" for measure in self.measures]
        table.add_row("optimum", *best, end_section=True)
        found = {(r["actor"], r["critic"], r["measure"]): r for r in rows}
        for actor, critic in product(self.actors, self.critics):
            cells = [found[actor, critic, measure] for measure in self.measures]
            table.add_row(f"{actor}+{critic}", *map(_say, cells))
        Console(highlight=False).print(table)
        print(f"! marks a seed that is more than {CLOSE} off")


def _say(row: dict[str, Any]) -> str:
    far = max(abs(a - row["optimum"]) for a in row["learnt"]) > CLOSE
    return f"{np.mean(row['learnt']):.3f}{'!' if far else ' '}"
