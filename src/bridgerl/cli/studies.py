"""The verbs `plan` and `reproduce`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from bridgerl.cli.campaign import (
    CORES,
    Campaign,
    Only,
    RayAddress,
    Seeds,
    check_gpus,
    check_machines,
    list_jobs,
    select,
)
from bridgerl.cli.output import progress
from bridgerl.errors import require, require_seeds, require_some
from bridgerl.studies import SCALES
from bridgerl.studies.jobs import Job
from bridgerl.studies.manifest import Manifest, asked_seeds, seeds_of
from bridgerl.studies.own import find_study
from bridgerl.studies.run.cost import estimate, measure_costs

StudyName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
ScaleName = Literal["smoke", "cpu", "paper"]


@dataclass(frozen=True)
class _Selection:
    """Which part of a study."""

    study: StudyName
    """Table or figure, see bridgerl list; or a file of your own, my_study.py."""
    scale: ScaleName = "smoke"
    """smoke: minutes. cpu: hours on a few cores. paper: the paper's own size."""
    seeds: Seeds = None
    """Seeds instead of the scale's own."""
    only: Only = None
    """Runs whose name (TASK/SETTING/seedN) contains one of these, or matches it as a pattern."""
    out: Path = Path("studies")
    """Folder of all studies; equal runs of several studies are shared."""
    gpus: float = 0.0
    """GPUs per run; above 0 runs train on cuda, and Ray gives each so much of one."""
    workers: int = CORES
    """Runs at a time on this machine."""
    json: bool = False
    """Print JSON."""

    def all_jobs(self, out: Path) -> list[Job]:
        for name, values in (("seeds", self.seeds), ("only", self.only)):
            if values is not None:
                require_some(name, values)
        require_seeds("seeds", *(self.seeds or ()))
        check_machines(self.workers, self.gpus)
        return self.jobs_of(out, self.seeds)

    def jobs_of(self, out: Path, seeds: tuple[int, ...] | None) -> list[Job]:
        device = "cuda" if self.gpus else "cpu"
        return find_study(self.study).jobs(self.scale, out, seeds, device)


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
        check_gpus(self.gpus)
        require(0 < self.seconds < 1e6, "seconds", self.seconds, "must be positive")
        jobs = select(self.all_jobs(self.out), self.only)
        left = [job for job in jobs if not job.done()]
        with progress(len({(job.setting, job.task) for job in left}), "calibration") as bar:
            costs = measure_costs(left, self.seconds, bar.tick)
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

    Finished runs are skipped, broken ones resumed; Ctrl-C loses nothing. The report also shows
    the seeds of earlier calls.
    Example: bridgerl reproduce main --scale cpu --only HalfCheetah-v5
    """

    ray: RayAddress = None
    """Hand the runs to a Ray cluster: its address, or nothing for the one that is found."""
    dry_run: bool = False
    """List the runs and their state, and do nothing."""
    report: bool = True
    """Write the report when the runs are over."""

    def __call__(self) -> int:
        """Run what is left, report; 0 when all is done, 1 when not, 128 + n after a signal."""
        # Workers of a cluster have working folders of their own.
        out = self.out if self.ray is None else self.out.absolute()
        asked = self.all_jobs(out)
        jobs = select(asked, self.only)
        if self.dry_run:
            list_jobs(jobs, as_json=self.json)
            return 0
        study = find_study(self.study)
        title, inside = f"{study.name} at scale {self.scale}", f"{self.scale}/{study.name}"
        seeds = self._seeds_so_far(asked, out / inside)
        folders = {job.folder: job for job in self.jobs_of(out, seeds)}
        manifest = Manifest(study.name, self.scale, seeds, self.gpus, folders)
        how = (self.workers, self.ray, self.gpus, self.report, self.json)
        return Campaign(title, out, inside, *how, study=study).run(jobs, manifest)

    def _seeds_so_far(self, asked: list[Job], folder: Path) -> tuple[int, ...] | None:
        """The seeds of this call and of earlier ones; None if they are the study's own."""
        seeds = seeds_of(asked) | asked_seeds(folder)
        own = seeds_of(self.jobs_of(Path(), None))
        return None if seeds == own else tuple(sorted(seeds))
