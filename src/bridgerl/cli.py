"""The command line: verbs, flags, one-line errors, exit codes."""

import contextlib
import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from bridgerl.errors import BridgeError, UserError, choose, nearest

T = TypeVar("T")
PROGRAM = "bridgerl"
Positional = tyro.conf.Positional


@dataclass(frozen=True)
class Evaluate:
    """Play deterministic episodes with a run's best or last weights.

    Example: bridgerl evaluate runs/Hopper-v5/sac-cdq-lite/seed0 --episodes 20
    """

    run: Positional[Path]
    """Run folder."""
    episodes: int = 10
    """Episodes to play."""
    weights: Literal["best", "last"] = "best"
    """Which weights to load."""
    seed: int = 0
    """Seed of the episodes."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Load, play, print."""
        from bridgerl.player import play

        if self.episodes < 1:
            raise UserError(f"episodes must be at least 1, got {self.episodes}")
        result = play(self.run, self.weights, self.episodes, self.seed)
        if self.json:
            print(json.dumps(result))
        else:
            print(
                f"{result['env']}: return {result['mean']:.1f} +- {result['std']:.1f} over "
                f"{self.episodes} episodes ({self.weights} weights, step {result['step']:,})"
            )
        return 0


@dataclass(frozen=True)
class Verify:
    """Check every checksum of a run folder.

    Example: bridgerl verify runs/Hopper-v5/sac-cdq-lite/seed0
    """

    run: Positional[Path]
    """Run folder."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when all is intact, 5 at the first damaged file."""
        from bridgerl.rundir import verify

        checked = verify(self.run)
        print(json.dumps({"intact": checked}) if self.json else f"intact: {', '.join(checked)}")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare two runs byte for byte: metrics, weights, generators, replay.

    Example: bridgerl compare runs/a/seed0 runs/b/seed0
    """

    run_a: Positional[Path]
    """Run folder."""
    run_b: Positional[Path]
    """Run folder."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when equal, 1 when not."""
        from bridgerl.rundir import compare, read_config

        for run in (self.run_a, self.run_b):
            read_config(run)
        difference = compare(self.run_a, self.run_b)
        if self.json:
            print(json.dumps({"equal": difference is None, "difference": difference}))
        else:
            print("equal" if difference is None else f"different: {difference}")
        return 0 if difference is None else 1


@dataclass(frozen=True)
class CheckEnv:
    """Tell whether an environment can be trained on, and resumed exactly.

    Example: bridgerl check-env Hopper-v5
    """

    env: Positional[str]
    """Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when the environment is fit, 2 or 3 with the reason."""
        from bridgerl.player import check_env

        facts = check_env(self.env)
        text = f"{self.env} is fit: {facts['obs_dim']} observations, {facts['action_dim']} actions"
        text += ", resumes exactly" if facts["reproducible"] else ", but does not resume exactly"
        print(json.dumps(facts) if self.json else text)
        return 0


