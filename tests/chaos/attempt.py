"""One attempt at breaking a promise: its place, its draws, and what came of it."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import verify
from chaos.tally import Row
from runs.small_disk import unmount
from runs.tiny_runs import SEGMENT_ROWS, Runs, difference
from warm_process import Ended, WarmProcess

DISK = "disk"
"""Name of a small disk that an attempt mounts in its folder."""


class Silent(Exception):
    """Something is wrong and nobody was told."""


class Hung(Exception):
    """It did not come to an end."""


class Untried(Exception):
    """Cannot be tried here; the message says why."""


@dataclass(frozen=True)
class Twin:
    """A run that nobody disturbed, and how long it took."""

    folder: Path
    seconds: float


class Place:
    """Where attempts happen: warm processes, and things that are made once and never changed."""

    def __init__(self, folder: Path, warm: WarmProcess) -> None:
        self.warm = warm
        self.is_stuck = False
        """The warm process waits for one that hangs, and can start no other."""
        self._made = folder / "made"
        self.failures = folder / "failures"
        self.attempt = folder / "scratch" / "attempt"
        self.workbench = folder / "scratch" / "workbench"
        """For copies that attempts of one session share."""
        for scratch in (self.attempt, self.workbench):
            clear(scratch)

    def once(self, name: str, make: Callable[[Path], object]) -> Path:
        """A folder that is made the first time; one whose making was killed is made again."""
        folder, mark = self._made / name, self._made / f"{name}.seconds"
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            started = time.monotonic()
            make(folder)
            mark.write_text(str(time.monotonic() - started))
        return folder

    def twin(self, actor: str = "sac", critic: str = "cdq") -> Twin:
        """The undisturbed run of a pair."""

        def train(folder: Path) -> None:
            assert_ended(Runs(self.warm, folder, actor, critic).train())

        folder = self.once(f"{actor}-{critic}", train)
        seconds = float(folder.with_name(f"{folder.name}.seconds").read_text())
        return Twin(Runs(self.warm, folder).folder, seconds)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `Hung` in a block that takes longer."""

    def stop(*_: object) -> None:
        raise Hung(f"no end within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Attempt:
    """What an attempt gets and what it leaves."""

    place: Place
    number: int
    rng: random.Random
    folder: Path
    """Empty, and gone afterwards."""
    row: Row = field(default_factory=Row)

    def run(self, *args: str, cwd: Path | None = None) -> Ended:
        """A command in a process of its own, by default in the attempt's folder."""
        return self.place.warm.run(*args, cwd=str(cwd or self.folder), segment_rows=SEGMENT_ROWS)


def clear(folder: Path) -> None:
    """Empty a folder, of small disks that a killed session left mounted too."""
    for disk in folder.rglob(DISK):
        if os.path.ismount(disk):
            unmount(disk)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def assert_ended(ended: Ended) -> None:
    """It came to its end, and at most warned."""
    assert ended.code == 0, ended
    assert all(line.startswith("bridgerl: warning: ") for line in ended.err.splitlines()), ended


def assert_refused(ended: Ended, *codes: int) -> None:
    """It said in one line what is wrong; warnings may come before."""
    *before, last = ended.err.splitlines() or [""]
    assert ended.code in codes, ended
    assert last.startswith("bridgerl: error: "), ended
    assert all(line.startswith("bridgerl: warning: ") for line in before), ended
    assert ended.err.replace("\n", "").isprintable(), ended


def assert_killed(ended: Ended, run: Path) -> None:
    """It was killed, and what it left is intact."""
    assert ended.code == -signal.SIGKILL, ended
    if RunFolder(run).config_file.exists():
        verify(run)


def expect_same(run: Path, twin: Twin, what: str) -> None:
    """Byte-equal to its undisturbed twin."""
    if found := difference(run, twin.folder):
        raise Silent(f"{what}: {found}")
