"""Runs from their folders: ours, or other people's evaluations.npz; one bad run spoils no other.

A study's folder lists its runs in study.json; any other folder is searched.
"""

import math
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgerl.config import decode
from bridgerl.errors import BridgeError, StorageFault
from bridgerl.report import logs
from bridgerl.report.logs import Clock, Evaluations
from bridgerl.report.stats import measure_run
from bridgerl.runs import store
from bridgerl.runs.log import read_metrics
from bridgerl.studies import SCALES, STUDIES, Study
from bridgerl.studies.degradation import ToyStudy
from bridgerl.studies.jobs import Job, ToyJob, command_of
from bridgerl.studies.manifest import MANIFEST, Manifest, read_manifest
from bridgerl.truth.calibration import FILE as VALUES

NPZ = "evaluations.npz"
UNKNOWN = "unnamed task"
NOTHING = Evaluations(np.empty(0), np.empty(0))
NO_CLOCK = Clock(np.empty(0), np.empty(0), 0.0)
INSIDE_A_RUN = {"ckpt", "replay", "tb"}
_ENV = re.compile(r"(.+-v\d+)(?:_(\d+))?")
_SEED = re.compile(r"seed[_-]?(\d+)")


@dataclass(frozen=True)
class Run:
    """One run as the report shows it."""

    name: str
    folder: Path
    env: str
    setting: str
    seed: int | None = None
    pair: tuple[str, str] | None = None
    """Actor and critic."""
    evaluations: Evaluations = NOTHING
    clock: Clock = NO_CLOCK
    scores: dict[str, float] = field(default_factory=dict)
    """By measure."""
    started: bool = True
    finished: bool = False
    planned: int | None = None
    """Steps it should do."""
    reached: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    command: str = ""
    health: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Source(NamedTuple):
    """What was found: the study, if any, and runs with their scores."""

    folder: Path
    manifest: Manifest | None
    runs: list[Run]
    problems: list[str]

    @property
    def study(self) -> Study | None:
        """The study that the runs belong to."""
        return STUDIES[self.manifest.study] if self.manifest else None


class Faults(list[str]):
    """Collects what is wrong with a run's files, so that the rest can still be read."""

    def or_else(self, default: Any, read: Any, *args: Any) -> Any:
        """What `read` returns, or the default and a note why not."""
        try:
            return read(*args)
        except BridgeError as error:
            self.append(str(error))
            return default


def load(folder: Path) -> Source:
    """The study that lies in a folder, or every run below it."""
    faults = Faults()
    if os.path.lexists(folder / MANIFEST):
        manifest = faults.or_else(None, _read_study, folder)
        if manifest is not None:
            runs = [_job_run(folder, path, job) for path, job in manifest.jobs.items()]
            return Source(folder, manifest, runs, faults)
    paths = _find(folder, faults)
    return Source(folder, None, [_read_run(folder, path) for path in paths], faults)


