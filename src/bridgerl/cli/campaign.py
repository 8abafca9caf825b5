"""Many runs as one command: what is left is run, here or over Ray; at the end stands a page."""

import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from bridgerl.cli.flags import PROGRAM
from bridgerl.cli.output import counted, make_folder, writing
from bridgerl.cli.report import outline
from bridgerl.config import RunConfig
from bridgerl.errors import UserError, require, require_seeds, require_some
from bridgerl.report.build import build_report, check_extras
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.versions import usable_cores
from bridgerl.studies.base import Study
from bridgerl.studies.jobs import Job, train_job
from bridgerl.studies.manifest import Manifest, write_manifest
from bridgerl.studies.run.board import Board
from bridgerl.studies.run.cluster import Cluster
from bridgerl.studies.run.pictures import draw
from bridgerl.studies.run.pool import Pool
from bridgerl.studies.run.work import JobEnd
from bridgerl.training.process import StopSignal

Seeds = Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT ...")]
Only = Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")]
RayAddress = Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")]
CORES = len(usable_cores())
LOGS = "logs"


def select(jobs: list[Job], only: tuple[str, ...] | None) -> list[Job]:
    """Jobs whose name contains one of the words, or matches it as a pattern; all without any."""
    if only is None:
        return jobs
    chosen: set[Job] = set()
    for pattern in only:
        fits = {job for job in jobs if pattern in job.name or fnmatch(job.name, pattern)}
        if not fits:
            names = ", ".join(job.name for job in jobs[:3])
            raise UserError(f"--only {pattern} fits no run; names are like {names}")
        chosen |= fits
    return [job for job in jobs if job in chosen]


def check_machines(workers: int, gpus: float) -> None:
    """Refuse numbers of workers and GPUs that make no sense."""
    require(0 <= gpus <= 16, "gpus", gpus, "must be from 0 to 16")
    require(1 <= workers <= 1024, "workers", workers, "must be from 1 to 1024")


def check_gpus(gpus: float) -> None:
    """Refuse GPUs where there are none."""
    if gpus > 0 and not torch.cuda.is_available():
        raise UserError(f"--gpus {gpus:g} needs CUDA, which is not here; leave it out")


def list_jobs(jobs: list[Job], *, as_json: bool) -> None:
    """Every run with its state and the command that repeats it alone."""
    rows, left = [], [job for job in jobs if not job.done()]
    steps = {job: job.progress() for job in left}
    for job in jobs:
        begun = f"at {steps[job]:,}" if steps.get(job) else "not begun"
        state = begun if job in steps else "finished"
        rows.append({"name": job.name, "state": state, "command": job.command})
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['state']:<12} {row['name']}\n             {row['command']}")
    print(f"{len(jobs)} runs, {len(jobs) - len(left)} finished")


@dataclass(frozen=True)
class Campaign:
    """Jobs under one folder, which gets their logs, the list of them and the page."""

    title: str
    out: Path
    """Where nothing is written through a link."""
    inside: str
    """The folder of logs, list and page, below it."""
    workers: int = CORES
    ray: tuple[str, ...] | None = None
    gpus: float = 0.0
    report: bool = True
    json: bool = False
    quiet: bool = False
    study: Study | None = None
    """The study whose claims the page judges, if any."""

    @property
    def folder(self) -> Path:
        return self.out / self.inside

    def run(self, jobs: list[Job], manifest: Manifest | None = None) -> int:
        """Run what is left of jobs, report; 0 if all is done, 1 if not, 128 + n after a signal."""
        require(len(self.ray or ()) <= 1, "ray", self.ray, "takes one address")
        left = [job for job in jobs if not job.done()]
        # What runs would fail for one by one is refused here.
        if self.report:
            check_extras()
        if self.ray is None:
            check_gpus(self.gpus)
        board = Board(left, quiet=self.json or self.quiet)
        runner = self._runner(board) if left else None
        make_folder(self.out, f"{self.inside}/{LOGS}")
        for job in left:
            store.refuse_links(job.folder, self.out)
        if manifest is not None:
            with writing(self.folder):
                write_manifest(self.folder, manifest)
        ends, stop = dict[Job, JobEnd](), StopSignal()
        if runner:
            board.say(f"{self.title}, {len(left)} to run:")
            with stop, board:
                ends = runner.run(left, stop)
        if self.report and manifest is not None:
            self._draw(list(manifest.jobs.values()))
        all_done = self.conclude(jobs, ends)
        return 128 + stop.number if stop.number is not None else int(not all_done)

    def _runner(self, board: Board) -> Pool | Cluster:
        if self.ray is None:
            return Pool(self.workers, self.folder / LOGS, board)
        return Cluster(self.ray[0] if self.ray else "auto", self.gpus, board)

    def _draw(self, everything: list[Job]) -> None:
        """The study's own pictures; the report does without if need be."""
        try:
            draw(everything, self.folder)
        except OSError as error:
            print(f"{PROGRAM}: warning: no picture: {error}", file=sys.stderr)

    def conclude(self, jobs: list[Job], ends: dict[Job, JobEnd]) -> bool:
        """Count, write the report, say what failed; whether all jobs are done."""
        counts = Counter(end.status for end in ends.values())
        failed = {job.name: o.reason for job, o in ends.items() if o.status == "failed"}
        finished = sum(job.done() for job in jobs)
        summary: dict[str, Any] = {"runs": len(jobs), "finished": finished, "ran": counts["done"]}
        summary |= {"stopped": counts["stopped"], "failed": failed, "folder": str(self.folder)}
        results = build_report(self.folder, study=self.study) if self.report else None
        if results:
            names = {"claims": "counts", "report": "page", "problems": "problems"}
            summary |= {name: results[key] for name, key in names.items()}
        if self.json:
            print(json.dumps(summary))
            return finished == len(jobs)
        if self.quiet and finished == len(jobs):
            return True
        print(f"{finished} of {len(jobs)} runs finished")
        for name, reason in failed.items():
            print(f"failed: {name}: {reason}")
        if failed:
            print(f"logs: {self.folder / LOGS}, and run.log in the folders of the runs;")
            print("move a run's folder away to start it anew")
        if finished + len(failed) < len(jobs):
            print("the same command goes on where this one ended")
        print(*(outline(results) if results else [f"results: {self.folder}"]), sep="\n")
        return finished == len(jobs)


def train_seeds(
    config: RunConfig, seeds: tuple[int, ...], workers: int, *, quiet: bool = False
) -> int:
    """One run per seed, several at a time; then their scores beside each other."""
    check_machines(workers, 0.0)
    require_some("seeds", seeds)
    require_seeds("seeds", *seeds)
    fixed = config.train.threads > 0
    require(fixed, "train.threads", 0, "must be a number where runs share cores")
    label = f"{config.actor_name}+{config.critic_name}"
    jobs = [train_job(label, replace(config, seed=seed)) for seed in seeds]
    inside = str(config.folder.parent.relative_to(config.out))
    title = f"{config.env}: {label} ({config.preset}), {config.steps:,} steps"
    campaign = Campaign(title, config.out, inside, workers, report=False, quiet=quiet)
    code = campaign.run(jobs)
    done = [RunFolder(job.folder).done() or {} for job in jobs if job.done()]
    for key in ("best", "final", "average") if done and not quiet else ():
        scores = [figures[f"{key}_return"] for figures in done]
        spread = f" +- {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
        print(f"{key:<8} {np.mean(scores):.1f}{spread} over {counted(len(scores), 'seed')}")
    return code
