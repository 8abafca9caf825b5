"""A pool of processes on this machine: a fresh one for every training, kept ones for the rest."""

import contextlib
import json
import math
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from pathlib import Path

from bridgerl.errors import EnvFault
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.work import GRACE, RETRIES, JobEnd, serve
from bridgerl.training.process import StopSignal

TICK = 0.5
SHORT = "short-jobs"
"""The log that jobs of seconds share."""


class Watcher:
    """Hears what becomes of jobs: override what you need."""

    def started(self, job: Job) -> None: ...
    def waits(self, job: Job, reason: str) -> None: ...
    def died(self, job: Job, reason: str) -> None: ...
    def ended(self, job: Job, end: JobEnd) -> None: ...
    def refresh(self) -> None: ...


class _Worker:
    """A process that does what it is sent, job by job."""

    def __init__(self) -> None:
        context = get_context("spawn")  # A fork would copy torch's threads half.
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,))
        # A new process is in our group until it has read its code: Ctrl-C must not reach it there.
        # The tracker that the first one would start unblocks the signal, so it comes before.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        theirs.close()

    def answer(self, job: Job, watcher: Watcher) -> JobEnd | None:
        """How its job ended, if it has; a dead process has ended it too. News go to the watcher."""
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                status, reason = self.pipe.recv()
                if status == "started":
                    watcher.started(job)
                elif status == "waiting":
                    watcher.waits(job, reason)
                else:
                    return JobEnd(status, reason)
            if self.process.exitcode is None:
                return None
        self.process.join()
        code = self.process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return JobEnd("failed", f"its process died ({how})")

    def close(self) -> None:
        self.pipe.close()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()


class Pool:
    """Runs jobs, so many at a time; a job whose process dies is taken up again."""

    def __init__(self, workers: int, logs: Path, watcher: Watcher) -> None:
        self._workers, self._logs, self._watcher = workers, logs, watcher
        self._running: dict[Job, _Worker] = {}
        self._idle: list[_Worker] = []
        self._deaths: dict[Job, int] = {}

    def run(self, jobs: Iterable[Job], stop: StopSignal) -> dict[Job, JobEnd]:
        """Run all jobs, or until a signal; then trainings end after a checkpoint, others now.

        A job is asked for when there is a worker for it. A process that does not end, because its
        environment hangs, is killed after a grace period.
        """
        waiting, source, ends, asked = deque[Job](), iter(jobs), dict[Job, JobEnd](), math.inf
        try:
            while self._fill(waiting, source, stop):
                if stop.number is not None and asked == math.inf:
                    asked = time.monotonic()
                    self._ask_to_stop()
                if time.monotonic() - asked > GRACE:
                    for worker in self._running.values():
                        worker.process.kill()
                running = self._running.values()
                wait([event for w in running for event in (w.pipe, w.process.sentinel)], TICK)
                for job, worker in list(self._running.items()):
                    if answer := worker.answer(job, self._watcher):
                        del self._running[job]
                        if end := self._judge(job, worker, answer, stopping=asked < math.inf):
                            ends[job] = end
                        else:
                            waiting.appendleft(job)
                self._watcher.refresh()
        finally:
            # When this process itself fails, trainings still get their checkpoint.
            self._ask_to_stop()
            for worker in [*self._running.values(), *self._idle]:
                worker.close()
        return ends

    def _fill(self, waiting: deque[Job], source: Iterator[Job], stop: StopSignal) -> bool:
        """Start jobs for idle workers, those first that are taken up again; whether any runs."""
        while len(self._running) < self._workers and stop.number is None:
            job = waiting.popleft() if waiting else next(source, None)
            if job is None:
                break
            self._start(job)
        return bool(self._running)

    def _start(self, job: Job) -> None:
        worker = self._idle.pop() if self._idle and not job.trains else _Worker()
        log = self._logs / f"{job.name.replace('/', '_') if job.trains else SHORT}.log"
        self._running[job] = worker
        with contextlib.suppress(OSError):  # A dead one is found out like any other.
            worker.pipe.send((job.name, json.dumps(job.to_json()), log))

    def _judge(self, job: Job, worker: _Worker, end: JobEnd, *, stopping: bool) -> JobEnd | None:
        """What became of a job; None when it is to be taken up again."""
        died = worker.process.exitcode is not None
        if job.trains or died:
            worker.close()
        else:
            self._idle.append(worker)
        if died and end.status == "failed":
            if stopping and worker.process.exitcode == -signal.SIGKILL:
                end = JobEnd("stopped", f"killed, as it did not stop within {GRACE:g} seconds")
            elif stopping:  # It was asked before it could listen, or it never listens.
                end = JobEnd("stopped", "before it had begun or at once")
            elif worker.process.exitcode == EnvFault.exit_code:  # By its own watchdog.
                end = JobEnd("failed", "its environment hung; the log says where")
            elif self._deaths.setdefault(job, 0) < RETRIES:
                self._deaths[job] += 1
                self._watcher.died(job, end.reason)
                return None
        self._watcher.ended(job, end)
        return end

    def _ask_to_stop(self) -> None:
        for worker in self._running.values():
            worker.process.terminate()
