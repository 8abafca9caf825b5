"""Settings that differ by flags: `critic.lr=1e-4,1e-3` or `train.n-step=1..5` as lists of words."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bridgerl.cli.flags import negated, refuse_odd_words
from bridgerl.cli.train import read_config
from bridgerl.config import RunConfig
from bridgerl.errors import UserError, require, require_seeds, require_some
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.studies.base import slug_of
from bridgerl.studies.jobs import Job, train_job
from bridgerl.studies.run.tuning import Space

MOST_VALUES = 1000
LONGEST_NAME = 64
"""Characters of a folder of runs."""
_RANGE = re.compile(r"([^.,][^,]*?)\.\.([^,]+?)(?::(\d+)(:log)?)?")
_SPAN = re.compile(r"([^.,][^,]*?)\.\.([^,:]+)(:log)?")
# Not those inside of {...} or [...], as in JSON.
_COMMA = re.compile(r",(?![^{]*\})(?![^\[]*\])")


class Axis(NamedTuple):
    """A flag without its dashes, and the values it takes."""

    key: str
    values: tuple[str, ...]


def read_axis(text: str, flag: str = "vary") -> Axis:
    """`KEY=A,B,C`, `KEY=1..5` (whole numbers), `KEY=LOW..HIGH:N` or `KEY=LOW..HIGH:N:log`."""
    key, values = split_axis(text, flag)
    found = _RANGE.fullmatch(values)
    plain = tuple(value.strip() for value in _COMMA.split(values))
    listed = _steps(text, found, flag) if found else plain
    require(all(listed), flag, text, "has an empty value")
    require_some(flag, listed)
    return Axis(key, listed)


def split_axis(text: str, flag: str) -> tuple[str, str]:
    """The flag's name, as it is typed after its dashes, and what stands behind the `=`."""
    key, _, values = text.partition("=")
    key = key.strip().removeprefix("--").replace("_", "-")
    ok = key and values.strip() and not key.startswith("-")
    require(bool(ok), flag, text, "must be like critic.lr=1e-4,1e-3 or train.n-step=1..5")
    own = {"seed": "--seeds 0 1 2", "out": "--out", "name": "--name"}
    require(key not in own, flag, text, f"varies settings, and {key} is none; use {own.get(key)}")
    return key, values.strip()


def read_space(text: str) -> Space:
    """`KEY=A,B,C`, or `KEY=LOW..HIGH` and `KEY=LOW..HIGH:log`: whole numbers if both ends are."""
    key, values = split_axis(text, "search")
    found = _SPAN.fullmatch(values)
    if found is None:
        return Space(key, read_axis(text, "search").values)
    whole = all(re.fullmatch(r"-?\d+", end) for end in found.group(1, 2))
    try:
        low, high = float(found[1]), float(found[2])
    except ValueError:
        raise UserError(
            f"--search {text} needs two numbers, e.g. critic.lr=1e-4..1e-2:log"
        ) from None
    log = found[3] is not None
    require(-np.inf < low < high < np.inf, "search", text, "must rise from one number to another")
    require(not log or low > 0, "search", text, "needs positive ends on a log scale")
    return Space(key, (), low, high, log, whole)


def _steps(text: str, found: re.Match[str], flag: str) -> tuple[str, ...]:
    low, high, count, log = found.groups()
    try:
        if count is None:
            first, last = int(low), int(high)
            require(first < last < first + MOST_VALUES, flag, text, "must rise, by less than 1000")
            return tuple(str(value) for value in range(first, last + 1))
        ends = float(low), float(high)
        require(2 <= int(count) <= MOST_VALUES, flag, text, "needs from 2 to 1000 values")
        require(not log or min(ends) > 0, flag, text, "needs positive ends on a log scale")
        spaced = np.geomspace(*ends, int(count)) if log else np.linspace(*ends, int(count))
        return tuple(f"{value:.6g}" for value in spaced)
    except ValueError:
        example = "1e-4..1e-2:5:log" if flag == "vary" else "1e-4..1e-2:log"
        hint = f"needs whole numbers, or a range like critic.lr={example}"
        raise UserError(f"--{flag} {hint}, got {text!r}") from None


def words_of(key: str, value: str) -> list[str]:
    """A value as it is typed after `train`: a switch has none, a list of widths several."""
    if value.lower() in ("true", "false"):
        return [f"--{key}" if value.lower() == "true" else negated(f"--{key}")]
    return [f"--{key}", *([value] if value[0] in "{[" else value.split())]


def config_of(flags: tuple[str, ...], chosen: dict[str, str]) -> RunConfig:
    """The run of flags that all share and of values chosen for some."""
    words = [*flags, *(word for key, value in chosen.items() for word in words_of(key, value))]
    refuse_odd_words(words)
    if any(word.partition("=")[0] == "--seed" for word in words):
        raise UserError("--seed is one run's; use --seeds 0 1 2")
    config = read_config(words)
    require(config.train.threads > 0, "train.threads", 0, "must be a number where runs share cores")
    return config


def setting_of(chosen: dict[str, str]) -> str:
    """What tables call a choice; a task has a column of its own."""
    return " ".join(f"{key}={value}" for key, value in chosen.items() if key != "env")


def folder_name(setting: str) -> str | None:
    """A setting as the name of its folder: short, and another for every other setting."""
    name = slug_of(setting)
    if len(name) > LONGEST_NAME:
        mark = store.sha256(setting.encode())[:8]
        name = f"{name[: LONGEST_NAME - 9].rstrip('-._')}-{mark}"
    return name or None


def jobs_of(
    config: RunConfig, setting: str, out: Path, seeds: tuple[int, ...], device: str = "cpu"
) -> list[Job]:
    """The runs of one setting, a seed each, below a folder."""
    require_some("seeds", seeds)
    require_seeds("seeds", *seeds)
    train = {"device": device} if device != "cpu" else {}
    config = config.changed(out=out, name=folder_name(setting), train=train)
    label = setting or f"{config.actor_name}+{config.critic_name}"
    return [train_job(label, replace(config, seed=seed)) for seed in seeds]


def refuse_mixtures(jobs: list[Job], hint: str) -> None:
    """Refuse folders that two settings would share, or that hold runs of other settings."""
    folders: dict[Path, Job] = {}
    for job in jobs:
        first = folders.setdefault(job.folder, job)
        if first is not job:
            raise UserError(f"{first.name} and {job.name} are of one name, {job.folder}")
        run = RunFolder(job.folder)
        if run.config_file.exists() and not run.holds(job.work):
            raise UserError(f"{job.folder} holds a run with other flags; {hint}")
