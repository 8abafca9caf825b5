"""What happens to one job: how it ends, in words, wherever it ran."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from bridgerl.errors import BridgeError, Busy
from bridgerl.studies.jobs import Job, read_job
from bridgerl.training.loop import Stopped
from bridgerl.training.process import StopSignal

RETRIES = 5
"""Times a job whose process died is taken up again."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    status: Literal["done", "failed", "stopped"]
    reason: str = ""


def perform(text: str) -> tuple[str, str]:
    """Run a job given as JSON; returns status and reason, and raises nothing."""
    try:
        job = read_job(text)
        _run_when_free(job)
    except Stopped as stop:
        return "stopped", str(stop)
    except BridgeError as error:
        return "failed", " ".join(str(error).split())
    except KeyboardInterrupt:
        return "stopped", "interrupted"
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}"
    # A job that returns has done all it was asked for; its folder must say so too.
    return ("done", "") if job.done() else ("failed", f"{job.folder} has no result")


def _run_when_free(job: Job) -> None:
    """Wait while another study has the same run under way, or the last one is still saving it."""
    said = False
    while True:
        try:
            return job.run()
        except Busy as busy:
            if not said:
                print(f"waiting: {busy}", file=sys.stderr, flush=True)
            said = True
            time.sleep(1.0)


def perform_apart(text: str, log: Path, answer: Connection) -> None:
    """The same as a process of its own: output into a file, the outcome through a pipe."""
    # Ctrl-C is the parent's to hear; until here it was blocked, see `Pool`.
    os.setpgrp()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    StopSignal.together = 10.0
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    with _output_to(log):
        status, reason = perform(text)
        print(": ".join(filter(None, (status, reason))))
        answer.send((status, reason))


def _stop_with_parent() -> None:
    """A run whose study is gone stops at its next step, after a checkpoint."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Everything printed goes to a file; lines of several attempts follow each other."""
    with path.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield
        sys.stdout.flush()
        sys.stderr.flush()
