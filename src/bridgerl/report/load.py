"""Runs from their folders: ours, or other people's evaluations; one bad run spoils no other.

A study's folder lists its jobs; any other folder is searched.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgerl.errors import BridgeError, StorageFault, printable
from bridgerl.report.naming import label
from bridgerl.runs import records
from bridgerl.runs.ending import FILES, require_as_ended
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.records import Clock, Evaluations, Record, is_number
from bridgerl.runs.result import RESULT, Result, read_result
from bridgerl.runs.search import find_runs, walk
from bridgerl.studies import SCALES, STUDIES, Study
from bridgerl.studies.base import TrainingStudy
from bridgerl.studies.jobs import Job
from bridgerl.studies.manifest import MANIFEST, Manifest, read_manifest


class Part(NamedTuple):
    """What a run has to say of one cell of a table."""

    setting: str
    task: str
    scores: dict[str, float]
    curve: Evaluations
    exact: bool = False
    """Whether the scores follow from formulas."""


@dataclass(frozen=True)
class Run:
    """One run as the report shows it."""

    name: str
    env: str
    setting: str
    seed: int | None = None
    pair: tuple[str, str] | None = None
    """The names of actor and critic."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    clock: Clock = field(default_factory=Clock)
    scores: dict[str, float] = field(default_factory=dict)
    results: tuple[Part, ...] = ()
    """What a job that is no training found, cell by cell."""
    started: bool = True
    finished: bool = False
    planned: int | None = None
    reached: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""
    health: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The cells of tables that the run fills; a training fills one."""
        return self.results or (Part(self.setting, self.env, self.scores, self.evaluations),)


class Source(NamedTuple):
    """What was found: what was planned, if anything, and runs with their scores."""

    folder: Path
    manifest: Manifest | None
    runs: list[Run]
    problems: list[str]
    study: Study
    """The study whose measures, tables and claims apply."""


class Faults(list[str]):
    """Collects what is wrong with the files of a folder, so that the rest can still be read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._inside = f"{folder}{os.sep}"

    def or_else(self, default: Any, read: Any, *args: Any) -> Any:
        """What `read` returns, or the default and a note why not."""
        try:
            return read(*args)
        except BridgeError as error:
            self.append(str(error).replace(printable(self._inside), ""))
            return default


def load(folder: Path, own: Study | None = None) -> Source:
    """The study in a folder, or every run below it; `own` may be whose study it is."""
    faults = Faults(folder)

    def unreadable(error: OSError) -> None:
        faults.append(printable(f"{error.filename} cannot be read: {error.strerror}"))

    if os.path.lexists(folder / MANIFEST):
        manifest = faults.or_else(None, read_manifest, folder)
        if manifest is not None:
            return _planned(folder, manifest, faults, own)
    found = find_runs(folder, unreadable)
    inside = [path for path, files in walk(folder) if MANIFEST in files and path != folder]
    if len(inside) == 1:  # As `pack` keeps a study beside its runs.
        manifest = faults.or_else(None, read_manifest, inside[0])
        if manifest is not None and _all_planned(found, manifest):
            return _planned(inside[0], manifest, faults, own)
    title = _any_study(folder.resolve().name)
    return Source(folder, None, [_read_run(folder, run) for run in found], faults, title)


def _planned(folder: Path, manifest: Manifest, faults: Faults, own: Study | None) -> Source:
    """The runs of a study, whether they are there or not."""
    study = faults.or_else(_any_study(manifest.study), _study_of, manifest, own)
    runs = [_job_run(folder, path, job) for path, job in manifest.jobs.items()]
    return Source(folder, manifest, runs, faults, study)


def _all_planned(found: list[RunFolder], manifest: Manifest) -> bool:
    """Whether there is no run that is not the study's."""
    planned = {os.path.normpath(path) for path in manifest.jobs}
    return planned.issuperset(os.path.normpath(run.path) for run in found)


def _any_study(title: str) -> Study:
    """Runs that nobody planned, or by flags alone, are trainings without tables and claims."""
    return TrainingStudy("", printable(title), (), (), (), ())


def _study_of(manifest: Manifest, own: Study | None) -> Study:
    if own is not None and own.name == manifest.study:
        return own
    if manifest.scale == "":
        return _any_study(manifest.study)
    if manifest.study in STUDIES and manifest.scale in SCALES:
        return STUDIES[manifest.study]
    hint = "if you have its file, add --study-file my_study.py"
    raise StorageFault(f"{MANIFEST} is of a study that is not known here; {hint}")


def _job_run(root: Path, folder: Path, job: Job) -> Run:
    """The run of a study's job; one of another configuration is shown, but does not count."""
    texts = {"name": job.name, "env": job.task, "setting": job.setting, "command": job.command}
    names: dict[str, Any] = {key: printable(text) for key, text in texts.items()}
    names |= {"seed": job.seed, "planned": job.steps}
    trains, own = job.kind == "train", RunFolder(folder)
    files = [own.config_file, own.metrics_file, own.evaluations_file] if trains else []
    if not any(map(os.path.lexists, files or [folder / RESULT])):
        return Run(**names, started=False)
    run = replace(_read_run(root, own), **names) if trains else _read_result(folder, Run(**names))
    finished = run.finished and job.is_done_in(folder)
    whole = run.finished and run.reached >= job.steps and (run.config or not trains)
    foreign = whole and not finished
    notes = ("it is of another configuration and does not count",) if foreign else ()
    return replace(run, finished=finished, problems=(*run.problems, *notes))


