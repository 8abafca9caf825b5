"""The verb race."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bridgerl.bench.race import Heat, Racer, draw_race, our_racer, peer_racer, run_race, summarise
from bridgerl.bench.table import installed
from bridgerl.cli.entrants import split_label
from bridgerl.cli.output import counted, make_folder, progress, writing
from bridgerl.cli.train import Train
from bridgerl.envs.task import Task
from bridgerl.errors import UserError, choose, require, require_seeds, require_some
from bridgerl.plots import check_plotting
from bridgerl.runs import store
from bridgerl.runs.versions import usable_cores

PEERS = {"sb3": "stable-baselines3", "sb3-contrib": "sb3-contrib", "sbx": "sbx"}
"""Libraries by the name that a racer gives them."""


@dataclass(frozen=True)
class Race:
    """Let learners race: return against minutes, each on one core.

    A racer is a pair with any flags of `train`, or LIBRARY:ALGORITHM with that library's settings;
    both may carry a label. Results are kept one by one: the same command again runs what is
    missing.

    Example: bridgerl race --racers sac+dbc "small = sac+cdq --critic.hidden 128 128" sb3:SAC
    """

    racers: tuple[str, ...] = ("sac+dbc", "sac+cdq", "sb3:SAC", "sbx:SAC", "sbx:TQC")
    """Racers, each quoted with its settings."""
    envs: tuple[str, ...] = ("HalfCheetah-v5",)
    """Environments to race on."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; every racer runs each of them."""
    minutes: float = 10.0
    """Minutes of training; evaluations do not count."""
    marks: int = 20
    """Evaluations during these minutes."""
    episodes: int = 5
    """Episodes of each evaluation."""
    workers: int = 1
    """Racers at a time, each on a core of its own."""
    peers: Path = Path(sys.executable)
    """Python interpreter that has the other libraries."""
    out: Path = Path("runs/race")
    """Folder for results and the picture."""
    plot: bool = True
    """Draw the picture."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        starts, cores = self.starts(), self._cores()
        if self.plot:
            check_plotting()
        for env in self.envs:
            Task(env, 0).close()
        make_folder(self.out, "cells")
        with progress(len(starts), "racing") as bar, writing(self.out):
            cells = run_race(starts, cores, self.out / "cells", bar.tick)
            command = shlex.join(["bridgerl", *sys.argv[1:]])
            data = {"command": command, "rows": summarise(cells), "cells": cells}
            store.publish_file(self.out / "race.json", store.to_json(data))
            if self.plot:
                draw_race(cells, self.out / "race.png")
        print(json.dumps(data["rows"])) if self.json else self._show(data["rows"])
        return 0

    def starts(self) -> list[tuple[Racer, Heat]]:
        for name in ("envs", "seeds", "racers"):
            require_some(name, getattr(self, name))
        require_seeds("seeds", *self.seeds)
        require(0 < self.minutes <= 10_000, "minutes", self.minutes, "must be in (0, 10000]")
        for name in ("marks", "episodes"):
            value = getattr(self, name)
            require(1 <= value <= 10_000, name, value, "must be from 1 to 10000")
        budget = (self.minutes, self.marks, self.episodes)
        racers = {env: [self._racer(text, env) for text in self.racers] for env in self.envs}
        labels = [racer.label for racer in racers[self.envs[0]]]
        require(len(set(labels)) == len(labels), "racers", labels, "give one label twice")
        heats = [Heat(env, seed, *budget) for env in self.envs for seed in self.seeds]
        return [(racer, heat) for heat in heats for racer in racers[heat.env]]

    def _cores(self) -> list[int]:
        cores = usable_cores()
        ok = 1 <= self.workers <= len(cores)
        require(ok, "workers", self.workers, f"must be from 1 to {len(cores)}, a core for each")
        return cores[: self.workers]

    def _racer(self, text: str, env: str) -> Racer:
        label, entry = split_label(text, "racers")
        name, *words = _words(entry, text)
        library, colon, algorithm = name.partition(":")
        if colon:
            library = choose("library", library, PEERS)
            has = installed(self.peers)
            require(library in has, "racers", text, f"needs {library} in --peers {self.peers}")
            request = {"library": library, "algorithm": algorithm, "settings": _settings(words)}
            return peer_racer(label, request, self.peers)
        actor, plus, critic = name.partition("+")
        require(bool(plus), "racers", text, "needs a pair, e.g. sac+dbc, or e.g. sbx:SAC")
        picks = ["--env", env, "--actor", actor, "--critic", critic]
        return our_racer(label, Train.read([*picks, *words]).config)

    def _show(self, rows: list[dict[str, Any]]) -> None:
        seeds = counted(len(self.seeds), "seed")
        title = f"return after {self.minutes:g} minutes on one core, {seeds}"
        table = Table(title=title, title_justify="left")
        table.add_column("racer")
        for column in ("return", "seeds", "steps", "minutes to the best other"):
            table.add_column(column, justify="right")
        for row in rows:
            reached = row["minutes_to_best_other"]
            each = " ".join(f"{value:.0f}" for value in row["finals"])
            figures = (f"{row['final']:.0f}", each, f"{row['steps']:,.0f}")
            name = f"{row['env']}: {row['label']}"
            table.add_row(name, *figures, "-" if reached is None else f"{reached:.1f}")
        Console(highlight=False).print(table)


def _words(entry: str, text: str) -> list[str]:
    try:
        return shlex.split(entry) or [""]
    except ValueError as error:
        raise UserError(f"--racers {text!r} cannot be read: {error}") from None


def _settings(words: list[str]) -> dict[str, Any]:
    """`--net-arch 128 128 --use-sde` as keyword arguments: JSON values, else text; none is True."""
    settings: dict[str, Any] = {}
    for part in re.split(r"(?:^|\s)--(?=[a-z])", " ".join(words))[1:]:
        name, *values = part.split()
        read = [_json_or_text(value) for value in values] or [True]
        settings[name.replace("-", "_")] = read[0] if len(read) == 1 else read
    return settings


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
