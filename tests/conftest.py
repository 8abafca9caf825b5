"""Shared ways to run the program the way users do."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from warm_process import WarmProcess

HERE = Path(__file__).parent

Run = Callable[..., subprocess.CompletedProcess[str]]

# A whole run in about a second: toy environment, narrow networks, everything else real.
TINY = (
    "train --env toy_envs:Point-v0 --critic cdq --steps 600 --train.warmup 100 "
    "--train.batch-size 32 --train.buffer-size 10000 --actor.hidden 16 --critic.hidden 16 "
    "--eval.every 200 --eval.episodes 2 --log.every 50 --save.every 150 --log.no-tensorboard"
).split()


torch.set_num_threads(1)  # Workers share the cores; a thread each is fastest.

# Under nohup, or in the background of a script, signals are ignored, and programs inherit that.
# A handler that does nothing ignores them here and is the default again in what tests start.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def environment(**more: str) -> dict[str, str]:
    """Variables of a program that finds the toy environments."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process in a session of its own; whatever is left of it and its children is killed."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.__exit__(None, None, None)  # Wait, and close its pipes.


def finished(
    command: Sequence[str], timeout: float = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """A process that came to its end, with what it printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, **pipes | options) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture
def cli() -> Run:
    """Run `python -m bridgerl ARGS` in a process of its own; keywords become its environment."""

    def run(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bridgerl", *args]
        return finished(command, cwd=cwd, env=environment(**env))

    return run


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[WarmProcess]":
    """A process that has imported everything and forks for every command."""
    from warm_process import warm_process  # Which imports this file.

    with warm_process(tmp_path_factory.mktemp("output")) as process:
        yield process
