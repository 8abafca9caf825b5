"""The verb `sweep`."""

import math
import shlex
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Self

import tyro

from bridgerl.cli.campaign import (
    CORES,
    Campaign,
    Only,
    RayAddress,
    check_machines,
    list_jobs,
    select,
)
from bridgerl.cli.flags import parse_some
from bridgerl.cli.grid import (
    Axis,
    config_of,
    folder_name,
    jobs_of,
    read_axis,
    refuse_mixtures,
    setting_of,
)
from bridgerl.config import RunConfig
from bridgerl.errors import require, require_name, require_some
from bridgerl.studies.manifest import Manifest

MOST_RUNS = 10_000


@dataclass(frozen=True)
class Sweep:
    """Train every combination of settings, or what is left of them, and write their report.

    Besides the flags below it takes those of `train`, which all runs share. Finished runs are
    skipped, broken ones resumed; Ctrl-C loses nothing.
    Example: bridgerl sweep --env Pendulum-v1 --vary critic=dbc,iqn critic.lr=3e-4,1e-3 --seeds 0 1
    """

    vary: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FLAG=VALUES ...")]
    """Flags of `train` with their values: critic=dbc,iqn, train.n-step=1..3 (whole numbers) or
    critic.lr=1e-4..1e-2:5:log (five values); true and false for switches."""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = (0,)
    """Seeds of every combination."""
    name: str | None = None
    """Folder of this sweep below --out; by default made of what is varied."""
    only: Only = None
    """Runs whose name (TASK/SETTING/seedN) contains one of these, or matches it as a pattern."""
    out: Path = Path("sweeps")
    """Folder of all sweeps."""
    workers: int = CORES
    """Runs at a time on this machine."""
    gpus: float = 0.0
    """GPUs per run; above 0 runs train on cuda, and Ray gives each so much of one."""
    ray: RayAddress = None
    """Hand the runs to a Ray cluster: its address, or nothing for the one that is found."""
    dry_run: bool = False
    """List the runs and their state, and do nothing."""
    report: bool = True
    """Write the report when the runs are over."""
    json: bool = False
    """Print JSON."""
    flags: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The flags that every run hands on to `train`."""
    typed: tyro.conf.Suppress[str] = ""

    @classmethod
    def read(cls, args: list[str]) -> Self:
        """Read a sweep's own flags; all others are those of `train`."""
        own, rest = parse_some(cls, args, "sweep")
        typed = shlex.join(["bridgerl", "sweep", *args])
        return replace(own, flags=tuple(rest), typed=typed)

    def __call__(self) -> int:
        """Run what is left, report; 0 when all is done, 1 when not, 128 + n after a signal."""
        if self.only is not None:
            require_some("only", self.only)
        check_machines(self.workers, self.gpus)
        axes = [read_axis(text) for text in self.vary]
        require_some("vary", tuple(axis.key for axis in axes))
        configs = self._configs(axes)
        name = self._name(axes, configs[0][1].env)
        # Workers of a cluster have working folders of their own.
        out = self.out if self.ray is None else self.out.absolute()
        where, device = out / name / "runs", "cuda" if self.gpus else "cpu"
        groups = [jobs_of(c, setting, where, self.seeds, device) for setting, c in configs]
        # Seed by seed, so that every setting has a run before one has its second.
        everything = [job for same_seed in zip(*groups, strict=True) for job in same_seed]
        refuse_mixtures(everything, "give this sweep another --name")
        jobs = select(everything, self.only)
        if self.dry_run:
            list_jobs(jobs, as_json=self.json)
            return 0
        folders = {job.folder: job for job in everything}
        manifest = Manifest(name, "", self.seeds, self.gpus, folders, self.typed)
        how = (self.workers, self.ray, self.gpus, self.report, self.json)
        return Campaign(f"sweep {name}", out, name, *how).run(jobs, manifest)

    def _name(self, axes: list[Axis], env: str) -> str:
        if self.name is not None:
            require_name("name", self.name)
            return self.name
        keys = [axis.key for axis in axes]
        return folder_name(" ".join([*([] if "env" in keys else [env]), *keys])) or "sweep"

    def _configs(self, axes: list[Axis]) -> list[tuple[str, RunConfig]]:
        """Every combination with what tables call it."""
        count = math.prod([len(self.seeds), *(len(axis.values) for axis in axes)])
        require(
            count <= MOST_RUNS, "vary", f"{count:,} runs", f"may give {MOST_RUNS:,} runs at most"
        )
        found = []
        for values in product(*(axis.values for axis in axes)):
            chosen = dict(zip((axis.key for axis in axes), values, strict=True))
            found.append((setting_of(chosen), config_of(self.flags, chosen)))
        return found