def _read_result(folder: Path, run: Run) -> Run:
    """Scores and curves of a job that is no training."""
    faults, parts = Faults(folder), []
    result: Result | None = faults.or_else(None, read_result, folder / RESULT)
    if result is None:
        return replace(run, problems=tuple(faults))
    try:
        for cell in result.cells:
            lost = [key for key, v in cell.scores.items() if v is None]
            faults += [f"{printable(key)} has no value" for key in lost]
            scores = {key: float(v) for key, v in cell.scores.items() if v is not None}
            curve = Evaluations(*np.array(cell.curve, dtype=float).reshape(-1, 2).T)
            names = printable(cell.setting), printable(cell.task)
            parts.append(Part(*names, scores, curve, cell.exact is True))
    except (TypeError, ValueError, OverflowError) as error:
        faults.append(printable(f"{RESULT} is damaged: {error}"))
        parts = []
    done = {"finished": True, "reached": run.planned, "versions": _texts(result.versions)}
    return replace(run, results=tuple(parts), problems=tuple(faults), **done)


def _read_run(root: Path, run: RunFolder) -> Run:
    """A run folder of ours, or one with nothing but evaluations."""
    faults = Faults(run.path)
    read, evaluations, clock = faults.or_else, Evaluations(), Clock()
    ours = os.path.lexists(run.config_file)
    stored = read({}, run.stored) if ours else {}
    done = read(None, run.done) or {}
    log = read(None, _as_ended, run.metrics_file, done, run.records) if ours else None
    if not ours and os.path.lexists(run.metrics_file):
        faults.append(f"{run.config_file.name} is missing beside {run.metrics_file.name}")
    if log is not None:
        evaluations = read(evaluations, records.evaluations_of, log, run.metrics_file.name)
    elif run.evaluations_file.is_file():
        evaluations = read(evaluations, records.read_evaluations, run.evaluations_file)
    if run.timing_file.is_file() or run.timing_file.name in done.get(FILES, ()):
        timed = partial(records.read_clock, run.timing_file)
        clock = read(clock, _as_ended, run.timing_file, done, timed)
    exact = done["exact"] if isinstance(done.get("exact"), bool) else None
    config = stored.get("config", {})
    scores = read({}, _scores, evaluations, done, run.metrics_file.name)
    tails = _tails(log) if scores and log is not None else {}
    actor, critic, train = (config.get(section, {}) for section in ("actor", "critic", "train"))
    warmup = train.get("warmup")
    hours = clock.hours_per_million(warmup) if is_number(warmup) else None
    last = [int(s[-1]) for s in (clock.steps, evaluations.steps) if len(s)]
    health = {} if log is None else _health(log, critic.get("grad_clip"))
    return Run(
        **label(root, run.path, config),
        pair=(printable(actor.get("type")), printable(critic.get("type"))) if config else None,
        evaluations=evaluations,
        clock=clock,
        scores=scores | tails | ({} if hours is None else {"hours": hours}),
        # Other people's folders do not tell whether there is more to come.
        finished="step" in done or (not ours and len(evaluations.steps) > 0),
        planned=config.get("steps"),
        reached=done.get("step", max(last, default=0)),
        config=config,
        versions=_texts(stored.get("versions")),
        command=printable(read("", run.command)) if stored else "",
        health=health | {"exact": exact, "values": read(None, run.values)},
        problems=tuple(dict.fromkeys(faults)),
    )


def _as_ended(log: Path, done: dict[str, Any], read: Callable[[], Any]) -> Any:
    """What a log says, if it is as the run left it."""
    require_as_ended(log, done)
    return read()


def _scores(evaluations: Evaluations, done: dict[str, Any], log: str) -> dict[str, float]:
    """Scores that agree with what the run itself said at its end: lost lines would change them."""
    found, scores = evaluations.summary(), {}
    for key in ("best", "final", "average"):
        said, score = done.get(f"{key}_return"), found.get(f"{key}_return", math.nan)
        if isinstance(said, float) and not math.isclose(score, said, rel_tol=1e-6, abs_tol=1e-6):
            raise StorageFault(
                f"{log} has lost lines, its scores do not count: {key} was {said:.1f} "
                f"when the run ended, now {score:.1f}"
            )
        scores[key] = score
    return scores if found else {}


def _tails(log: list[Record]) -> dict[str, float]:
    """Mean of a run's late episodes, and of the worst tenth of them: CVaR 0.1."""
    late = records.late_episodes(log)
    worst = late[: max(len(late) // 10, 1)]
    return {"late": float(late.mean()), "late_cvar_10": float(worst.mean())}


def _health(log: list[Record], clip: Any) -> dict[str, Any]:
    """Signs of trouble in the log of metrics: what is None was not logged."""

    def numbers(key: str) -> list[float]:
        return [r[key] for r in log if r["kind"] == "train" and is_number(r.get(key))]

    norms, bounds = numbers("critic/grad_norm"), numbers("critic/q_over_bound")
    can_clip = bool(norms) and is_number(clip)
    diverged = [r.get(k) for r in log for k in ("episode/diverged", "eval/diverged")]
    return {
        "not_finite": sum(value is None for r in log for value in r.values()),
        "diverged": sum(int(n) for n in diverged if isinstance(n, int)),
        "clipped": sum(n > clip for n in norms) / len(norms) if can_clip else None,
        "q_over_bound": max(bounds, default=None),
    }


def _texts(data: Any) -> dict[str, str]:
    pairs = data.items() if isinstance(data, dict) else ()
    return {printable(k): printable(v) for k, v in pairs}