def _read_study(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    if manifest.study not in STUDIES or manifest.scale not in SCALES:
        raise StorageFault(f"{MANIFEST} is of a study that this version does not know")
    return manifest


def _find(folder: Path, faults: list[str]) -> list[Path]:
    """Folders that hold a run, in a fixed order; links are not followed."""
    found = []

    def unreadable(error: OSError) -> None:
        faults.append(f"{error.filename} cannot be read: {error.strerror}")

    for path, children, files in os.walk(folder, onerror=unreadable):
        children[:] = sorted(c for c in children if c not in INSIDE_A_RUN and c[0] != ".")
        if NPZ in files or {"config.json", "metrics.jsonl"} <= set(files):
            found.append(Path(path))
    return found


def _job_run(root: Path, folder: Path, job: Job) -> Run:
    """The run of a study's job; one of another configuration is shown, but does not count."""
    planned = Run(
        name=job.name,
        folder=folder,
        env=job.task,
        setting=job.setting,
        seed=job.seed,
        planned=job.steps,
        command=job.command,
        started=False,
    )
    run = _read_toy(planned) if isinstance(job, ToyJob) else _read_training(root, planned)
    finished = run.finished and job.is_done_in(folder)
    readable = bool(run.config) or isinstance(job, ToyJob)
    foreign = run.finished and not finished and run.reached >= job.steps and readable
    notes = ("it is of another configuration and does not count",) if foreign else ()
    return replace(run, finished=finished, problems=(*run.problems, *notes))


def _read_training(root: Path, planned: Run) -> Run:
    """A run folder under the names that its study gives it."""
    folder = planned.folder
    if not any(os.path.lexists(folder / name) for name in ("config.json", "metrics.jsonl", NPZ)):
        return planned
    names = ("name", "env", "setting", "seed", "planned", "command")
    return replace(_read_run(root, folder), **{name: getattr(planned, name) for name in names})


def _read_toy(planned: Run) -> Run:
    """The measures of toy.json."""
    faults, path = Faults(), planned.folder / "toy.json"
    if not os.path.lexists(path):
        return planned
    nothing = ({}, NOTHING, {})
    scores, distances, versions = faults.or_else(nothing, _toy_scores, path)
    faults += [f"{key} has no value" for key, score in scores.items() if score is None]
    return replace(
        planned,
        scores={key: score for key, score in scores.items() if score is not None},
        evaluations=distances,
        versions=versions,
        started=True,
        finished=bool(scores),
        reached=planned.planned or 0 if scores else 0,
        problems=tuple(faults),
    )


def _toy_scores(path: Path) -> tuple[dict[str, float | None], Evaluations, dict[str, str]]:
    """The last backup's measures, the distance after each, and versions; a point has no valley."""
    data = store.parse_json(store.read_json_bytes(path), path.name)
    try:
        rows = data["runs"][0]["iterations"]
        last = {key: rows[-1][key] for key in ToyStudy.measures}
        scores = {key: None if v is None else float(v) for key, v in last.items()}
        distances = np.array([float(row["w1_share"]) for row in rows])
        return (
            scores,
            Evaluations(np.arange(len(rows), dtype=float), distances),
            _texts(data["versions"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StorageFault(f"{path.name} is damaged: {error!r}") from None


def _read_run(root: Path, folder: Path) -> Run:
    """A run folder of ours, or one with nothing but evaluations.npz."""
    faults = Faults()
    ours = os.path.lexists(folder / "config.json")
    stored = faults.or_else({}, _read_config, folder) if ours else {}
    config = stored.get("config", {})
    records = faults.or_else(None, _read_records, folder) if ours else None
    evaluations = NOTHING
    if records is not None:
        evaluations = faults.or_else(NOTHING, logs.evaluations_of, records)
    elif (folder / NPZ).is_file():
        evaluations = faults.or_else(NOTHING, logs.read_evaluations, folder / NPZ)
    timed = (folder / "timing.jsonl").is_file()
    clock = (
        faults.or_else(NO_CLOCK, logs.read_clock, folder / "timing.jsonl") if timed else NO_CLOCK
    )
    ended = (folder / "DONE").is_file()
    done = faults.or_else({}, _read_done, folder / "DONE") if ended else {}
    env, setting, seed = _label(root, folder, config)
    scores = faults.or_else({}, _confirmed, measure_run(evaluations.means), done)
    warmup = _get(config, "train", "warmup")
    hours = clock.hours_per_million(warmup) if type(warmup) is int else None
    last = [int(s[-1]) for s in (clock.steps, evaluations.steps) if len(s)]
    valued = (folder / VALUES).is_file()
    bias = faults.or_else(None, _read_bias, folder / VALUES) if valued else None
    clip = _get(config, "critic", "grad_clip")
    health = {} if records is None else logs.health_of(records, clip)
    return Run(
        name=_relative(root, folder),
        folder=folder,
        env=env,
        setting=setting,
        seed=seed,
        pair=_pair(config),
        evaluations=evaluations,
        clock=clock,
        scores=scores | ({} if hours is None else {"hours": hours}),
        # Other people's folders do not tell whether there is more to come.
        finished="step" in done or (not ours and len(evaluations.steps) > 0),
        planned=config.get("steps") if type(config.get("steps")) is int else None,
        reached=done.get("step", max(last, default=0)),
        config=config,
        versions=_texts(stored.get("versions")),
        command=_command(config) if config else "",
        health=health | {"exact": done.get("exact"), "bias": bias},
        problems=tuple(faults),
    )


def _confirmed(scores: dict[str, float], done: dict[str, Any]) -> dict[str, float]:
    """Scores that agree with what the run itself said at its end: lost lines would change them."""
    for key, score in scores.items() or {"best": math.nan}.items():
        said = done.get(f"{key}_return")
        if isinstance(said, float) and not math.isclose(score, said, rel_tol=1e-6, abs_tol=1e-6):
            raise StorageFault(
                f"metrics.jsonl has lost lines, its scores do not count: {key} was {said:.1f} "
                f"when the run ended, now {score:.1f}"
            )
    return scores


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    data = store.open_sealed_json(store.read_json_bytes(path), path.name)
    if not isinstance(data.get("config"), dict):
        raise StorageFault(f"{path.name} is damaged: no config inside")
    return data


def _read_records(folder: Path) -> list[logs.Record]:
    return read_metrics(store.read_bytes(folder / "metrics.jsonl"))


def _read_done(path: Path) -> dict[str, Any]:
    done = store.parse_json(store.read_json_bytes(path), path.name)
    if not isinstance(done, dict) or type(done.get("step")) is not int:
        raise StorageFault(f"{path.name} is damaged: no step inside")
    return done


def _read_bias(path: Path) -> float | None:
    """Mean of Q - G over the mean size of the returns G, where `evaluate --values` measured it."""
    figures = store.parse_json(store.read_json_bytes(path), path.name)
    bias = figures.get("relative_bias", "") if isinstance(figures, dict) else ""
    if not (bias is None or isinstance(bias, float)):
        raise StorageFault(f"{path.name} is damaged: no bias inside")
    return bias


def _command(config: dict[str, Any]) -> str:
    """What repeats the run; empty for a config that this version does not read any more."""
    try:
        return command_of(decode(config))
    except (BridgeError, ValueError, TypeError, OverflowError):
        return ""


def _label(root: Path, folder: Path, config: dict[str, Any]) -> tuple[str, str, int | None]:
    """Task, setting and seed, from the config and the path below the root."""
    parts = [p for p in _relative(root, folder).split("/") if p not in (".", "..")]
    parts = parts or [*folder.resolve().parts[-2:]]
    env, seed = config.get("env"), config.get("seed")
    env = env if isinstance(env, str) else None
    seed = seed if type(seed) is int else None
    rest = []
    for part in parts:
        task, number = _ENV.fullmatch(part), _SEED.fullmatch(part)
        if task:
            env = env or task[1]
            seed = int(task[2]) if seed is None and task[2] else seed
        elif number:
            seed = int(number[1]) if seed is None else seed
        else:
            rest.append(part)
    return env or UNKNOWN, "/".join(rest) or folder.resolve().parent.name, seed


def _relative(root: Path, folder: Path) -> str:
    return Path(os.path.relpath(folder, root)).as_posix()


def _pair(config: dict[str, Any]) -> tuple[str, str] | None:
    actor, critic = (_get(config, part, "type") for part in ("actor", "critic"))
    return (actor, critic) if isinstance(actor, str) and isinstance(critic, str) else None


def _get(config: dict[str, Any], section: str, name: str) -> Any:
    inner = config.get(section)
    return inner.get(name) if isinstance(inner, dict) else None


def _texts(data: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in data.items()} if isinstance(data, dict) else {}
