"""The verbs `train` and `check-env`."""

import contextlib
import inspect
import json
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Self, cast

import tyro

from bridgerl.actors import ACTORS
from bridgerl.cli.flags import HELP, flags_of, parse, take
from bridgerl.config import ENVIRONMENT, RunConfig
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.presets import PRESETS, environments, resolve
from bridgerl.training.loop import Stopped, train
from bridgerl.training.probe import check_env
from bridgerl.training.recipe import Recipe


@dataclass(frozen=True)
class Train:
    """Train a run, or resume it.

    The same command again resumes an unfinished run.

    Example: bridgerl train --env Hopper-v5 --actor sac --critic dbc --seed 1
    """

    config: RunConfig
    quiet: bool

    @classmethod
    def read(cls, args: list[str]) -> Self:
        """Two passes: names pick the config classes, then every field of theirs is a flag."""
        picks = {"--env": "", "--actor": "sac", "--critic": "dbc", "--preset": "lite"}
        rest = take([word for word in args if word != "--quiet"], picks)
        if not picks["--env"]:
            if not HELP & set(rest):
                raise UserError("train needs --env, e.g. --env Hopper-v5 (see bridgerl list)")
            picks["--env"] = environments()[0]
        default = _shortened(resolve(*picks.values()), rest)
        if HELP & set(rest):  # It has no default, whatever the others are shown for.
            default = replace(default, env=cast(str, tyro.MISSING))
        known = [*picks, "--quiet", *flags_of(default)]
        options = {"default": default, "description": _description()}
        return cls(parse(RunConfig, rest, "train", known, **options), "--quiet" in args)

    def __call__(self) -> int:
        """Train; after a signal say so, and exit with 128 + its number."""
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
    if typed["--steps"].isdecimal() and int(typed["--steps"]) <= default.warmup:
        return replace(default, train=replace(default.train, warmup=None))
    return default


def _description() -> str:
    actors, critics, presets = (",".join(names) for names in (ACTORS, CRITICS, PRESETS))
    return f"""{inspect.cleandoc(Train.__doc__ or "")}

Besides the flags below:
--actor {{{actors}}}: what acts; its settings are --actor.* (default: sac)
--critic {{{critics}}}: what values actions; its settings are --critic.* (default: dbc)
--preset {{{presets}}}: where all defaults come from (default: lite)
--quiet: print nothing but warnings and errors"""


@dataclass(frozen=True)
class CheckEnv:
    """Tell whether an environment can be trained on, and resumed exactly.

    Example: bridgerl check-env Hopper-v5
    """

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0."""
    env_kwargs: str | None = None
    """Its keyword arguments as JSON."""
    env_wrappers: tuple[str, ...] = ()
    """Wrappers, inner ones first."""
    env_time_limit: int | None = None
    """Steps after which an episode is cut off."""
    env_frame_skip: int = 1
    """Steps for which one action holds."""
    env_factory: str | None = None
    """Function that makes it, my_module:make_env."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when the environment is fit, 2 or 3 with the reason."""
        given = {name: getattr(self, name) for name in ENVIRONMENT}
        facts = check_env(Recipe.of(replace(resolve(self.env), **given)))
        text = f"{self.env} is fit: {facts['obs_dim']} observations, {facts['action_dim']} actions"
        text += ", resumes exactly" if facts["reproducible"] else ", but does not resume exactly"
        text += ": it remembers earlier episodes" if facts["remembers"] else ""
        if facts["time_limit"] is None:
            text += "; no time limit is known, --eval.max-steps ends evaluation episodes"
        print(json.dumps(facts) if self.json else text)
        return 0
