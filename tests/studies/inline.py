"""Jobs without processes of their own, for tests of what comes before and after them."""

import json
from collections.abc import Iterable
from pathlib import Path

from bridgerl.studies.jobs import Job
from bridgerl.studies.run.pool import Watcher
from bridgerl.studies.run.work import JobEnd, perform
from bridgerl.training.process import StopSignal

FLAGS = (
    "--critic cdq --steps 200 --train.warmup 60 --train.batch-size 16 --train.buffer-size 1000 "
    "--actor.hidden 16 --critic.hidden 16 --eval.every 100 --eval.episodes 1 --log.every 50 "
    "--save.every 50 --log.no-tensorboard"
).split()
"""A run of half a second, apart from its task."""


class Inline:
    """Does in this process what a pool does in others."""

    def __init__(self, workers: int, logs: Path, watcher: Watcher) -> None:
        self._watcher = watcher

    def run(self, jobs: Iterable[Job], stop: StopSignal) -> dict[Job, JobEnd]:
        ends = {}
        for job in jobs:
            self._watcher.started(job)
            status, reason = perform(json.dumps(job.to_json()))
            ends[job] = JobEnd("done" if status == "done" else "failed", reason)
            self._watcher.ended(job, ends[job])
        return ends
