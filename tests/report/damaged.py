"""A tree of runs and a study, and whether damage to it changes a report in silence."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgerl.errors import BridgeError
from bridgerl.report.load import Run, load
from bridgerl.report.results import summarise_source
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import verify
from bridgerl.studies import STUDIES
from bridgerl.studies.jobs import Job, train_job
from bridgerl.studies.manifest import Manifest, write_manifest
from bridgerl.studies.run.work import run_job
from mutations import applied, mutations
from runs.strangers import make_run


def make_tree(root: Path) -> Path:
    """Two runs with everything that verbs leave in them, and a study of two kinds of jobs."""
    runs = [make_run(root / "runs", seed) for seed in (0, 1)]
    for run in runs:
        RunFolder(run).write_values("last", 80, {"seed": 0, "relative_q_bias": 0.25})
        calibration = {"step": 80, "shifts": [0.5, 0.25], "weights": "last"}
        RunFolder(run).write_calibration(calibration)
        shutil.rmtree(run / "replay")  # Big, and no report looks at it.
        (run / "run.lock").unlink()
    (endpoint,) = STUDIES["endpoint-bias"].jobs("smoke", root)
    run_job(endpoint)
    jobs: dict[Path, Job] = {endpoint.folder: endpoint}
    jobs |= {run: train_job("sac+cdq", RunFolder(run).read_config()) for run in runs}
    folder = root / "smoke" / "endpoint-bias"
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, Manifest("endpoint-bias", "smoke", None, 0.0, jobs))
    return root


def shown(folder: Path) -> tuple[Any, list[str]]:
    """All that a report shows of a folder's runs, and the problems that it names."""
    source = load(folder)
    results = summarise_source(source)
    problems = results.pop("problems")
    return (results, [_facts(run) for run in source.runs]), problems


def _facts(run: Run) -> dict[str, Any]:
    facts = {key: value for key, value in vars(run).items() if key != "problems"}
    return {key: _plain(value) for key, value in facts.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value


class Damage(NamedTuple):
    """What came of damage that changed a file."""

    named: int = 0
    """A report named a problem, or lost a run and counts one less."""
    harmless: int = 0
    """No report said anything else."""
    silent: tuple[str, ...] = ()
    """A report differs and names no problem, or verify finds nothing wrong."""


def damage(root: Path, seed: int, count: int) -> Damage:
    """Damage files of a tree so many times, one after the other."""
    folders = [root / "runs", root / "smoke" / "endpoint-bias"]
    before = [shown(folder) for folder in folders]
    assert [problems for _, problems in before] == [[], []]
    usual = {folder: facts for folder, (facts, _) in zip(folders, before, strict=True)}
    named, harmless, silent = 0, 0, []
    for mutation, data in mutations(root, seed, count):
        if data is None and mutation.path.name == "values.json":
            continue  # As if nobody had measured them.
        with applied(mutation, data) as changes:
            if not changes:
                continue
            told, wrong = _look(usual)
            if _is_sealed(mutation.path) and _verifies(mutation.path):
                wrong.append("verified")
        silent += [f"{', '.join(wrong)}: {mutation}"] if wrong else []
        named += told and not wrong
        harmless += not told and not wrong
    return Damage(named, harmless, tuple(silent))


def _look(usual: dict[Path, Any]) -> tuple[bool, list[str]]:
    """Whether any report tells of damage, and which say something else without a word."""
    told, wrong = False, []
    for folder, expected in usual.items():
        facts, problems = shown(folder)
        tells = bool(problems) or facts[0]["finished"] < expected[0]["finished"]
        told = told or tells
        if repr(facts) != repr(expected) and not tells:
            wrong.append(f"silent in {folder.name}")
    return told, wrong


def _is_sealed(path: Path) -> bool:
    return "seed" in path.parent.name or "ckpt" in path.parts


def _verifies(path: Path) -> bool:
    run = next(p for p in path.parents if p.name.startswith("seed"))
    try:
        verify(run)
    except BridgeError:
        return False
    return path.exists()  # What is gone may never have been there: values, calibration.
