"""A league as jobs: named by all that decides them, run where missing, read back with suspicion."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bridgerl.errors import BridgeError
from bridgerl.runs import store
from bridgerl.runs.result import RESULT, read_kept, read_result
from bridgerl.studies.jobs import Job, league_job
from bridgerl.studies.run.pool import Pool, Watcher
from bridgerl.studies.run.work import JobEnd
from bridgerl.training.process import StopSignal, fingerprint
from bridgerl.truth.settings import LeagueCell


def cell_jobs(cells: Iterable[tuple[str, LeagueCell]], out: Path) -> list[Job]:
    """A job per label and cell, in folders that change with machine, versions and source too."""
    mark, jobs = fingerprint(1, "cpu", "truth"), []
    for label, cell in cells:
        name = store.to_json(cell.identity() | {"fingerprint": mark})
        jobs.append(league_job(label, cell, out / "cells" / store.sha256(name)[:24], mark))
    return jobs


def run_league(jobs: list[Job], workers: int, logs: Path, watcher: Watcher) -> list[dict[str, Any]]:
    """The results of all jobs; those whose results are kept are not run again."""
    kept = {job: result for job in jobs if (result := kept_result(job))}
    for job in kept:
        watcher.ended(job, JobEnd("done"))
    missing = [job for job in jobs if job not in kept]
    # Nobody listens to this signal: Ctrl-C ends a league at once, its cells take seconds.
    ends = Pool(workers, logs, watcher).run(missing, StopSignal())
    for job, end in ends.items():
        if end.status != "done":
            again = "the same command runs what is missing, with fewer --workers if memory is short"
            raise BridgeError(f"{job.name}: {end.reason}; {again}")
    return [kept.get(job) or kept_result(job) or {} for job in jobs]


def kept_result(job: Job) -> dict[str, Any] | None:
    """What a cell's folder has, under the names of its job; None if it was not run."""

    def read(path: Path) -> dict[str, Any]:
        result = read_result(path)
        store.require_intact(result.job == job.identity, path, "it belongs to another cell")
        return cell_result(job, result.data)

    return read_kept(job.folder / RESULT, read)


def cell_result(job: Job, data: dict[str, Any]) -> dict[str, Any]:
    """What a league's tables and pictures show of one of its jobs."""
    names = {"problem": job.task, "entrant": job.setting, "seed": job.seed}
    return {**names, "identity": job.work, **data}
