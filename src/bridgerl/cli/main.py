"""The command line: verbs, flags, one-line errors, exit codes."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from bridgerl import __version__
from bridgerl.actors import ACTORS
from bridgerl.cli.bench import Bench
from bridgerl.cli.flags import HELP, PROGRAM, flags_of, parse, refuse_odd_words
from bridgerl.cli.studies import Plan, Reproduce
from bridgerl.cli.truth import EndpointError, League, Toy
from bridgerl.critics import CRITICS
from bridgerl.errors import BridgeError, UserError, choose, require
from bridgerl.presets import PRESETS, environments, resolve
from bridgerl.report.build import Report
from bridgerl.runs import store
from bridgerl.runs.folder import compare, read_config, verify
from bridgerl.studies import SCALES, STUDIES
from bridgerl.training.display import silence_stdout
from bridgerl.training.loop import Stopped, train
from bridgerl.training.play import check_env, play
from bridgerl.truth.calibration import FILE as VALUES
from bridgerl.truth.calibration import describe

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


def _one_of(names: Iterable[str]) -> str:
    return "{" + ",".join(names) + "}"


@dataclass(frozen=True)
class Evaluate:
    """Play deterministic episodes with a run's best or last weights.

    Example: bridgerl evaluate runs/Hopper-v5/sac-cdq-lite/seed0 --episodes 20
    """

    run: RunFolder
    """Run folder."""
    episodes: int = 10
    """Episodes to play."""
    weights: Literal["best", "last"] = "best"
    """Which weights to load."""
    seed: int = 0
    """Seed of the episodes."""
    values: bool = False
    """Compare the critic's values with returns of the policy they are meant for."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Load, play, print."""
        require(self.episodes >= 1, "episodes", self.episodes, "must be at least 1")
        require(0 <= self.seed < 2**32, "seed", self.seed, "must be from 0 to 2**32 - 1")
        result = play(self.run, self.weights, self.episodes, self.seed, values=self.values)
        if self.values:
            self._record(result)
        if self.json:
            print(json.dumps(result))
        else:
            print(
                f"{result['env']}: return {result['mean']:.1f} +- {result['std']:.1f} over "
                f"{self.episodes} episodes ({self.weights} weights, step {result['step']:,})"
            )
            if self.values:
                print(describe(result["values"]))
        return 0

    def _record(self, result: dict[str, Any]) -> None:
        """Leave the figures for reports; a run that cannot be written to is judged all the same."""
        figures = {"weights": self.weights, "step": result["step"], "seed": self.seed}
        with suppress(OSError):
            store.publish_file(self.run / VALUES, store.to_json(figures | result["values"]))


@dataclass(frozen=True)
class Verify:
    """Check every checksum of a run folder.

    Example: bridgerl verify runs/Hopper-v5/sac-cdq-lite/seed0
    """

    run: RunFolder
    """Run folder."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when all is intact, 5 at the first damaged file."""
        checked = verify(self.run)
        print(json.dumps({"intact": checked}) if self.json else f"intact: {', '.join(checked)}")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare two runs byte for byte: metrics, weights, generators, replay.

    Example: bridgerl compare runs/a/seed0 runs/b/seed0
    """

    run_a: RunFolder
    """Run folder."""
    run_b: RunFolder
    """Run folder."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when equal, 1 when not."""
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

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when the environment is fit, 2 or 3 with the reason."""
        facts = check_env(self.env)
        text = f"{self.env} is fit: {facts['obs_dim']} observations, {facts['action_dim']} actions"
        text += ", resumes exactly" if facts["reproducible"] else ", but does not resume exactly"
        if facts["time_limit"] is None:
            text += "; it has no time limit, so --eval.max-steps ends evaluation episodes"
        print(json.dumps(facts) if self.json else text)
        return 0


@dataclass(frozen=True)
class Listing:
    """List actors, critics, presets, studies, and environments with a preset.

    Example: bridgerl list
    """

    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Print the registries."""
        tables = {
            "actors": {k: (v.__doc__ or "").splitlines()[0] for k, v in ACTORS.items()},
            "critics": {k: (v.__doc__ or "").splitlines()[0] for k, v in CRITICS.items()},
            "presets": dict.fromkeys(PRESETS, ""),
            "studies": {k: v.title for k, v in STUDIES.items()},
            "scales": {k: v.says for k, v in SCALES.items()},
            "environments": dict.fromkeys(environments(), ""),
        }
        if self.json:
            print(json.dumps({k: list(v) for k, v in tables.items()}))
            return 0
        grid = Table(show_header=False, box=None, padding=(0, 2))
        for overflow in ("fold", "fold", "ellipsis"):
            grid.add_column(overflow=overflow, min_width=9)
        for kind, rows in tables.items():
            for i, (name, text) in enumerate(rows.items()):
                grid.add_row("" if i else kind, name, text)
        Console(highlight=False).print(grid)
        return 0


