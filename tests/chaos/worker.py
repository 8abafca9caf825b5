"""One worker: attempts in turn, each fault for its share of the time."""

import contextlib
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bridgerl.errors import Busy
from bridgerl.runs import segments
from bridgerl.runs.lock import RunLock
from bridgerl.training.process import fingerprint
from chaos.attempt import Attempt, Hung, Place, Silent, Untried, clear, time_limit
from chaos.faults import FAULTS, Fault
from chaos.tally import Row, Tally
from runs.tiny_runs import SEGMENT_ROWS
from warm_process import warm_process

LIMIT = 900.0
"""Seconds of an attempt, on a busy machine too."""
APART = 1000
"""Attempts between the first ones of two workers, so that they do not try the same."""
PATIENCE = 60.0
"""Seconds to wait for what is left of a killed session."""

TRIED = ("cli", "runs", "report", "studies", "errors.py", "presets.py")
"""Rooms and modules that attempts try, beside those that compute."""


def describe(seed: int) -> dict[str, Any]:
    """What the tries of one tally share."""
    return {"seed": seed, **fingerprint(1, "cpu", *TRIED)}


def work(folder: Path, number: int, seed: int, seconds: float, names: Sequence[str]) -> None:
    """Try until the tally has so many seconds, or the one who started us is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = _take(folder / "lock")
    tally, parent = Tally(folder / "tally.json", describe(seed)), os.getppid()
    faults = [fault for fault in FAULTS if fault.name in names]
    with open_place(folder) as place:
        while faults and tally.seconds < seconds and os.getppid() == parent:
            fault = most_due(faults, tally)
            row = tally.row(fault.name)
            done = attempt(place, fault, f"{seed} {number}", APART * number + row.attempts)
            row.add(done)
            tally.save()
            if place.is_stuck:
                break
            if done.note:
                faults.remove(fault)
    lock.release()


@contextlib.contextmanager
def open_place(folder: Path) -> Iterator[Place]:
    """A place below a folder, for the length of a block."""
    segments.SEGMENT_ROWS = SEGMENT_ROWS
    output = folder / "output"
    clear(output)
    with warm_process(output) as warm:
        warm.run("list")  # Answers when it is warm: twins are timed.
        yield Place(folder, warm)


def most_due(faults: Sequence[Fault], tally: Tally) -> Fault:
    """The fault that will have had least of its share."""
    return min(faults, key=lambda f: (tally.row(f.name).seconds + f.cost) / f.share)


def attempt(place: Place, fault: Fault, seed: str, number: int) -> Row:
    """One attempt; its folder is kept only when something is wrong."""
    clear(place.attempt)
    rng = random.Random(f"{seed} {fault.name} {number}")
    made, started = Attempt(place, number, rng, place.attempt), time.monotonic()
    row = made.row
    try:
        with time_limit(LIMIT):
            fault.attempt(made)
    except Untried as reason:
        row.note = str(reason)
    except Silent as error:
        row.silent.append(f"attempt {number}: {error}")
    except Exception as error:
        place.is_stuck = isinstance(error, Hung)
        row.loud.append(f"attempt {number}: {type(error).__name__} {error}"[:2000])
    row.attempts, row.seconds = 1, time.monotonic() - started
    if row.failures:
        name = f"{fault.name}-{number}".replace(" ", "-").replace(",", "")
        shutil.copytree(place.attempt, place.failures / name, symlinks=True, dirs_exist_ok=True)
    return row


def _take(path: Path) -> RunLock:
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            return RunLock(path)
        except Busy:
            if time.monotonic() > limit:
                raise SystemExit(f"{path.parent} is in use; wait or choose another OUT") from None
            time.sleep(0.5)
