"""One piece of a study: something that runs in a process of its own and can be taken up again.

A job travels as JSON; its folder tells whether it is done and how far it is.
"""

import contextlib
import json
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from bridgerl.cli.flags import PROGRAM
from bridgerl.cli.truth import Toy
from bridgerl.config import RunConfig, decode, decode_fields, encode
from bridgerl.errors import BridgeError
from bridgerl.plots import check_plotting
from bridgerl.presets import resolve
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.training.loop import train
from bridgerl.truth.toy import ToyConfig

LAW = "law with three modes"
"""The task of the toy."""


class Job(ABC):
    """A piece of work with a name, a folder and the command that repeats it."""

    kind: ClassVar[str]
    setting: str
    """The row of the table it belongs to."""

    @property
    @abstractmethod
    def task(self) -> str:
        """The column of the table it belongs to."""

    @property
    @abstractmethod
    def seed(self) -> int:
        """Seed of everything random."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What lists show."""

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where its results lie."""

    @property
    @abstractmethod
    def command(self) -> str:
        """What to type to run it alone."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """How much there is to do."""

    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_done_in(self.folder)

    @abstractmethod
    def is_done_in(self, folder: Path) -> bool:
        """Whether a folder holds the results of this very job, all of them."""

    @abstractmethod
    def progress(self) -> int:
        """Steps done so far, as far as the folder tells."""

    def check(self) -> None:
        """Refuse what the job would fail for as soon as it began."""
        return

    @abstractmethod
    def run(self) -> None:
        """Do it, or what is left of it."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The job as data."""


@dataclass(frozen=True)
class TrainJob(Job):
    """A training run."""

    kind: ClassVar[str] = "train"
    setting: str
    config: RunConfig

    @property
    def task(self) -> str:
        """The environment."""
        return self.config.env

    @property
    def seed(self) -> int:
        """The run's."""
        return self.config.seed

    @property
    def name(self) -> str:
        """Task, setting and seed."""
        return f"{self.task}/{self.setting}/seed{self.config.seed}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.config.folder

    @property
    def command(self) -> str:
        """The same run by `train`."""
        return command_of(self.config)

    @property
    def steps(self) -> int:
        """Environment steps."""
        return self.config.steps

    def is_done_in(self, folder: Path) -> bool:
        """Whether this very run ended with all its steps; `train` refuses another's folder."""
        return RunFolder(folder).is_done(self.config)

    def progress(self) -> int:
        """The step of the last line of timing.jsonl."""
        return RunFolder(self.folder).progress()

    def run(self) -> None:
        """Train, or resume."""
        train(self.config, quiet=True)

    def to_json(self) -> dict[str, Any]:
        """The config as config.json has it."""
        return {"kind": self.kind, "setting": self.setting, "config": encode(self.config)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TrainJob":
        """Read it back."""
        return cls(data["setting"], decode(data["config"]))


@dataclass(frozen=True)
class ToyJob(Job):
    """The degradation toy of one critic and one seed."""

    kind: ClassVar[str] = "toy"
    setting: str
    toy: Toy

    @property
    def task(self) -> str:
        """There is but one."""
        return LAW

    @property
    def seed(self) -> int:
        """The only one."""
        return self.toy.seeds[0]

    @property
    def name(self) -> str:
        """Critic and seed."""
        return f"toy/{self.setting}/seed{self.toy.seeds[0]}"

    @property
    def folder(self) -> Path:
        """Where toy.json lies."""
        return self.toy.out

    @property
    def command(self) -> str:
        """The same by `toy`."""
        words = [f"{PROGRAM} toy"]
        for field in fields(self.toy):
            value = getattr(self.toy, field.name)
            if value != field.default:
                words.append(_flag(field.name, value))
        return " ".join(words)

    @property
    def steps(self) -> int:
        """Updates."""
        return self.toy.updates

    def is_done_in(self, folder: Path) -> bool:
        """Whether the result of these settings is written."""
        wanted = {f.name: getattr(self.toy, f.name) for f in fields(ToyConfig)}
        with contextlib.suppress(BridgeError, OSError, KeyError, IndexError, TypeError):
            result = store.parse_json(store.read_json_bytes(folder / "toy.json"), "toy.json")
            whole = len(result["runs"][0]["iterations"]) == self.toy.iterations + 1
            return whole and result["config"] == json.loads(json.dumps(wanted))
        return False

    def progress(self) -> int:
        """All or nothing: a run takes a minute or two."""
        return self.steps if self.done() else 0

    def check(self) -> None:
        """Refuse when the picture could not be drawn."""
        if self.toy.plot:
            check_plotting()

    def run(self) -> None:
        """Run it, its table into a file, unless another study has just done so."""
        store.make_folder(self.folder)
        lock = RunFolder(self.folder).lock()
        try:
            if self.done():
                return
            with (self.folder / "toy.txt").open("w") as file, contextlib.redirect_stdout(file):
                self.toy()
        finally:
            lock.release()

    def to_json(self) -> dict[str, Any]:
        """The fields of the command."""
        toy = {f.name: getattr(self.toy, f.name) for f in fields(self.toy)}
        return {"kind": self.kind, "setting": self.setting, "toy": toy | {"out": str(self.toy.out)}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ToyJob":
        """Read it back."""
        return cls(data["setting"], decode_fields(Toy, data["toy"], "toy"))


KINDS: dict[str, type[TrainJob] | type[ToyJob]] = {j.kind: j for j in (TrainJob, ToyJob)}


def read_job(text: str) -> Job:
    """A job from its JSON."""
    return job_from(json.loads(text))


def job_from(data: dict[str, Any]) -> Job:
    """A job from its data."""
    return KINDS[data["kind"]].from_json(data)


def write_job(job: Job) -> str:
    """A job as JSON."""
    return json.dumps(job.to_json())


def command_of(config: RunConfig) -> str:
    """The command that trains this run: what differs from the preset, as flags."""
    now = encode(config)
    actor, critic = config.actor_name, config.critic_name
    base = encode(resolve(config.env, actor, critic, config.preset))
    words = [f"{PROGRAM} train --env {shlex.quote(config.env)} --actor {actor} --critic {critic}"]
    words += [] if config.preset == "lite" else [f"--preset {config.preset}"]
    for key, value in now.items():
        if isinstance(value, dict):
            for name, inner in value.items():
                if name != "type" and inner != base[key][name]:
                    words.append(_flag(f"{key}.{name}", inner))
        elif key not in ("env", "preset") and value != base[key]:
            words.append(_flag(key, value))
    return " ".join(words)


def _flag(name: str, value: Any) -> str:
    """A field as it is typed."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        section, dot, last = flag.rpartition(".")
        return f"--{section}{dot}{'' if value else 'no-'}{last}"
    values = value if isinstance(value, list | tuple) else [value]
    return f"--{flag} " + " ".join(shlex.quote(str(v)) for v in values)


def last_step(path: Path) -> int:
    """The step of a log's last whole line; 0 if there is none."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        for line in last_lines(path, 4096):
            return int(json.loads(line)["step"])
    return 0


def last_lines(path: Path, size: int) -> list[bytes]:
    """The whole lines among a log's last bytes, the newest first."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - size))
        return [line for line in reversed(file.read().split(b"\n")[:-1]) if line]
    return []