VERBS: dict[str, Any] = {
    "train": None,  # Its flags depend on --actor and --critic, see `_train`.
    "evaluate": Evaluate,
    "league": League,
    "toy": Toy,
    "bridge-error": EndpointError,
    "bench": Bench,
    "plan": Plan,
    "reproduce": Reproduce,
    "report": Report,
    "verify": Verify,
    "compare": Compare,
    "check-env": CheckEnv,
    "list": Listing,
}
TRAIN_HELP = f"""Train a run, or resume it.

The same command again resumes an unfinished run.

Example: bridgerl train --env Hopper-v5 --actor sac --critic cdq --seed 1

Besides the flags below:
--actor {_one_of(ACTORS)}: what acts; its settings are --actor.* (default: sac)
--critic {_one_of(CRITICS)}: what values actions; its settings are --critic.* (default: cdq)
--preset {_one_of(PRESETS)}: where all defaults come from (default: lite)
--quiet: print nothing but warnings and errors"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Help leaves by SystemExit, as argparse does."""
    try:
        code = _dispatch(sys.argv[1:] if args is None else list(args))
        if sys.stdout is not None:  # None when started with stdout closed.
            sys.stdout.flush()
        return code
    except Stopped as stop:
        print(f"{PROGRAM}: {stop}", file=sys.stderr)
        return stop.exit_code
    except BridgeError as error:
        text = " ".join(str(error).split())
        print(f"{PROGRAM}: error: {text}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        silence_stdout()
        return 141


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in HELP | {"help"}:
        _print_overview()
        return 0
    verb, rest = args[0], args[1:]
    if verb == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    choose("command", verb, VERBS)
    refuse_odd_words(rest)
    if verb == "train":
        return _train(rest)
    return parse(VERBS[verb], rest, verb)()


def _print_overview() -> None:
    grid = Table(show_header=False, box=None, padding=(0, 2))
    for verb, cls in VERBS.items():
        text = TRAIN_HELP if cls is None else cls.__doc__
        grid.add_row(verb, text.splitlines()[0])
    console = Console(highlight=False)
    usage = f"usage: {PROGRAM} COMMAND [flags]; {PROGRAM} COMMAND --help tells more\n"
    console.print(usage, markup=False)
    console.print(grid)
    console.print(f"\nExample: {PROGRAM} train --env Hopper-v5")


def _train(args: list[str]) -> int:
    """Two passes: names pick the config classes, then every field of theirs is a flag."""
    picks = {"--env": "", "--actor": "sac", "--critic": "cdq", "--preset": "lite"}
    rest: list[str] = []
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in picks:
            picks[flag] = value if equals else _value_of(flag, words)
        elif word != "--quiet":
            rest.append(word)
    if not picks["--env"]:
        if not HELP & set(rest):
            raise UserError("train needs --env, e.g. --env Hopper-v5 (see bridgerl list)")
        picks["--env"] = environments()[0]
    default = resolve(*picks.values())
    known = [*picks, "--quiet", *flags_of(default)]
    config = parse(
        type(default), rest, "train", known=known, default=default, description=TRAIN_HELP
    )
    train(config, quiet="--quiet" in args)
    return 0


def _value_of(flag: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None or value.startswith("--"):
        raise UserError(f"{flag} needs a value (see {PROGRAM} train --help)")
    return value
