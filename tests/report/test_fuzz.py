"""Random damage to runs and studies: a report that says something else says why."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgerl.cli.main import main
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


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with everything that verbs leave in them, and a study of two kinds of jobs."""
    root = tmp_path_factory.mktemp("tree")
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


def silent_changes(root: Path, seed: int, count: int) -> list[str]:
    """Damage after which a report differs and names no problem, or verify finds nothing wrong."""
    folders = [root / "runs", root / "smoke" / "endpoint-bias"]
    before = [shown(folder) for folder in folders]
    assert [problems for _, problems in before] == [[], []]
    found = []
    for mutation, data in mutations(root, seed, count):
        if data is None and mutation.path.name == "values.json":
            continue  # As if nobody had measured them.
        with applied(mutation, data) as changes:
            for folder, (usual, _) in zip(folders, before, strict=True):
                facts, problems = shown(folder)
                lost = facts[0]["finished"] < usual[0]["finished"]
                if repr(facts) != repr(usual) and not problems and not lost:
                    found.append(f"silent in {folder.name}: {mutation}")
            if changes and _is_sealed(mutation.path) and _verifies(mutation.path):
                found.append(f"verified: {mutation}")
    return found


def _is_sealed(path: Path) -> bool:
    return "seed" in path.parent.name or "ckpt" in path.parts


def _verifies(path: Path) -> bool:
    run = next(p for p in path.parents if p.name.startswith("seed"))
    try:
        verify(run)
    except BridgeError:
        return False
    return path.exists()  # What is gone may never have been there: values, calibration.


def test_no_damage_changes_a_report_in_silence(tree: Path) -> None:
    assert silent_changes(tree, seed=0, count=300) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_kinds_of_damage_change_no_report_in_silence(tree: Path, seed: int) -> None:
    assert silent_changes(tree, seed, count=1000) == []


def test_a_sound_tree_verifies(tree: Path) -> None:
    for run in (tree / "runs").glob("*/*/seed*"):
        assert main(["verify", str(run)]) == 0
