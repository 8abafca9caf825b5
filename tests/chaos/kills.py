"""kill -9 at random moments: of runs of every pair, and of studies with their workers."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bridgerl.actors import ACTORS
from bridgerl.critics import CRITICS
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare
from chaos.attempt import Attempt, Silent, assert_ended, assert_killed, expect_same
from conftest import environment, finished, started
from runs.kill_runs import AIMED
from runs.tiny_runs import FLAGS, SEGMENT_ROWS, Runs
from studies.two_runs import DEADLINE, arguments, children, jobs
from warm_process import Ended

PAIRS = [(actor, critic) for actor in ACTORS for critic in CRITICS]
WHILE_RESUMING = ("resume.loaded", "log.truncated")
STUDY_SECONDS = 15.0
"""A study is killed within so many seconds of its first worker."""


def kill_runs(attempt: Attempt) -> None:
    """Kill and resume a run up to five times, let it end, and compare it with its twin."""
    actor, critic = PAIRS[attempt.number % len(PAIRS)]
    twin = attempt.place.twin(actor, critic)
    runs = Runs(attempt.place.warm, attempt.folder, actor, critic)
    kills = 0
    for _ in range(attempt.rng.randint(1, 5)):
        ended = _start_and_kill(runs, attempt.rng, twin.seconds)
        if ended.code == 0:
            break
        assert_killed(ended, runs.folder)
        kills += 1
    assert_ended(runs.train())
    expect_same(runs.folder, twin, f"{actor}+{critic} after {kills} kills")
    attempt.row.recovered += kills


def _start_and_kill(runs: Runs, rng: random.Random, seconds: float) -> Ended:
    saved = [step for step, _ in RunFolder(runs.folder).checkpoints()]
    if rng.random() < 0.3:  # Where it hurts most.
        points = [point for point in AIMED if saved or point not in WHILE_RESUMING]
        return runs.train(f"{rng.choice(points)}:1:kill")
    process = runs.warm.start(*runs.command(), segment_rows=SEGMENT_ROWS)
    left = 1 - max(saved, default=0) / int(FLAGS["--steps"])
    time.sleep(rng.uniform(0.0, left * seconds))
    process.send(signal.SIGKILL)
    return process.wait()


def kill_studies(attempt: Attempt) -> None:
    """Kill a study and its workers a few times, let it end, and compare its runs."""
    twin = attempt.place.once("study", lambda out: _finish_study(_command(out)))
    command = _command(attempt.folder)
    kills = sum(_kill_study(command, attempt.rng) for _ in range(attempt.rng.randint(1, 2)))
    _finish_study(command)
    for ours, theirs in zip(jobs(attempt.folder), jobs(twin), strict=True):
        if found := compare(ours.folder, theirs.folder):
            raise Silent(f"{ours.name} after {kills} kills: {found}")
    attempt.row.recovered += kills


def _command(out: Path) -> list[str]:
    return [sys.executable, "-m", "bridgerl", *arguments(out, "--workers", "2")]


def _finish_study(command: list[str]) -> None:
    ended = finished(command, env=environment(), timeout=DEADLINE)
    assert ended.returncode == 0, ended
    assert "Traceback" not in ended.stderr, ended


def _kill_study(command: list[str], rng: random.Random) -> int:
    """Kill a worker, which the study takes up again, or the whole study, or both: how many."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment()}
    kills, limit = 0, time.monotonic() + DEADLINE
    with started(command, **quiet) as study:
        while not children(study) and study.poll() is None:
            assert time.monotonic() < limit, "the study hangs"
            time.sleep(0.05)
        for whole in rng.choice([(True,), (False, True), (False, False)]):
            time.sleep(rng.uniform(0.0, STUDY_SECONDS))
            with contextlib.suppress(psutil.NoSuchProcess):  # It may end while it is looked at.
                victims = [psutil.Process(study.pid)] if whole else children(study)
                if study.poll() is None and victims:
                    rng.choice(victims).kill()
                    kills += 1
        if study.poll() is None:
            study.wait(DEADLINE)
    return kills
