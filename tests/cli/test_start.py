"""The first seconds: help without torch, verbs found by name, Ctrl-C while everything loads."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridgerl.cli.main import VERBS, load, overview
from conftest import environment, finished, started

HEAVY = {"torch", "numpy", "gymnasium", "tyro", "rich"}


@pytest.mark.parametrize("line", ["--help", "--version", "trian"])
def test_what_needs_no_verb_imports_nothing_heavy(line: str) -> None:
    code = f"from bridgerl.cli.main import main; main([{line!r}])"
    shown = f"import sys; {code}; print({HEAVY!r} & set(sys.modules))"
    ended = finished([sys.executable, "-c", shown], env=environment())
    assert ended.stdout.splitlines()[-1] == "set()", ended.stderr


def test_help_shows_the_first_line_of_every_verbs_docstring() -> None:
    lines = overview()
    assert list(lines) == list(VERBS)
    for verb, line in lines.items():
        assert line == load(verb).__doc__.splitlines()[0]
        assert line.endswith(".")


SLOW_TORCH = """
import time
print("torch", flush=True)
try:
    time.sleep(100)
except BaseException as error:  # As C++ does that imports Python: no exception comes through.
    raise ImportError("initialization failed") from error
"""


@pytest.fixture
def slow_torch(tmp_path: Path) -> dict[str, str]:
    """Variables under which torch says that it is imported, and takes its time."""
    (tmp_path / "torch.py").write_text(SLOW_TORCH)
    return environment(PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")


PROGRAMS = [[sys.executable, "-m", "bridgerl"], [str(Path(sys.executable).parent / "bridgerl")]]


@pytest.mark.parametrize("program", PROGRAMS, ids=["module", "script"])
@pytest.mark.parametrize("verb", ["train", "list"])
def test_ctrl_c_during_imports_is_one_line_and_exit_130(
    program: list[str], verb: str, slow_torch: dict[str, str]
) -> None:
    command, pipe = [*program, verb, "--env", "Hopper-v5"], subprocess.PIPE
    with started(command, env=slow_torch, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "torch\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "bridgerl: interrupted before anything was started\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_during_imports_end_the_program_silently(
    number: int, slow_torch: dict[str, str]
) -> None:
    command, pipe = [*PROGRAMS[0], "train"], subprocess.PIPE
    with started(command, env=slow_torch, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "torch\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (-number, "")


# What a script's background jobs and nohup inherit.
IGNORING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "


def test_ctrl_c_that_is_ignored_stays_ignored_while_loading(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGINT); raise SystemExit(7)"
    )
    env = environment(PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")
    code = IGNORING + "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", code, "-m", "bridgerl", "list"]
    ended = finished(command, env=env)
    assert (ended.returncode, ended.stderr) == (7, "")
