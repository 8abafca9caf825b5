"""What a study is: settings, tasks, the tables it repeats and what the paper claims of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from bridgerl.cli.entrants import read_pair
from bridgerl.config import EvalConfig, LogConfig, RunConfig, SaveConfig, TrainConfig
from bridgerl.errors import require
from bridgerl.presets import resolve
from bridgerl.studies import paper
from bridgerl.studies.claims import Cell, Cells, Claim
from bridgerl.studies.jobs import Job, TrainJob


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: steps, seeds, tasks, and under which preset."""

    says: str
    preset: str
    steps: int
    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    """Tasks in the order they are chosen in."""
    most_tasks: int
    decides: bool = True
    """Whether runs are long enough to say anything about a claim."""
    warmup: int = TrainConfig.warmup
    eval_every: int = EvalConfig.every
    eval_episodes: int = EvalConfig.episodes
    save_every: int = SaveConfig.every
    log_every: int = LogConfig.every

    def choose(self, tasks: tuple[str, ...]) -> tuple[str, ...]:
        """The tasks of a study that this scale runs, in the study's order."""
        chosen = [task for task in self.tasks if task in tasks][: self.most_tasks]
        return tuple(task for task in tasks if task in chosen)


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        says="minutes: shows that everything runs, decides nothing",
        preset="lite",
        steps=400,
        seeds=(0, 1),
        tasks=("Hopper-v5", "Walker2d-v5"),
        most_tasks=1,
        decides=False,
        warmup=300,
        eval_every=100,
        eval_episodes=1,
        save_every=100,
        log_every=100,
    ),
    "cpu": Scale(
        says="hours on a few cores: a tenth of the steps, two tasks",
        preset="lite",
        steps=100_000,
        seeds=(0, 1, 2),
        tasks=("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "Humanoid-v5", "Ant-v5"),
        most_tasks=2,
        save_every=10_000,
    ),
    "paper": Scale(
        says="the paper's: a million steps, all its tasks, its network sizes",
        preset="paper",
        steps=1_000_000,
        seeds=(0, 1, 2),
        tasks=("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5"),
        most_tasks=5,
    ),
}


@dataclass(frozen=True)
class Setting:
    """A row of a table: what tables call it, and the pair with the critic's flags behind it."""

    key: str
    """Its name in `paper.RETURNS` and in claims."""
    pair: str
    """An actor and a critic with flags, e.g. `sac+dbc --bridge-steps 1`."""

    def config(self, task: str, scale: Scale, seed: int, out: Path) -> RunConfig:
        """The run of this setting on one task."""
        pair = read_pair(f"{self.key} = {self.pair} --preset {scale.preset}", task)
        base = resolve(task, pair.actor, pair.critic, scale.preset)
        slug = "" if self.key == self.pair else f"-{_slug(self.key)}"
        return replace(
            base,
            critic=pair.critic_config,
            steps=scale.steps,
            seed=seed,
            out=out,
            name=f"{pair.actor}-{pair.critic}-{scale.preset}{slug}",
            train=replace(base.train, warmup=scale.warmup),
            eval=replace(base.eval, every=scale.eval_every, episodes=scale.eval_episodes),
            save=replace(base.save, every=scale.save_every),
            log=replace(base.log, every=scale.log_every),
        )


class Measure(NamedTuple):
    """What is measured of a run: as the head of a column, and in words."""

    head: str
    says: str


class Figure(NamedTuple):
    """What curves show, task by task."""

    title: str
    x: str
    y: str
    says: str
    log: bool = False
    """Whether both axes start as logarithms."""


Curves = dict[str, dict[int, float]]
"""By setting: y at x."""


@dataclass(frozen=True)
class Study(ABC):
    """One table or figure as something to run and to judge."""

    name: str
    title: str
    tables: tuple[str, ...]
    """Labels of the tables and figures it repeats, in the paper's source."""
    claims: tuple[Claim, ...]

    measures: ClassVar[dict[str, Measure]]
    """By key; claims are judged on each."""

    figure: ClassVar[Figure]

    pools_tasks: ClassVar[bool] = False
    """Whether scores of several tasks can be summed up once divided by a baseline's."""

    @abstractmethod
    def jobs(self, scale: str, out: Path, seeds: tuple[int, ...] | None = None) -> list[Job]:
        """What must be run; results lie under `out`."""

    def exact_cells(self) -> Cells:
        """Scores that follow from formulas and need no run."""
        return {}

    def exact_curves(self) -> Curves:
        """Curves that follow from formulas and need no run."""
        return {}

    def draw(self, jobs: list[Job], folder: Path) -> None:
        """Pictures of the jobs that are done, into the study's folder."""
        return

    def paper_cells(self) -> Cells:
        """The paper's scores, as its claims should use them."""
        return {}

    def printed(self, table: str, setting: str, task: str) -> paper.Score | None:
        """What one of its tables prints in a cell, slips included."""
        cell = self.paper_cells().get((setting, task))
        return None if cell is None else paper.Score(cell.mean, cell.std)


@dataclass(frozen=True)
class TrainingStudy(Study):
    """Settings that are trained on tasks with several seeds."""

    settings: tuple[Setting, ...]
    tasks: tuple[str, ...]

    measures: ClassVar[dict[str, Measure]] = {
        "best": Measure("best", "best evaluation of each seed, as in the paper"),
        "final": Measure("final", "last evaluation"),
        "average": Measure("average", "mean of all evaluations"),
    }
    figure: ClassVar[Figure] = Figure(
        "Learning curves", "environment steps", "return", "Mean return of evaluations over seeds."
    )
    pools_tasks: ClassVar[bool] = True

    def jobs(self, scale: str, out: Path, seeds: tuple[int, ...] | None = None) -> list[Job]:
        """A run per task, setting and seed; equal settings of other studies share its folder."""
        size = SCALES[scale]
        for seed in seeds or ():
            require(0 <= seed < 2**32, "seeds", seed, "must be from 0 to 2**32 - 1")
        return [
            TrainJob(setting.key, setting.config(task, size, seed, out / scale / "runs"))
            for seed in seeds or size.seeds
            for task in size.choose(self.tasks)
            for setting in self.settings
        ]

    def paper_cells(self) -> Cells:
        """Means and deviations of the paper's three seeds."""
        return {
            (setting, task): Cell(*score, paper.SEEDS)
            for setting, row in paper.RETURNS.items()
            for task, score in zip(paper.TASKS, row.scores, strict=True)
        }

    def printed(self, table: str, setting: str, task: str) -> paper.Score | None:
        """What one of its tables prints in a cell, slips included."""
        return paper.printed(table, setting, task)


def pairs(*names: str) -> tuple[Setting, ...]:
    """Settings that are a pair's own preset."""
    return tuple(Setting(name, name) for name in names)


def _slug(text: str) -> str:
    """A label as part of a folder's name."""
    return (
        "".join(c if c.isalnum() or c == "." else "-" for c in text).strip("-").replace("---", "-")
    )