@dataclass(frozen=True)
class Listing:
    """List actors, critics, presets and environments with a preset.

    Example: bridgerl list
    """

    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Print the registries."""
        from bridgerl.actors import ACTORS
        from bridgerl.critics import CRITICS
        from bridgerl.presets import ENVS, PRESETS

        tables = {
            "actors": {k: (v.__doc__ or "").splitlines()[0] for k, v in ACTORS.items()},
            "critics": {k: (v.__doc__ or "").splitlines()[0] for k, v in CRITICS.items()},
            "presets": dict.fromkeys(PRESETS, ""),
            "environments": dict.fromkeys(ENVS, ""),
        }
        if self.json:
            print(json.dumps({k: list(v) for k, v in tables.items()}))
            return 0
        grid = Table(show_header=False, box=None, padding=(0, 2))
        for kind, rows in tables.items():
            for i, (name, text) in enumerate(rows.items()):
                grid.add_row("" if i else kind, name, text)
        Console(highlight=False).print(grid)
        return 0


@dataclass(frozen=True)
class Bench:
    """Measure steps per second, side by side with Stable-Baselines3 when it is installed.

    Example: bridgerl bench --env HalfCheetah-v5 --actor sac
    """

    env: str = "HalfCheetah-v5"
    """Environment to step."""
    actor: Literal["sac", "td3"] = "sac"
    """Actor; the critic is CDQ, both 2 x 256, as Stable-Baselines3 has them."""
    steps: int = 1000
    """Steps with updates per repetition."""
    repeats: int = 3
    """Interleaved repetitions; medians are reported."""
    threads: int = 1
    """CPU threads."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Measure and print a table."""
        from bridgerl.bench import bench, show

        for name in ("steps", "repeats", "threads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        result = bench(self.env, self.actor, self.steps, self.repeats, self.threads)
        print(json.dumps(result)) if self.json else show(result)
        return 0


VERBS: dict[str, Any] = {
    "train": None,  # Its flags depend on --actor and --critic, see `_train`.
    "evaluate": Evaluate,
    "bench": Bench,
    "verify": Verify,
    "compare": Compare,
    "check-env": CheckEnv,
    "list": Listing,
}
TRAIN_HELP = """Train a run, or resume it.

The same command again resumes an unfinished run.
Example: bridgerl train --env Hopper-v5 --actor sac --critic cdq --seed 1"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    from bridgerl.trainer import Stopped

    args = sys.argv[1:] if args is None else list(args)
    try:
        return _dispatch(list(args))
    except Stopped as stop:
        print(f"{PROGRAM}: {stop}", file=sys.stderr)
        return stop.exit_code
    except BridgeError as error:
        text = " ".join(str(error).split())
        print(f"{PROGRAM}: error: {text}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return 141


def _dispatch(args: list[str]) -> int:
    from bridgerl import __version__

    if not args or args[0] in ("-h", "--help", "help"):
        _print_overview()
        return 0
    verb, rest = args[0], args[1:]
    if verb == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    choose("command", verb, VERBS)
    if verb == "train":
        return _train(rest)
    return _parse(VERBS[verb], rest, verb)()


def _print_overview() -> None:
    grid = Table(show_header=False, box=None, padding=(0, 2))
    for verb, cls in VERBS.items():
        text = TRAIN_HELP if cls is None else cls.__doc__
        grid.add_row(verb, text.splitlines()[0])
    console = Console(highlight=False)
    console.print(f"usage: {PROGRAM} COMMAND [flags]; {PROGRAM} COMMAND --help tells more\n")
    console.print(grid)


def _train(args: list[str]) -> int:
    """Two passes: names pick the config classes, then every field of theirs is a flag."""
    from bridgerl.presets import resolve
    from bridgerl.trainer import train

    picks = {"actor": "sac", "critic": "cdq", "preset": "lite", "env": ""}
    rest: list[str] = []
    words = iter(args)
    quiet = False
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--")
        if flag.startswith("--") and name in picks:
            picks[name] = value if equals else _value_of(flag, words)
        elif word == "--quiet":
            quiet = True
        else:
            rest.append(word)
    _refuse_repeated(args)
    wants_help = bool({"-h", "--help"} & set(rest))
    if not picks["env"]:
        if not wants_help:
            raise UserError("train needs --env, e.g. --env Hopper-v5; see `bridgerl list`")
        picks["env"] = "Hopper-v5"
    default = resolve(picks["env"], picks["actor"], picks["critic"], picks["preset"])
    config = _parse(type(default), rest, "train", default=default)
    train(config, quiet=quiet)
    return 0


def _value_of(flag: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None or value.startswith("--"):
        raise UserError(f"{flag} needs a value")
    return value


def _refuse_repeated(args: list[str]) -> None:
    flags = [a.partition("=")[0] for a in args if re.match(r"--[a-z]", a)]
    for flag in flags:
        if flags.count(flag) > 1:
            raise UserError(f"{flag} is given more than once")


def _parse(kind: Callable[..., T] | type[T], args: list[str], verb: str, default: Any = None) -> T:
    """Tyro's flags for a dataclass, its boxed errors turned into one line."""
    _refuse_repeated(args)
    extra = {} if default is None else {"default": default}
    caught = io.StringIO()
    try:
        with contextlib.redirect_stderr(caught):
            config, unknown = tyro.cli(
                kind,
                prog=f"{PROGRAM} {verb}",
                args=args,
                return_unknown_args=True,
                **extra,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(f"{_one_line(caught.getvalue())} (see {PROGRAM} {verb} --help)") from None
    if unknown:
        known = _flags(kind if default is None else type(default), default)
        raise UserError(
            f"unknown argument {unknown[0]!r}{nearest(unknown[0], known)} "
            f"(see {PROGRAM} {verb} --help)"
        )
    return config


def _one_line(box: str) -> str:
    """The message inside one of tyro's boxes."""
    lines = [re.sub(r"[│╭╮╰╯─]", " ", line).strip() for line in box.splitlines()]
    body = [line for line in lines if line and not line.startswith("Parsing error")]
    text = " ".join(body)
    return re.split(r"For full helptext|Argument helptext", text)[0].strip()


def _flags(cls: Any, value: Any, prefix: str = "--") -> list[str]:
    names: list[str] = []
    for f in dataclasses.fields(cls):
        name = prefix + f.name.replace("_", "-")
        inner = getattr(value, f.name, None)
        nested = dataclasses.is_dataclass(inner)
        names += _flags(type(inner), inner, name + ".") if nested else [name]
    return names
