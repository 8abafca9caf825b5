"""The verbs `plan` and `reproduce`."""

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table

from bridgerl.cli.flags import PROGRAM
from bridgerl.cli.output import make_folder, progress, writing
from bridgerl.cli.report import outline
from bridgerl.errors import UserError, choose, require, require_seeds, require_some
from bridgerl.report.build import build_report, check_extras
from bridgerl.runs import store
from bridgerl.studies import SCALES, STUDIES
from bridgerl.studies.jobs import Job
from bridgerl.studies.manifest import Manifest, write_manifest
from bridgerl.studies.run.board import Board
from bridgerl.studies.run.cluster import Cluster
from bridgerl.studies.run.cost import estimate, measure_costs
from bridgerl.studies.run.pictures import draw
from bridgerl.studies.run.pool import Pool
from bridgerl.studies.run.work import JobEnd
from bridgerl.training.process import StopSignal

StudyName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
ScaleName = Literal["smoke", "cpu", "paper"]


@dataclass(frozen=True)
class _Selection:
    """Which part of a study."""

    study: StudyName
    """Table or figure, see bridgerl list."""
    scale: ScaleName = "smoke"
    """smoke: minutes. cpu: hours on a few cores. paper: the paper's own size."""
    seeds: Annotated[tuple[int, ...] | None, tyro.conf.arg(metavar="INT ...")] = None
    """Seeds instead of the scale's own."""
    only: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Runs whose name (TASK/SETTING/seedN) contains one of these, or matches it as a pattern."""
    out: Path = Path("studies")
    """Folder of all studies; equal runs of several studies are shared."""
    gpus: float = 0.0
    """GPUs per run; above 0 runs train on cuda, and Ray gives each so much of one."""
    workers: int = os.cpu_count() or 1
    """Runs at a time on this machine."""
    json: bool = False
    """Print JSON."""

    @property
    def folder(self) -> Path:
        return self.out / self.scale / self.study

    def all_jobs(self, out: Path) -> list[Job]:
        for name, values in (("seeds", self.seeds), ("only", self.only)):
            if values is not None:
                require_some(name, values)
        require_seeds("seeds", *(self.seeds or ()))
        require(0 <= self.gpus <= 16, "gpus", self.gpus, "must be from 0 to 16")
        require(1 <= self.workers <= 1024, "workers", self.workers, "must be from 1 to 1024")
        study, device = choose("study", self.study, STUDIES), "cuda" if self.gpus else "cpu"
        return study.jobs(self.scale, out, self.seeds, device)

    def _check_gpus(self) -> None:
        if self.gpus > 0 and not torch.cuda.is_available():
            raise UserError(f"--gpus {self.gpus:g} needs CUDA, which is not here; leave it out")

    def select(self, jobs: list[Job]) -> list[Job]:
        if self.only is None:
            return jobs
        chosen: set[Job] = set()
        for pattern in self.only:
            fits = {job for job in jobs if pattern in job.name or fnmatch(job.name, pattern)}
            if not fits:
                names = ", ".join(job.name for job in jobs[:3])
                raise UserError(f"--only {pattern} fits no run; names are like {names}")
            chosen |= fits
        return [job for job in jobs if job in chosen]


@dataclass(frozen=True)
class Plan(_Selection):
    """Say what a study costs on this machine before it is run.

    A minute's calibration measures a step of every setting on every task; finished runs are free.
    Hours are told for 1, for 8 and for --workers runs at a time.
    Example: bridgerl plan main --scale cpu --workers 2
    """

    seconds: float = 60.0
    """Length of the calibration."""

    def __call__(self) -> int:
        self._check_gpus()
        require(0 < self.seconds < 1e6, "seconds", self.seconds, "must be positive")
        jobs = self.select(self.all_jobs(self.out))
        left = [job for job in jobs if not job.done()]
        with progress(len({(job.setting, job.task) for job in left}), "calibration") as bar:
            costs = measure_costs(left, self.seconds, lambda: bar.advance(bar.task_ids[0]))
        facts = estimate(jobs, left, costs, self.workers)
        gpu_hours = self.gpus * facts["core_hours"]
        facts |= {"study": self.study, "scale": self.scale, "gpu_hours": gpu_hours}
        print(json.dumps(facts)) if self.json else _show(facts)
        return 0


def _show(facts: dict[str, Any]) -> None:
    table = Table(title=f"{facts['study']}, scale {facts['scale']}: {SCALES[facts['scale']].says}")
    for head in ("setting", "task", "runs", "steps/s", "a run takes"):
        side = "left" if head in ("setting", "task") else "right"
        table.add_column(head, justify=side, overflow="fold")
    for row in facts["settings"]:
        speed, time = f"{row['steps_per_second']:.3g}", _duration(row["hours_per_run"])
        table.add_row(row["setting"], row["task"], str(row["runs"]), speed, time)
    if facts["settings"]:
        Console(highlight=False).print(table)
    gpu = f"{_amount(facts['gpu_hours'])} GPU-hours, " if facts["gpu_hours"] else ""
    print(
        f"{facts['runs']} runs, {facts['finished']} finished; left: {facts['steps']:,} steps, "
        f"{_amount(facts['core_hours'])} core-hours, {gpu}{_amount(facts['disk_gb'])} GB on disk"
    )
    if facts["finished"] == facts["runs"]:
        return
    for n, hours in facts["hours_by_workers"].items():
        print(f"  {n:>3} at a time, each on a core of its own: {_duration(hours)}")
    print("one thread per run, measured on this machine; episodes of evaluations at full length")


def _amount(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.1f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


@dataclass(frozen=True)
class Reproduce(_Selection):
    """Run a table or figure of the paper, or what is left of it, and write its report.

    Finished runs are skipped, broken ones resumed; Ctrl-C loses nothing.
    Example: bridgerl reproduce main --scale cpu --only HalfCheetah-v5
    """

    ray: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[ADDRESS]")] = None
    """Hand the runs to a Ray cluster: its address, or nothing for the one that is found."""
    dry_run: bool = False
    """List the runs and their state, and do nothing."""
    report: bool = True
    """Write the report when the runs are over."""

    def __call__(self) -> int:
        """Run what is left, report; 0 when all is done, 1 when not, 128 + n after a signal."""
        require(len(self.ray or ()) <= 1, "ray", self.ray, "takes one address")
        # Workers of a cluster have working folders of their own.
        out = self.out if self.ray is None else self.out.absolute()
        everything = self.all_jobs(out)
        jobs = self.select(everything)
        left = [job for job in jobs if not job.done()]
        if self.dry_run:
            self._list(jobs, left)
            return 0
        # What runs would fail for one by one is refused here.
        if self.report:
            check_extras()
        if self.ray is None:
            self._check_gpus()
        board = Board(left, quiet=self.json)
        runner = self._runner(board) if left else None
        make_folder(self.out, f"{self.scale}/{self.study}/logs")
        for job in left:
            store.refuse_links(job.folder, out)
        folders = {job.folder: job for job in everything}
        manifest = Manifest(self.study, self.scale, self.seeds, self.gpus, folders)
        with writing(self.folder):
            write_manifest(self.folder, manifest)
        ends, stop = dict[Job, JobEnd](), StopSignal()
        if runner:
            board.say(f"{self.study} at scale {self.scale}, {len(left)} to run:")
            with stop, board:
                ends = runner.run(left, stop)
        if self.report:
            self._draw(everything)
        all_done = self._conclude(jobs, ends)
        return 128 + stop.number if stop.number is not None else int(not all_done)

    def _runner(self, board: Board) -> Pool | Cluster:
        if self.ray is None:
            return Pool(self.workers, self.folder / "logs", board)
        return Cluster(self.ray[0] if self.ray else "auto", self.gpus, board)

    def _draw(self, everything: list[Job]) -> None:
        """The study's own pictures; the report does without if need be."""
        try:
            draw(everything, self.folder)
        except OSError as error:
            print(f"{PROGRAM}: warning: no picture: {error}", file=sys.stderr)

    def _conclude(self, jobs: list[Job], ends: dict[Job, JobEnd]) -> bool:
        """Count, write the report, say what failed; whether all jobs are done."""
        counts = Counter(end.status for end in ends.values())
        failed = {job.name: o.reason for job, o in ends.items() if o.status == "failed"}
        finished = sum(job.done() for job in jobs)
        summary: dict[str, Any] = {"runs": len(jobs), "finished": finished, "ran": counts["done"]}
        summary |= {"stopped": counts["stopped"], "failed": failed, "folder": str(self.folder)}
        results = build_report(self.folder) if self.report else None
        if results:
            names = {"claims": "counts", "report": "page", "problems": "problems"}
            summary |= {name: results[key] for name, key in names.items()}
        if self.json:
            print(json.dumps(summary))
            return finished == len(jobs)
        print(f"{finished} of {len(jobs)} runs finished")
        for name, reason in failed.items():
            print(f"failed: {name}: {reason}")
        if failed:
            print(f"logs: {self.folder / 'logs'}, and run.log in the folders of the runs;")
            print("move a run's folder away to start it anew")
        if finished + len(failed) < len(jobs):
            print("the same command goes on where this one ended")
        print(*(outline(results) if results else [f"results: {self.folder}"]), sep="\n")
        return finished == len(jobs)

    def _list(self, jobs: list[Job], left: list[Job]) -> None:
        rows, steps = [], {job: job.progress() for job in left}
        for job in jobs:
            begun = f"at {steps[job]:,}" if steps.get(job) else "not begun"
            state = begun if job in steps else "finished"
            rows.append({"name": job.name, "state": state, "command": job.command})
        if self.json:
            print(json.dumps(rows))
            return
        for row in rows:
            print(f"{row['state']:<12} {row['name']}\n             {row['command']}")
        print(f"{len(jobs)} runs, {len(jobs) - len(left)} finished")
