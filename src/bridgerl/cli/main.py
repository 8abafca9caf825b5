"""The command line: finds a verb by its name, prints errors as one line, returns exit codes.

A verb is imported when it is called: help needs no torch, and Ctrl-C meanwhile is one line.
"""

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from bridgerl import __version__
from bridgerl.errors import BridgeError, choose
from bridgerl.runs.console import forgive_encodings

# A module and its class; the class's docstring is the verb's help.
VERBS = {
    "train": "cli.train:Train",
    "sweep": "cli.sweep:Sweep",
    "tune": "cli.tune:Tune",
    "evaluate": "cli.runs:Evaluate",
    "calibrate": "cli.runs:Calibrate",
    "league": "cli.truth:League",
    "toy": "cli.truth:Toy",
    "bridge-error": "cli.truth:EndpointError",
    "gamble": "cli.gamble:Gamble",
    "bench": "cli.bench:Bench",
    "race": "cli.race:Race",
    "plan": "cli.studies:Plan",
    "reproduce": "cli.studies:Reproduce",
    "report": "cli.report:Report",
    "pack": "cli.archive:Pack",
    "unpack": "cli.archive:Unpack",
    "verify": "cli.runs:Verify",
    "compare": "cli.runs:Compare",
    "export": "cli.export:Export",
    "check-env": "cli.train:CheckEnv",
    "list": "cli.listing:Listing",
}
HELP = ("-h", "--help", "help")


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Help leaves by SystemExit, as argparse does."""
    forgive_encodings()
    with suppress(OSError, ValueError, AttributeError):  # Nowhere to print to.
        faulthandler.enable()  # An environment in C may crash the process.
    ours = args is None and signal.getsignal(signal.SIGINT) == signal.default_int_handler
    try:
        if ours:
            signal.signal(signal.SIGINT, _leave)
        command = _read(sys.argv[1:] if args is None else list(args))
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = command()
        if sys.stdout is not None:  # None when started with stdout closed.
            sys.stdout.flush()
        return code
    except BridgeError as error:
        print(f"bridgerl: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        print(f"bridgerl: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        from bridgerl.training.display import silence_stdout

        silence_stdout()
        return 141
    finally:
        if ours:  # What libraries do at exit is nobody's business.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _leave(number: int, frame: object) -> None:
    """End at once: an exception inside the import of torch or MuJoCo becomes a crash of theirs."""
    with suppress(OSError):
        os.write(2, b"bridgerl: interrupted before anything was started\n")
    os._exit(128 + number)


def _read(args: list[str]) -> Callable[[], int]:
    """The command that was typed, ready to be run."""
    verb, *rest = args or ["help"]
    if verb in HELP:
        if not rest or rest[0] in HELP:
            return _print_overview
        verb, rest = rest[0], ["--help"]
    if verb == "--version":
        return _print_version
    choose("command", verb, VERBS | {"help": "", "--version": ""})
    from bridgerl.cli.flags import parse, refuse_odd_words, with_home

    refuse_odd_words(rest)
    rest = [with_home(word) for word in rest]
    kind = load(verb)
    # The flags of `train` depend on its --actor and --critic, and others take those of `train`.
    return kind.read(rest) if hasattr(kind, "read") else parse(kind, rest, verb)


def load(verb: str) -> Any:
    """The class of a verb."""
    module, _, name = VERBS[verb].partition(":")
    return getattr(import_module(f"bridgerl.{module}"), name)


def _print_version() -> int:
    print(f"bridgerl {__version__}")
    return 0


def _print_overview() -> int:
    print("usage: bridgerl COMMAND [flags]; bridgerl COMMAND --help tells more\n")
    for verb, line in overview().items():
        print(f"  {verb:<12}  {line}")
    print("\nExample: bridgerl train --env Hopper-v5")
    return 0


def overview() -> dict[str, str]:
    """The first docstring line of every verb, read from source: importing them takes seconds."""
    import ast

    first: dict[str, str] = {}
    for module in {place.partition(":")[0] for place in VERBS.values()}:
        source = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
        for node in ast.parse(source.read_bytes()).body:
            if isinstance(node, ast.ClassDef):
                first[f"{module}:{node.name}"] = (ast.get_docstring(node) or "").partition("\n")[0]
    return {verb: first[place] for verb, place in VERBS.items()}
