"""Policy evaluation: critics learn returns of a frozen policy that are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bridgerl.errors import StorageFault
from bridgerl.presets import resolve
from bridgerl.truth.evaluation import prepare, run_evaluation
from bridgerl.truth.settings import EvaluationCell, PolicyData

COIN = PolicyData(
    "toy_envs:Coin-v0", policy_steps=120, transitions=3000, states=3, returns=200, discount=0.5
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    prepare(COIN, folder)
    return folder


def cell(critic: str, updates: int, **changes: object) -> EvaluationCell:
    config = replace(resolve("league", critic=critic).critic, **changes)
    return EvaluationCell(COIN, critic, config, seed=0, updates=updates, batch=64)


def test_dbc_learns_that_the_return_is_uniform(shared: Path) -> None:
    small = {"hidden": (32, 32), "kappa": 0.05, "z_scale": 1.0}
    figures = run_evaluation(cell("dbc", 600, **small), shared)
    assert figures["deviation"] == pytest.approx(4 / np.sqrt(12), rel=0.08)
    assert figures["w1"] < 0.2  # Chance alone makes 0.07 of so few returns.
    assert figures["coverage"]["0.8"] == pytest.approx(0.8, abs=0.08)


def test_a_point_value_knows_the_mean_alone(shared: Path) -> None:
    figures = run_evaluation(cell("cdq", 600, hidden=(32, 32)), shared)
    assert abs(figures["bias"]) < 0.2
    assert figures["w1"] > 0.5  # E|U - 1/2| over the deviation of U is 0.87.


def test_who_prepares_the_data_learns_what_others_learn(tmp_path: Path) -> None:
    small = replace(COIN, policy_steps=110, transitions=50, states=1, returns=2)
    mine = replace(cell("cdq", 5, hidden=(8,)), data=small)
    first, later = (run_evaluation(mine, tmp_path) for _ in range(2))
    assert first == later
    assert run_evaluation(replace(mine, seed=1), tmp_path) != first


def test_what_was_prepared_is_kept_for_all_critics(shared: Path) -> None:
    path = shared / "data.safetensors"
    before = path.read_bytes(), path.stat().st_mtime_ns
    _, steps, forks = prepare(COIN, shared)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert steps.reward.shape == (3000,)
    assert set(np.unique(steps.reward)) == {-1.0, 1.0}
    assert forks.returns.shape == (3, 200)


def test_damaged_data_are_refused_by_name(shared: Path, tmp_path: Path) -> None:
    small = replace(COIN, policy_steps=110, transitions=50, states=1, returns=2)
    prepare(small, tmp_path)
    (tmp_path / "data.safetensors").write_bytes(b"nonsense")
    with pytest.raises(StorageFault, match="is damaged"):
        prepare(small, tmp_path)
