"""Jobs on a Ray cluster that is already there: Ray places, ships and restarts; we resume."""

import json
import socket
from typing import Any

from bridgerl.errors import EnvFault, UserError, install
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.pool import TICK, Watcher
from bridgerl.studies.run.work import RETRIES, JobEnd, perform
from bridgerl.training.process import StopSignal


class Cluster:
    """Runs every job as a Ray task with its own CPU, and a share of a GPU if asked."""

    def __init__(self, address: str, gpus: float, watcher: Watcher) -> None:
        try:
            import ray
        except ImportError:
            raise UserError(f"--ray needs Ray: {install('ray')}") from None
        self._ray: Any = ray
        self._gpus, self._watcher = gpus, watcher
        try:
            _knock(address)
            self._ray.init(address=address, log_to_driver=False, logging_level="error")
        except (OSError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            text = f"no Ray cluster at {address!r} ({str(error).splitlines()[0]})"
            raise EnvFault(f"{text}; start one by: ray start --head") from None

    def run(self, jobs: list[Job], stop: StopSignal) -> dict[Job, JobEnd]:
        """Run all jobs, or until a signal; then each ends after a checkpoint."""
        ray = self._ray
        task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=RETRIES)(perform)
        texts = {job: json.dumps(job.to_json()) for job in jobs}
        pending = {task.options(name=j.name).remote(text): j for j, text in texts.items()}
        waiting = {job: job.progress() for job in jobs}
        ends, asked = dict[Job, JobEnd](), False
        while pending:
            if stop.number is not None and not asked:
                asked = True
                for ref in pending:
                    ray.cancel(ref, force=False)
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=TICK)
            for ref in ready:
                job = pending.pop(ref)
                ends[job] = self._end_of(ref)
                self._watcher.ended(job, ends[job])
            # Ray does not say when a task leaves its queue; the run folder does.
            for job in [j for j in pending.values() if j in waiting and j.progress() != waiting[j]]:
                del waiting[job]
                self._watcher.started(job)
            self._watcher.refresh()
        ray.shutdown()
        return ends

    def _end_of(self, ref: Any) -> JobEnd:
        try:
            return JobEnd(*self._ray.get(ref))
        except self._ray.exceptions.TaskCancelledError:
            return JobEnd("stopped", "cancelled before it began or after a checkpoint")
        except self._ray.exceptions.RayError as error:
            return JobEnd("failed", " ".join(str(error).split())[:300])


def _knock(address: str) -> None:
    """Raise OSError unless something listens; Ray itself would try again for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()
