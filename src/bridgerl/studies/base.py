"""What a study is: settings, tasks, the tables it repeats and what the paper claims of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bridgerl.config import EvalConfig, LogConfig, RunConfig, SaveConfig, TrainConfig
from bridgerl.presets import resolve
from bridgerl.studies import paper
from bridgerl.studies.claims import Cell, Cells, Claim
from bridgerl.studies.jobs import Job, league_job, train_job
from bridgerl.truth.settings import LeagueCell


@dataclass(frozen=True)
class Scale:
    """How much of a study is run: steps, seeds, tasks, and under which preset."""

    says: str
    preset: str
    steps: int
    seeds: tuple[int, ...]
    most_tasks: int
    prefers: tuple[str, ...] = ()
    """Tasks that are chosen before others."""
    decides: bool = True
    """Whether runs are long enough to say anything about a claim."""
    warmup: int = TrainConfig.warmup
    eval_every: int = EvalConfig.every
    eval_episodes: int = EvalConfig.episodes
    save_every: int = SaveConfig.every
    log_every: int = LogConfig.every

    def choose(self, tasks: tuple[str, ...]) -> tuple[str, ...]:
        """The tasks of a study that this scale runs, in the study's order."""
        order = [*(t for t in self.prefers if t in tasks), *tasks]
        chosen = list(dict.fromkeys(order))[: self.most_tasks]
        return tuple(task for task in tasks if task in chosen)


SCALES: dict[str, Scale] = {
    "smoke": Scale(
        says="minutes: shows that everything runs, decides nothing",
        preset="lite",
        steps=400,
        seeds=(0, 1),
        most_tasks=1,
        prefers=("Hopper-v5", "Walker2d-v5"),
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
        most_tasks=2,
        prefers=("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5"),
        save_every=10_000,
    ),
    "paper": Scale(
        says="the paper's: a million steps, all its tasks, its network sizes",
        preset="paper",
        steps=1_000_000,
        seeds=(0, 1, 2),
        most_tasks=5,
    ),
}


@dataclass(frozen=True)
class Setting:
    """A row of a table: its name, a pair, and what is changed of the critic's preset."""

    key: str
    """Its name in `paper.RETURNS` and in claims."""
    actor: str
    critic: str
    changes: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    """In place of the scale's."""

    def config(self, task: str, scale: Scale, seed: int, out: Path) -> RunConfig:
        """The run of this setting on one task."""
        preset = self.preset or scale.preset
        base = resolve(task, self.actor, self.critic, preset)
        slug = "" if self.key == f"{self.actor}+{self.critic}" else f"-{slug_of(self.key)}"
        return replace(
            base,
            critic=replace(base.critic, **self.changes),
            steps=scale.steps,
            seed=seed,
            out=out,
            name=f"{self.actor}-{self.critic}-{preset}{slug}",
            train=replace(base.train, warmup=scale.warmup),
            eval=replace(base.eval, every=scale.eval_every, episodes=scale.eval_episodes),
            save=replace(base.save, every=scale.save_every),
            log=replace(base.log, every=scale.log_every),
        )


def pairs(*names: str) -> tuple[Setting, ...]:
    """Settings that are a pair's own preset, e.g. sac+dbc."""
    split = [(name, name.partition("+")) for name in names]
    return tuple(Setting(name, actor, critic) for name, (actor, _, critic) in split)


def dbc(key: str, **changes: Any) -> Setting:
    """DBC under SAC with something changed."""
    return Setting(key, "sac", "dbc", changes)


def slug_of(text: str) -> str:
    """A label as part of a folder's name."""
    return (
        "".join(c if c.isalnum() or c == "." else "-" for c in text).strip("-").replace("---", "-")
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
    def jobs(
        self, scale: str, out: Path, seeds: tuple[int, ...] | None = None, device: str = "cpu"
    ) -> list[Job]:
        """What must be run; results lie under `out`, and trainings use the device."""

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

    def jobs(
        self, scale: str, out: Path, seeds: tuple[int, ...] | None = None, device: str = "cpu"
    ) -> list[Job]:
        """A run per task, setting and seed; equal settings of other studies share its folder."""
        size = SCALES[scale]
        jobs: list[Job] = []
        for seed, task in product(seeds or size.seeds, size.choose(self.tasks)):
            for setting in self.settings:
                config = setting.config(task, size, seed, out / scale / "runs")
                train = replace(config.train, device=device)
                jobs.append(train_job(setting.key, replace(config, train=train)))
        return jobs

    def paper_cells(self) -> Cells:
        return {
            (setting, task): Cell(*score, paper.SEEDS)
            for setting, row in paper.RETURNS.items()
            for task, score in zip(paper.TASKS, row.scores, strict=True)
        }

    def printed(self, table: str, setting: str, task: str) -> paper.Score | None:
        return paper.printed(table, setting, task)


@dataclass(frozen=True)
class LeagueStudy(Study):
    """Critics that learn known distributions, problem by problem."""

    settings: tuple[Setting, ...]
    tasks: tuple[str, ...]

    measures: ClassVar[dict[str, Measure]] = {
        "w1": Measure("W1", "distance between the learned and the true distribution"),
        "crps": Measure("CRPS", "what the learned distribution scores above the true one"),
        "mean_error": Measure("mean error", "distance of the means"),
    }
    figure: ClassVar[Figure] = Figure(
        "Learned quantiles", "quantile level, %", "return", "Mean over seeds."
    )

    def jobs(
        self, scale: str, out: Path, seeds: tuple[int, ...] | None = None, device: str = "cpu"
    ) -> list[Job]:
        """A critic per task, setting and seed; only `smoke` is shorter than the league's own."""
        updates = 5 if scale == "smoke" else LeagueCell.updates
        jobs: list[Job] = []
        for seed, task in product(seeds or SCALES[scale].seeds, self.tasks):
            for setting in self.settings:
                base = resolve("league", critic=setting.critic, preset=setting.preset or "lite")
                critic = replace(base.critic, **setting.changes)
                cell = LeagueCell(task, setting.critic, critic, seed, updates)
                folder = out / scale / "league" / task / slug_of(setting.key) / f"seed{seed}"
                jobs.append(league_job(setting.key, cell, folder))
        return jobs
