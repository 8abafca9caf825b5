"""study.json: which jobs make up a study, for its report and for whoever goes on with it."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bridgerl.errors import BridgeError, StorageFault
from bridgerl.runs import store
from bridgerl.studies.jobs import Job, job_from

MANIFEST, FORMAT = "study.json", 2
"""Name and version of the file that lists a study's jobs; the first had no checksum."""


class Manifest(NamedTuple):
    """A study as it was asked for, with the folder of every job."""

    study: str
    scale: str
    """Empty for a sweep, which has none."""
    seeds: tuple[int, ...] | None
    """The seeds that were asked for; None stands for the scale's own."""
    gpus: float
    jobs: dict[Path, Job]
    command: str = ""
    """The command that goes on with the study, where its name and scale do not tell."""


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the list into the study's folder; a folder of runs may move together with it."""
    folders = {job: os.path.relpath(path, folder) for path, job in manifest.jobs.items()}
    jobs = [job.to_json() | {"folder": path} for job, path in folders.items()]
    data = manifest._asdict() | {"jobs": jobs, "format": FORMAT}
    store.publish_file(folder / MANIFEST, store.to_sealed_json(data))


def read_manifest(folder: Path) -> Manifest:
    """Read it back; StorageFault if it is not one of ours."""
    text = store.read_json_bytes(folder / MANIFEST)
    data = store.parse_json(text, MANIFEST)
    if isinstance(data, dict) and {store.SEAL, "format"} & data.keys():
        data = store.open_sealed_json(text, MANIFEST)
    try:
        listed = [job_from(row) for row in data["jobs"]]
        jobs = {folder / job.folder: replace(job, folder=folder / job.folder) for job in listed}
        seeds = None if data["seeds"] is None else tuple(int(seed) for seed in data["seeds"])
        study, scale, gpus = str(data["study"]), str(data["scale"]), float(data["gpus"])
        command = str(data.get("command", ""))
    except (KeyError, TypeError, ValueError, OverflowError, BridgeError) as error:
        raise StorageFault(f"{MANIFEST} is not one of ours: {error!r}") from None
    return Manifest(study, scale, seeds, gpus, jobs, command)


def asked_seeds(folder: Path) -> set[int]:
    """Seeds that a study was asked for so far."""
    try:
        return seeds_of(read_manifest(folder).jobs.values())
    except (OSError, BridgeError):
        return set()


def seeds_of(jobs: Iterable[Job]) -> set[int]:
    """Seeds of jobs; what follows from formulas has none."""
    return {job.seed for job in jobs if job.seed is not None}
