"""A study of two short runs, and its processes."""

import contextlib
import subprocess
from pathlib import Path

import psutil

from bridgerl.runs.verify import compare
from bridgerl.studies import STUDIES
from bridgerl.studies.jobs import Job

TWO = ("sac+cdq", "sac+dbc")
DEADLINE = 240.0


def arguments(out: Path, *more: str) -> list[str]:
    """The smoke scale of the main study, two of its settings, one seed."""
    words = ["reproduce", "main", "--scale", "smoke", "--seeds", "0", "--only", *TWO]
    return [*words, "--out", str(out), "--no-report", *more]


def jobs(out: Path) -> list[Job]:
    return [job for job in STUDIES["main"].jobs("smoke", out, (0,)) if job.setting in TWO]


def assert_equal_runs(out: Path, undisturbed: Path) -> None:
    for ours, theirs in zip(jobs(out), jobs(undisturbed), strict=True):
        assert ours.done()
        assert compare(ours.folder, theirs.folder) is None


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The training processes of a study."""
    with contextlib.suppress(psutil.NoSuchProcess):
        found = psutil.Process(process.pid).children(recursive=True)
        return [p for p in found if "spawn_main" in " ".join(words_of(p))]
    return []


def words_of(process: psutil.Process) -> list[str]:
    """The command line of a process, if it is still there."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def begun(out: Path) -> bool:
    """Whether a run has a checkpoint but is not done."""
    return any(any(job.folder.glob("ckpt/step-*")) and not job.done() for job in jobs(out))
