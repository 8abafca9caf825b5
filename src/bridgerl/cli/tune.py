"""The verb `tune`."""

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

import tyro

from bridgerl.cli.campaign import CORES, LOGS, Campaign, check_machines
from bridgerl.cli.flags import parse_some
from bridgerl.cli.grid import (
    config_of,
    folder_name,
    jobs_of,
    read_space,
    refuse_mixtures,
    setting_of,
)
from bridgerl.cli.output import make_folder
from bridgerl.errors import require, require_name, require_seeds, require_some
from bridgerl.report.build import check_extras
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.studies.jobs import Job
from bridgerl.studies.manifest import Manifest, write_manifest
from bridgerl.studies.run.board import Board
from bridgerl.studies.run.pool import Pool
from bridgerl.studies.run.tuning import Space, Tuning, import_optuna
from bridgerl.studies.run.work import JobEnd
from bridgerl.training.process import StopSignal


@dataclass(frozen=True)
class Tune:
    """Search for good settings with Optuna, trial by trial, and write a report of all trials.

    Besides the flags below it takes those of `train`, which all runs share. The same command again
    runs exactly the trials that are missing, and resumes broken ones; a larger --trials adds some.
    Example: bridgerl tune --env Pendulum-v1 --search critic.lr=1e-4..1e-2:log --trials 20
    """

    search: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FLAG=VALUES ...")]
    """Flags of `train` with what they may be: critic.lr=1e-4..1e-2:log, train.n-step=1..5 (whole
    numbers), critic=dbc,iqn (one of these); true and false for switches."""
    trials: int = 20
    """Trials in all, those of earlier starts included."""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = (0,)
    """Seeds of every trial, whose mean counts."""
    measure: Literal["average", "final", "best"] = "average"
    """What is to be large: the mean of all evaluations, the last, or the best."""
    sampler_seed: int = 0
    """Seed of Optuna's draws."""
    name: str | None = None
    """Folder of this search below --out; by default made of what is searched."""
    out: Path = Path("tunings")
    """Folder of all searches."""
    workers: int = CORES
    """Runs at a time; with one, the same command gives the same trials."""
    report: bool = True
    """Write the report when the runs are over."""
    json: bool = False
    """Print JSON."""
    flags: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The flags that every run hands on to `train`."""
    typed: tyro.conf.Suppress[str] = ""

    @classmethod
    def read(cls, args: list[str]) -> Self:
        """Read a search's own flags; all others are those of `train`."""
        own, rest = parse_some(cls, args, "tune")
        return replace(own, flags=tuple(rest), typed=shlex.join(["bridgerl", "tune", *args]))

    def __call__(self) -> int:
        """Run the missing trials; 0 when all are done, 1 when not, 128 + n after a signal."""
        spaces, name = self._check()
        campaign = Campaign(f"search {name}", self.out, name, self.workers, None, 0.0)
        campaign = replace(campaign, report=self.report, json=self.json)
        folder = campaign.folder
        make_folder(self.out, f"{name}/{LOGS}")
        lock = RunFolder(folder).lock()
        try:
            make_jobs = partial(self._jobs, folder / "runs")
            tuning = Tuning(folder, spaces, make_jobs, self.measure, self.sampler_seed)
            refuse_mixtures(tuning.jobs(self.trials), "give this search another --name")
            ends, stop = self._run(tuning, campaign)
            jobs = tuning.jobs(self.trials)
            all_done = campaign.conclude(jobs, ends) and len(tuning.trials) >= self.trials
            self._tell_best(tuning)
        finally:
            lock.release()
        return 128 + stop.number if stop.number is not None else int(not all_done)

    def _check(self) -> tuple[list[Space], str]:
        """Refuse what cannot be run before anything is written; the spaces, and a folder's name."""
        import_optuna()
        if self.report:
            check_extras()
        check_machines(self.workers, 0.0)
        require(1 <= self.trials <= 10_000, "trials", self.trials, "must be from 1 to 10000")
        require_some("seeds", self.seeds)
        require_seeds("seeds", *self.seeds)
        require_seeds("sampler-seed", self.sampler_seed)
        spaces = [read_space(text) for text in self.search]
        require_some("search", tuple(space.key for space in spaces))
        # Whatever is wrong with a flag shows at the ends of its range.
        for end in ("low", "high"):
            config = config_of(self.flags, {s.key: _end(s, end) for s in spaces})
        words = [config.env, *(space.key for space in spaces)]
        if self.name is not None:
            require_name("name", self.name)
        return spaces, self.name or folder_name(" ".join(words)) or "search"

    def _jobs(self, out: Path, number: int, chosen: dict[str, str]) -> list[Job]:
        setting = f"trial {number:03d} {setting_of(chosen)}"
        return jobs_of(config_of(self.flags, chosen), setting, out, self.seeds)

    def _run(self, tuning: Tuning, campaign: Campaign) -> tuple[dict[Job, JobEnd], StopSignal]:
        """Run what is missing; the list of jobs grows with every choice."""
        board = _Board(tuning, quiet=self.json)

        def keep_list() -> None:
            folders = {job.folder: job for job in tuning.jobs(self.trials)}
            manifest = Manifest(campaign.inside, "", self.seeds, 0.0, folders, self.typed)
            write_manifest(campaign.folder, manifest)
            for path in folders:
                store.refuse_links(path, self.out)

        keep_list()
        pool, stop = Pool(self.workers, campaign.folder / LOGS, board), StopSignal()
        with stop, board:
            return pool.run(tuning.missing(self.trials, keep_list), stop), stop

    def _tell_best(self, tuning: Tuning) -> None:
        found = tuning.best()
        if found is None or self.json:
            return
        number, score = found
        job = tuning.jobs_of(number)[0]
        print(f"best: {job.setting}, {self.measure} return {score:.1f}\n{job.command}")


def _end(space: Space, end: str) -> str:
    """A value at one end of what a flag may be."""
    if space.choices:
        return space.choices[0 if end == "low" else -1]
    value = getattr(space, end)
    return str(int(value) if space.whole else value)


class _Board(Board):
    """Tells the tuning which jobs failed, and counts the jobs there are so far."""

    def __init__(self, tuning: Tuning, *, quiet: bool) -> None:
        self._tuning, self._seen = tuning, list[Job]()
        super().__init__(self._seen, quiet=quiet)

    def started(self, job: Job) -> None:
        self._see(job)
        super().started(job)

    def ended(self, job: Job, end: JobEnd) -> None:
        self._see(job)  # Some fail before they start.
        if end.status == "failed":
            self._tuning.failed.add(job)
        super().ended(job, end)

    def _see(self, job: Job) -> None:
        if job not in self._seen:
            self._seen.append(job)
