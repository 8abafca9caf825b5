"""A pool of processes on this machine, one job in each."""

import signal
from collections import deque
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from bridgerl.studies.jobs import Job, write_job
from bridgerl.studies.run.board import Board
from bridgerl.studies.run.work import RETRIES, Outcome, perform_apart
from bridgerl.training.process import StopSignal

TICK = 0.5
GRACE = 30.0


@dataclass
class _Running:
    """A job's process."""

    job: Job
    process: SpawnProcess
    answer: Any


class Pool:
    """Runs jobs, so many at a time; a job whose process dies is taken up again."""

    def __init__(self, workers: int, logs: Path, board: Board) -> None:
        self._context = get_context("spawn")  # A fork would copy torch's threads half.
        self._workers, self._logs, self._board = workers, logs, board
        self._running: list[_Running] = []
        self._deaths: dict[Job, int] = {}

    def run(self, jobs: list[Job], stop: StopSignal) -> dict[Job, Outcome]:
        """Run all jobs, or until a signal; then each ends after a checkpoint."""
        waiting = deque(jobs)
        outcomes: dict[Job, Outcome] = {}
        asked = False
        try:
            while self._running or (waiting and stop.number is None):
                while waiting and len(self._running) < self._workers and stop.number is None:
                    self._start(waiting.popleft())
                if stop.number is not None and not asked:
                    asked = True
                    for running in self._running:
                        running.process.terminate()
                ended = wait_for([r.process.sentinel for r in self._running], TICK)
                for running in [r for r in self._running if r.process.sentinel in ended]:
                    outcome = self._end(running, stopping=stop.number is not None)
                    if outcome is None:
                        waiting.appendleft(running.job)
                    else:
                        outcomes[running.job] = outcome
                self._board.refresh()
        finally:
            self._tear_down()
        return outcomes

    def close(self) -> None:
        """Nothing outlives `run`."""

    def _start(self, job: Job) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        log = self._logs / (job.name.replace("/", "_") + ".log")
        process = self._context.Process(target=perform_apart, args=(write_job(job), log, theirs))
        # A new process is in our group until it has read its code: Ctrl-C must not reach it there.
        # The tracker that the first one would start unblocks the signal, so it comes before.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        theirs.close()
        self._running.append(_Running(job, process, ours))
        self._board.started(job)

    def _end(self, running: _Running, *, stopping: bool) -> Outcome | None:
        """What became of a job; None when it is to be taken up again."""
        self._running.remove(running)
        outcome, job = self._outcome(running), running.job
        if outcome.status == "failed" and running.process.exitcode != 0:
            if stopping:  # It was asked before it could listen.
                outcome = Outcome("stopped", "before it had begun or at once")
            elif self._deaths.setdefault(job, 0) < RETRIES:
                self._deaths[job] += 1
                self._board.died(job, outcome.reason)
                return None
        self._board.ended(job, outcome)
        return outcome

    def _tear_down(self) -> None:
        """When this process itself fails: runs still get their checkpoint."""
        for running in self._running:
            running.process.terminate()
        for running in self._running:
            running.process.join(GRACE)
            running.process.kill()

    def _outcome(self, running: _Running) -> Outcome:
        process = running.process
        process.join()
        with running.answer:
            try:
                if running.answer.poll():
                    return Outcome(*running.answer.recv())
            except (EOFError, OSError):
                pass
        code = process.exitcode
        return Outcome("failed", f"its process died ({_how(code)})")


def _how(code: int | None) -> str:
    """An exit code in words."""
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
