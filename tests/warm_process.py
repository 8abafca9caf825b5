"""Real processes that start in milliseconds: one process imports everything, then forks per run.

Each fork is a process of its own that a test can kill -9; only the seconds of importing are saved.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from conftest import environment, started


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or minus the signal that killed it."""

    code: int
    out: str
    err: str


class Settings(TypedDict, total=False):
    """What may be different about a process."""

    failpoint: str
    segment_rows: int
    cwd: str
    """Working folder, in which Python looks for modules first, as `python -m` does."""
    prepare: str
    """`module:function:argument`, called before the command."""


class Started:
    """A running process."""

    def __init__(self, warm: "WarmProcess", pid: int, folder: Path) -> None:
        self.pid = pid
        self._warm = warm
        self._folder = folder

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait_for_output(self) -> None:
        """Wait until the process has printed something."""
        while not (self._folder / "out").exists() or not (self._folder / "out").stat().st_size:
            time.sleep(0.001)

    def wait(self) -> Ended:
        """Wait for the end."""
        code = self._warm.ask({"wait": self.pid})["code"]
        out, err = ((self._folder / name).read_text() for name in ("out", "err"))
        return Ended(code, out, err)


class WarmProcess:
    """Starts `bridgerl ARGS` in fresh forks of a process that has imported it."""

    def __init__(self, server: subprocess.Popen[str], scratch: Path) -> None:
        self._server = server
        self._scratch = scratch

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def start(self, *args: str, **settings: Unpack[Settings]) -> Started:
        """Start a command."""
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        for name in ("out", "err"):  # One that is killed at once leaves them empty.
            (folder / name).touch()
        request = {"args": args, "folder": str(folder), "settings": settings}
        return Started(self, self.ask(request)["pid"], folder)

    def run(self, *args: str, **settings: Unpack[Settings]) -> Ended:
        """Start a command and wait for its end."""
        return self.start(*args, **settings).wait()


@contextlib.contextmanager
def warm_process(scratch: Path) -> Iterator[WarmProcess]:
    """A warm process for the length of a block, which ends all of its forks."""
    command, pipe = [sys.executable, __file__], subprocess.PIPE
    with started(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as server:
        yield WarmProcess(server, scratch)


def _serve() -> None:
    from bridgerl.cli import main as cli
    from bridgerl.runs import failpoint, segments
    from bridgerl.training import process as runtime

    # Imported at first use otherwise, in every fork anew.
    for name in (
        "torch._dynamo",
        "typeguard",
        "bridgerl.training.loop",
        "bridgerl.training.play",
        "toy_envs",
    ):
        importlib.import_module(name)
    runtime.fingerprint(1, "cpu")  # Read the source once: all forks are of this very code.
    gc.freeze()  # Or every collection in a fork would copy all of this memory.
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                _redirect(Path(request["folder"]))
                settings: Settings = request["settings"]
                failpoint.arm(settings.get("failpoint", ""))
                segments.SEGMENT_ROWS = settings.get("segment_rows", segments.SEGMENT_ROWS)
                _prepare(settings)
                _run_and_exit(cli.main, request["args"])
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


def _prepare(settings: Settings) -> None:
    if "cwd" in settings:
        os.chdir(settings["cwd"])
        sys.path.insert(0, settings["cwd"])
    if "prepare" in settings:
        module, function, argument = settings["prepare"].split(":")
        getattr(importlib.import_module(module), function)(argument)


def _redirect(folder: Path) -> None:
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, number)
        os.close(handle)


def _run_and_exit(main: Callable[[list[str]], int], args: list[str]) -> None:
    """End this fork as the interpreter would, without the server's own farewell."""
    code: Any = 1
    try:
        code = main(args)
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
