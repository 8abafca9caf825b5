"""The verbs `train` and `check-env`."""

import contextlib
import inspect
import json
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import tyro

from bridgerl.actors import ACTORS
from bridgerl.cli.flags import HELP, flags_of, parse, take, take_several
from bridgerl.config import ENVIRONMENT, RunConfig
from bridgerl.critics import CRITICS
from bridgerl.envs.probe import check_env
from bridgerl.envs.recipe import Recipe
from bridgerl.errors import UserError, require
from bridgerl.presets import PRESETS, environments, resolve
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.trust import import_module, require_trusted
from bridgerl.training.loop import Stopped, train

PICKS = {"--env": "", "--actor": "sac", "--critic": "dbc", "--preset": "lite"}
"""What decides which flags there are, with defaults."""
OWN = ("--quiet", "--seeds", "--workers", "--resume", "--trust-env")
"""What is no setting of a run."""


@dataclass(frozen=True)
class Train:
    """Train a run, or resume it.

    The same command again resumes an unfinished run.

    Example: bridgerl train --env Hopper-v5 --actor sac --critic dbc --seed 1
    """

    config: RunConfig
    quiet: bool = False
    seeds: tuple[int, ...] | None = None
    workers: int = 1

    @classmethod
    def read(cls, args: list[str]) -> Self:
        """What is no setting of a run comes out first."""
        rest, words = take_several([word for word in args if word != "--quiet"], "--seeds")
        own = {"--workers": "", "--resume": "", "--trust-env": ""}
        rest, quiet = take(rest, own), "--quiet" in args
        if own["--resume"]:
            require(words is None, "resume", own["--resume"], "is one run; leave --seeds out")
            config = _resumed(Path(own["--resume"]), rest, own["--trust-env"])
        else:
            odd = own["--trust-env"]
            require(not odd, "trust-env", odd, "belongs to --resume RUN")
            config = read_config(rest)
        if words is None:
            odd = own["--workers"]
            require(not odd, "workers", odd, "belongs to --seeds 0 1 2")
            return cls(config, quiet)
        clash = any(word.partition("=")[0] == "--seed" for word in rest)
        require(not clash, "seeds", " ".join(words), "cannot stand beside --seed")
        seeds = tuple(_whole("--seeds", word) for word in words)
        return cls(config, quiet, seeds, _whole("--workers", own["--workers"] or "1"))

    def __call__(self) -> int:
        """Train; after a signal say so, and exit with 128 + its number."""
        if self.seeds is not None:
            from bridgerl.cli.campaign import train_seeds  # One run needs no pool.

            return train_seeds(self.config, self.seeds, self.workers, quiet=self.quiet)
        try:
            train(self.config, quiet=self.quiet)
        except Stopped as stop:
            print(f"bridgerl: {stop}", file=sys.stderr)
            return stop.exit_code
        return 0


def _shortened(default: RunConfig, words: list[str]) -> RunConfig:
    """The defaults of a run of as many steps as are typed: a preset's warm-up must fit in them."""
    typed = {"--steps": ""}
    with contextlib.suppress(UserError):
        take(words, typed)
    if re.fullmatch(r"\d{1,9}", typed["--steps"]) and int(typed["--steps"]) <= default.warmup:
        return default.changed(train={"warmup": None})
    return default


def read_config(args: list[str]) -> RunConfig:
    """Two passes: names pick the config classes, then every field of theirs is a flag."""
    picks = dict(PICKS)
    rest = take(args, picks)
    if HELP & set(rest):
        default = _Help(**vars(resolve(picks.pop("--env") or environments()[0], *picks.values())))
        parse(_Help, rest, "train", default=default, description=_description())
    if not picks["--env"]:
        raise UserError("train needs --env, e.g. --env Hopper-v5 (see bridgerl list)")
    default = _shortened(resolve(*picks.values()), rest)
    return parse(RunConfig, rest, "train", [*OWN, *picks, *flags_of(default)], default=default)


def _resumed(run: Path, args: list[str], trusted: str) -> RunConfig:
    """The config of a run folder, with what the command line changes of it."""
    for flag in (word.partition("=")[0] for word in args):
        fixed = flag in (*PICKS, "--seed", "--out", "--name")
        require(not fixed, "resume", str(run), f"knows {flag} of its own; leave that out")
    default = RunFolder(run).read_config()
    if trusted:
        import_module(trusted)
    require_trusted(default, run)
    path = Path(os.path.abspath(run))
    near = Path(os.path.relpath(path.parents[2]))
    default = replace(default, out=path.parents[2] if ".." in near.parts else near)
    renamed = replace(default, name=path.parent.name)  # Its setting was given another name.
    fits = [each for each in (default, renamed) if each.folder.absolute() == path]
    if not fits:
        inside = default.folder.relative_to(default.out)
        raise UserError(f"{run} must be at {inside} of some folder to go on; move it there")
    default = fits[0]
    return parse(RunConfig, args, "train", flags_of(default), default=default)


def _whole(flag: str, word: str) -> int:
    if not word.isdecimal():
        raise UserError(f"{flag} takes whole numbers, got {word!r}")
    return int(word)


@dataclass(frozen=True)
class _Help(RunConfig):
    """The flags as help shows them: a task has no default, a preset is told of above."""

    env: Annotated[str, tyro.conf.arg(help_behavior_hint="(required)")]
    """Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0."""
    preset: Annotated[str, tyro.conf.Suppress] = "lite"


def _description() -> str:
    actors, critics, presets = (",".join(names) for names in (ACTORS, CRITICS, PRESETS))
    return f"""{inspect.cleandoc(Train.__doc__ or "")}

Besides the flags below:
--actor {{{actors}}}: what acts; its settings are --actor.* (default: sac)
--critic {{{critics}}}: what values actions; its settings are --critic.* (default: dbc)
--preset {{{presets}}}: where all defaults come from (default: lite)
--seeds INT ...: a run for each, --workers INT of them at a time (default: 1)
--resume RUN: go on with a run folder under its own settings; --steps N makes it longer, and
  --trust-env MODULE imports the environment of a run of my_module:MyEnv-v0
--quiet: print nothing but warnings and errors"""


@dataclass(frozen=True)
class CheckEnv:
    """Tell whether an environment can be trained on, and resumed exactly.

    Example: bridgerl check-env Hopper-v5
    """

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0."""
    env_kwargs: str | None = None
    """Keyword arguments of the environment, as JSON."""
    env_wrappers: tuple[str, ...] = ()
    """Wrappers of the environment, inner ones first."""
    env_time_limit: int | None = None
    """Steps after which an episode is cut off, in place of the environment's own limit."""
    env_frame_skip: int = 1
    """Steps of the environment for which one action holds."""
    env_factory: str | None = None
    """Function that makes the environment, my_module:make_env."""
    env_timeout: float | None = None
    """Seconds after which a reset or step of the environment that has not returned is a fault."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when the environment is fit, 2 or 3 with the reason."""
        given = {name: getattr(self, name) for name in (*ENVIRONMENT, "env_timeout")}
        config = replace(resolve(self.env), **given)
        facts = check_env(Recipe.of(config), timeout=config.env_timeout)
        sizes = f"observations of {facts['obs_dim']} numbers, actions of {facts['action_dim']}"
        text = f"{self.env} is fit: {sizes}"
        text += ", resumes exactly" if facts["reproducible"] else ", but does not resume exactly"
        text += ": it remembers earlier episodes" if facts["remembers"] else ""
        if facts["time_limit"] is None:
            text += "; no time limit is known, --eval.max-steps ends evaluation episodes"
        print(json.dumps(facts) if self.json else text)
        return 0
