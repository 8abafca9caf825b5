"""One piece of a study as data: it travels as JSON, and its folder tells whether it is done."""

import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridgerl.actors import ACTORS, ActorConfig
from bridgerl.config import RunConfig, decode_fields, encode
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import BridgeError, choose
from bridgerl.presets import command_of, flags
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.result import RESULT, read_result
from bridgerl.truth.settings import (
    EndpointConfig,
    EvaluationCell,
    GambleCell,
    LeagueCell,
    PolicyData,
    ToyConfig,
    league_config,
)

TOY, ENDPOINT = "toy", "endpoint error"
"""The tasks of jobs that have but one."""


@dataclass(frozen=True)
class Job:
    """A piece of work with a name, a folder and the command that repeats it."""

    kind: str
    """train, toy, league, evaluation, gamble or endpoint; `studies.run.work` runs each."""
    setting: str
    task: str
    """The task; together with the setting it names a cell of a table."""
    seed: int | None
    folder: Path
    steps: int
    command: str
    """What to type to run it alone."""
    work: dict = field(hash=False)
    """All that decides its result, as JSON."""

    @property
    def name(self) -> str:
        return f"{self.task}/{self.setting}" + ("" if self.seed is None else f"/seed{self.seed}")

    @property
    def trains(self) -> bool:
        """Whether it is a training, which gets a process of its own and leaves checkpoints."""
        return self.kind == "train"

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.work}

    def done(self) -> bool:
        return self.is_done_in(self.folder)

    def is_done_in(self, folder: Path) -> bool:
        """Whether a folder holds the results of this very job, all of them."""
        with suppress(BridgeError, OSError, LookupError, TypeError, ValueError, AttributeError):
            if self.trains:
                return RunFolder(folder).is_done(self.work)
            return read_result(folder / RESULT).job == self.identity
        return False

    def progress(self) -> int:
        """Steps done so far, as far as the folder tells; other jobs take a minute or two."""
        if self.trains:
            return RunFolder(self.folder).progress()
        return self.steps if self.done() else 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"folder": str(self.folder)}


def job_from(data: dict[str, Any]) -> Job:
    """A job from its JSON values."""
    return decode_fields(Job, data, "job")


def train_job(setting: str, config: RunConfig) -> Job:
    """A job that trains one agent."""
    where, command = (config.env, config.seed, config.folder), command_of(config)
    return Job("train", setting, *where, config.steps, command, store.plain(encode(config)))


def toy_job(setting: str, config: ToyConfig, folder: Path) -> Job:
    """The degradation toy of one critic and one seed."""
    work, (seed,) = asdict(config), config.seeds
    words = ["bridgerl toy", *flags(work, asdict(ToyConfig())), "--out", shlex.quote(str(folder))]
    return Job(
        "toy", setting, TOY, seed, folder, config.updates, " ".join(words), store.plain(work)
    )


def league_job(setting: str, cell: LeagueCell, folder: Path, mark: dict | None = None) -> Job:
    """A critic that learns a known distribution; a mark ties it to a machine and its versions."""
    base = league_config(cell.critic).critic
    entrant = " ".join([f"{setting} = {cell.critic}", *flags(asdict(cell.config), asdict(base))])
    command = f"bridgerl league --critics {shlex.quote(entrant)} --tasks {cell.problem}"
    command += f" --seeds {cell.seed} --updates {cell.updates} --batch {cell.batch}"
    work = store.plain(cell.identity() | ({"fingerprint": mark} if mark else {}))
    return Job("league", setting, cell.problem, cell.seed, folder, cell.updates, command, work)


def league_cell(job: Job) -> LeagueCell:
    """The cell of the league that a job asks for."""
    data = {key: value for key, value in job.work.items() if key != "fingerprint"}
    return decode_fields(LeagueCell, data | _critic_of(job), "cell")


def _critic_of(job: Job) -> dict[str, Any]:
    """The name and the config of the critic that learns in a cell."""
    critic = dict(job.work["critic"])
    name = critic.pop("type")
    config: CriticConfig = decode_fields(choose("critic", name, CRITICS), critic, "critic")
    return {"critic": name, "config": config}


def evaluation_job(setting: str, cell: EvaluationCell, folder: Path) -> Job:
    """A critic that learns a frozen policy's returns."""
    work = store.plain(cell.identity())
    name = f"{cell.data.task}/{setting}/seed{cell.seed}"
    command = f"bridgerl reproduce evaluation --seeds {cell.seed} --only {shlex.quote(name)}"
    where = (cell.data.task, cell.seed, folder)
    return Job("evaluation", setting, *where, cell.updates, command, work)


def evaluation_cell(job: Job) -> EvaluationCell:
    """What such a job asks for."""
    policy = decode_fields(PolicyData, job.work["data"], "data")
    data = job.work | _critic_of(job) | {"data": policy}
    return decode_fields(EvaluationCell, data, "cell")


def gamble_job(setting: str, cell: GambleCell, folder: Path) -> Job:
    """An actor and a critic that learn the best action of a gamble."""
    command = f"bridgerl gamble --actors {cell.actor} --critics {cell.critic}"
    command += f" --measures {cell.measure} --seeds {cell.seed} --updates {cell.updates}"
    where, work = (cell.measure, cell.seed, folder), store.plain(cell.identity())
    return Job("gamble", setting, *where, cell.updates, command, work)


def gamble_cell(job: Job) -> GambleCell:
    """What such a job asks for."""
    actor = dict(job.work["actor"])
    name = actor.pop("type")
    policy: ActorConfig = decode_fields(choose("actor", name, ACTORS), actor, "actor")
    data = job.work | _critic_of(job) | {"actor": name, "policy": policy}
    return decode_fields(GambleCell, data, "cell")


def endpoint_job(config: EndpointConfig, folder: Path) -> Job:
    """A job that makes the table of endpoint errors."""
    work, steps = asdict(config), len(config.schedules) * len(config.steps)
    command = " ".join(["bridgerl bridge-error", *flags(work, asdict(EndpointConfig()))])
    return Job("endpoint", "every rule", ENDPOINT, None, folder, steps, command, store.plain(work))
