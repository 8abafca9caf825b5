"""What a study is: settings, tasks, the tables it repeats and what the paper claims of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bridgerl.config import RunConfig
from bridgerl.presets import resolve
from bridgerl.studies import paper
from bridgerl.studies.claims import Cell, Cells, Claim
from bridgerl.studies.jobs import Job, league_job, train_job
from bridgerl.truth.settings import LeagueCell, league_config


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: its steps, seeds and tasks, and the preset of its settings."""

    says: str
    steps: int
    most_tasks: int
    preset: str = "lite"
    seeds: tuple[int, ...] = (0, 1, 2)
    prefers: tuple[str, ...] = ()
    decides: bool = True
    """Whether runs are long enough to say anything about a claim."""
    changes: dict[str, dict[str, int]] = field(default_factory=dict)
    """What differs from the preset, by section."""

    def choose(self, tasks: tuple[str, ...]) -> tuple[str, ...]:
        """The tasks of a study that this scale runs, in the study's order."""
        order = [*(t for t in self.prefers if t in tasks), *tasks]
        chosen = list(dict.fromkeys(order))[: self.most_tasks]
        return tuple(task for task in tasks if task in chosen)


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "minutes: shows that everything runs, decides nothing",
        steps=400,
        most_tasks=1,
        seeds=(0, 1),
        prefers=("Hopper-v5", "Walker2d-v5"),
        decides=False,
        changes={"train": {"warmup": 300}, "eval": {"every": 100, "episodes": 1}}
        | {"save": {"every": 100}, "log": {"every": 100}},
    ),
    "cpu": Scale(
        "hours on a few cores: a tenth of the steps, two tasks",
        steps=100_000,
        most_tasks=2,
        prefers=("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5"),
        changes={"save": {"every": 10_000}},
    ),
    "paper": Scale(
        "the paper's: a million steps, all its tasks, its network sizes", 1_000_000, 5, "paper"
    ),
}


@dataclass(frozen=True)
class Setting:
    """A row of a table: its name, a pair, and what is changed of the critic's preset."""

    key: str
    """The name of the setting in `paper.RETURNS` and in claims."""
    actor: str
    critic: str
    changes: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    """The preset to use in place of the scale's, if any."""
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is changed of other sections, e.g. of the actor."""

    def config(self, task: str, scale: Scale) -> RunConfig:
        preset = self.preset or scale.preset
        base = resolve(task, self.actor, self.critic, preset)
        own = {"critic": self.changes, **self.others}
        both = {**own, **scale.changes}
        sections = {k: {**own.get(k, {}), **scale.changes.get(k, {})} for k in both}
        config = base.changed(steps=scale.steps, **sections)
        # Named by what differs from the preset, so that equal settings of studies share their run.
        new = [
            f"{name} {value}"
            for key, values in own.items()
            for name, value in values.items()
            if getattr(getattr(base, key), name) != value
        ]
        label = self.key if self.key != f"{self.actor}+{self.critic}" else " ".join(new)
        name = f"{self.actor}-{self.critic}-{preset}" + (f"-{slug_of(label)}" if new else "")
        return replace(config, name=name)


def pairs(*names: str) -> tuple[Setting, ...]:
    """Settings that are a pair's own preset, e.g. sac+dbc."""
    return tuple(Setting(n, n.split("+")[0], n.split("+")[1]) for n in names)


def dbc(key: str, **changes: Any) -> Setting:
    """DBC under SAC with something changed."""
    return Setting(key, "sac", "dbc", changes)


def slug_of(text: str) -> str:
    """A label as part of a folder's name."""
    plain = "".join(c if c.isalnum() or c == "." else "-" for c in text)
    return plain.strip("-").replace("---", "-")


class Place(NamedTuple):
    """Where the jobs of a study are run: a scale, its folder, a device."""

    scale: str
    out: Path
    device: str


class Measure(NamedTuple):
    """What is measured of a run: as the head of a column, and in words."""

    head: str
    says: str
    judges: bool = True
    """Whether claims are judged by this measure."""


class Figure(NamedTuple):
    """What the figure of a study shows, task by task."""

    title: str
    x: str
    y: str
    says: str
    log: bool = False
    """Whether both axes start as logarithms."""


@dataclass(frozen=True)
class Study(ABC):
    """One table or figure as something to run and to judge."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    tables: tuple[str, ...] = ()
    """Labels of the tables and figures it repeats, in the paper's source."""
    tasks: tuple[str, ...] = paper.TASKS
    claims: tuple[Claim, ...] = ()

    measures: ClassVar[dict[str, Measure]]
    """The measures that the study reports, by their keys."""
    figure: ClassVar[Figure]
    n_seeds: ClassVar[int] = 0
    """How many seeds the study takes to decide, if not those of the scale."""
    paired: ClassVar[bool] = False
    """Whether equal seeds of two settings share their data, so that they are compared in pairs."""
    pools_tasks: ClassVar[bool] = False
    """Whether scores of several tasks can be summed up once divided by a baseline's."""
    more_is_better: ClassVar[bool] = False
    """Whether a larger score is a better one, so that any two settings can be compared."""

    def jobs(
        self, scale: str, out: Path, seeds: tuple[int, ...] | None = None, device: str = "cpu"
    ) -> list[Job]:
        """What must be run, each once; results lie under `out`, trainings use the device."""
        own = range(self.n_seeds) if self.n_seeds and SCALES[scale].decides else None
        seeds = seeds or tuple(own or SCALES[scale].seeds)
        chosen = product(seeds, self.chosen_tasks(scale), self.settings)
        place = Place(scale, out / scale, device)
        jobs = (self.job(setting, task, seed, place) for seed, task, setting in chosen)
        return list(dict.fromkeys(jobs))

    def chosen_tasks(self, scale: str) -> tuple[str, ...]:
        return self.tasks

    @abstractmethod
    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """What is run for one cell of the table and one seed."""

    def paper_cells(self) -> Cells:
        """The paper's scores, as its claims should use them."""
        return {}

    def printed(self, table: str, setting: str, task: str) -> paper.Score | None:
        """What one of its tables prints in a cell, slips included."""
        cell = self.paper_cells().get((setting, task))
        return None if cell is None else paper.Score(cell.mean, cell.std)


class TrainingStudy(Study):
    """Settings that are trained on tasks with several seeds."""

    measures: ClassVar[dict[str, Measure]] = {
        "best": Measure("best", "best evaluation of each seed, as in the paper"),
        "final": Measure("final", "last evaluation"),
        "average": Measure("average", "mean of all evaluations"),
    }
    figure = Figure(
        "Learning curves", "environment steps", "return", "Mean return of evaluations over seeds."
    )
    pools_tasks = more_is_better = True
    most_steps: ClassVar[int] = 10**9
    """Steps of a run, where the scale would have more."""

    def chosen_tasks(self, scale: str) -> tuple[str, ...]:
        return SCALES[scale].choose(self.tasks)

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """A run; equal settings of other studies share its folder."""
        scale = SCALES[place.scale]
        steps = min(scale.steps, self.most_steps)
        config = setting.config(task, replace(scale, steps=steps))
        runs = "runs" if steps == scale.steps else f"runs-{steps}"
        where = {"out": place.out / runs, "train": {"device": place.device}}
        return train_job(setting.key, config.changed(seed=seed, **where))

    def paper_cells(self) -> Cells:
        return {
            (setting, task): Cell(*score, paper.SEEDS)
            for setting, row in paper.RETURNS.items()
            for task, score in zip(paper.TASKS, row.scores, strict=True)
        }

    def printed(self, table: str, setting: str, task: str) -> paper.Score | None:
        return paper.printed(table, setting, task)


class LeagueStudy(Study):
    """Critics that learn known distributions, problem by problem."""

    measures: ClassVar[dict[str, Measure]] = {
        "w1": Measure("W1", "distance between the learned and the true distribution"),
        "crps": Measure("CRPS", "what the learned distribution scores above the true one"),
        "mean_error": Measure("mean error", "distance of the means"),
    }
    figure = Figure("Learned quantiles", "quantile level, %", "return", "Mean over seeds.")

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """A cell; only `smoke` is shorter than the league's own."""
        base = league_config(setting.critic, setting.preset or "lite").critic
        critic = replace(base, **setting.changes)
        updates = 5 if place.scale == "smoke" else LeagueCell.updates
        cell = LeagueCell(task, setting.critic, critic, seed, updates)
        folder = place.out / "league" / task / slug_of(setting.key) / f"seed{seed}"
        return league_job(setting.key, cell, folder)
