"""What is known of an environment and of arithmetic, and what a changed one does to a resume."""

import importlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import toy_envs
from bridgerl.cli.main import main
from bridgerl.envs.probe import MOST_SECONDS, changes, trace_env
from bridgerl.envs.task import Task
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from conftest import TINY, environment, finished

POINT = "toy_envs:Point-v0"
CHANGED = "the environment is not the one that the run had before"


def test_a_sample_is_of_the_environment_alone() -> None:
    task = Task(POINT, 0)
    found = trace_env(task)
    assert found is not None
    assert found["steps"] <= 100
    task.replay((3,), np.ones((7, 2), np.float32))
    assert changes(task, found) is None
    assert changes(Task(POINT, 0), found) is None
    assert changes(Task(POINT, 1), found)
    assert "other layers" in str(changes(Task("toy_envs:Coin-v0", 0), found))


@pytest.mark.parametrize("known", [{}, {"steps": 10**12, "sha256": "x"}, {"steps": -1}, "x", 3])
def test_a_forged_sample_is_another_environment(known: Any) -> None:
    assert changes(Task(POINT, 0), known)


def test_a_slow_environment_is_sampled_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    task, step = Task(POINT, 0), toy_envs.Point.step

    def slow(self: Any, action: Any) -> Any:
        time.sleep(MOST_SECONDS / 2.5)
        return step(self, action)

    monkeypatch.setattr(toy_envs.Point, "step", slow)
    found = trace_env(task)
    assert found is not None
    assert 1 <= found["steps"] <= 3
    assert changes(task, found) is None


def test_a_sample_leaves_global_generators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    step = toy_envs.Point.step

    def draws(self: Any, action: Any) -> Any:
        np.random.rand()  # noqa: NPY002
        random.random()
        return step(self, action)

    monkeypatch.setattr(toy_envs.Point, "step", draws)
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002  # pyright: ignore
    trace_env(Task(POINT, 0))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002  # pyright: ignore


def test_an_environment_with_a_fault_has_no_sample() -> None:
    assert trace_env(Task("faulty_envs:RaisesInStep-v0", 0)) is None


# Resume


def _train(out: Path, *more: str, steps: int = 600) -> tuple[int, Path]:
    words = [str(steps) if word == "600" else word for word in TINY]
    if any(word.startswith("--env=") for word in more):
        words = [word for word in words if word not in ("--env", POINT)]
    code = main([*words, "--quiet", "--out", str(out), *more])
    return code, next(out.glob("*/*/seed0"))


def _exact(run: Path) -> bool:
    return json.loads((run / "DONE").read_bytes())["exact"]


def _ends_earlier(self: Any, action: Any) -> Any:
    obs, reward, _, truncated, info = STEP(self, action)
    return obs, reward, float(np.linalg.norm(obs[:2])) > 1.0, truncated, info


STEP = toy_envs.Point.step
CHANGES = {
    "step": _ends_earlier,
    "action_space": gym.spaces.Box(-1.0, 0.5, (2,), np.float32),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_environment_that_changed_under_a_run_is_noticed_at_resume(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _train(tmp_path, steps=300)[0] == 0
    monkeypatch.setattr(toy_envs.Point, name, CHANGES[name])
    assert _train(tmp_path, "--save.require-exact")[0] == 2
    assert f"would not be bit-exact: {CHANGED}" in capsys.readouterr().err
    code, run = _train(tmp_path)
    assert (code, _exact(run)) == (0, False)
    assert f"not bit-exact: {CHANGED}" in capsys.readouterr().err


OWN = """
import gymnasium as gym
from toy_envs import Point
{comment}
class Far(Point):
    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, bool(abs(obs[0]) > {limit}), truncated, info
gym.register("Far-v0", Far, max_episode_steps=50)
"""


def test_a_termination_rule_that_no_first_step_meets_is_noticed_by_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def trained(steps: int, limit: float, comment: str = "") -> bool:
        (tmp_path / "far_env.py").write_text(OWN.format(limit=limit, comment=comment))
        for name in [n for n in sys.modules if n == "far_env"]:
            del sys.modules[name]
        gym.registry.pop("Far-v0", None)
        importlib.invalidate_caches()
        code, run = _train(tmp_path / "out", "--env=far_env:Far-v0", steps=steps)
        assert code == 0
        return _exact(run)

    assert trained(200, 100.0)
    assert trained(300, 100.0, comment="# Layout is no code.")
    assert capsys.readouterr().err == ""
    assert not trained(400, 200.0)
    assert f"{CHANGED}: other code in far_env" in capsys.readouterr().err
    assert not trained(500, 200.0)  # Once inexact, always; but nothing has changed since.
    assert capsys.readouterr().err == ""


def test_other_registered_arguments_are_noticed_at_resume() -> None:
    known = trace_env(Task("toy_envs:Loud1-v0", 0))
    gym.registry["Loud1-v0"].kwargs["factor"] = 1.5
    try:
        assert changes(Task("toy_envs:Loud1-v0", 0), known) == "other arguments"
    finally:
        gym.registry["Loud1-v0"].kwargs["factor"] = 1.0


def test_a_sample_of_an_earlier_release_is_compared_by_its_checksum_alone() -> None:
    found = trace_env(Task(POINT, 0))
    assert found is not None
    assert set(found.pop("made")) >= {"settings", "spaces", "layers", "code in toy_envs"}
    assert changes(Task(POINT, 0), found) is None
    first_steps = "other spaces, time limit or first steps of one seed"
    assert changes(Task(POINT, 1), found) == first_steps


def test_an_episode_that_would_have_ended_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _train(tmp_path, steps=290)[0] == 0
    always = lambda self, action: (*STEP(self, action)[:2], True, False, {})  # noqa: E731
    monkeypatch.setattr(toy_envs.Point, "step", always)
    assert _train(tmp_path)[0] == 0
    assert "not reproducible, a new episode begins" in capsys.readouterr().err


def test_runs_of_before_the_sample_resume_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = _train(tmp_path, steps=300)
    for _, path in RunFolder(run).checkpoints():
        manifest = store.read_manifest(path)
        del manifest["fingerprint"]["environment"]
        (path / "manifest.json").write_bytes(store.to_sealed_json(manifest))
    assert _train(tmp_path, "--save.require-exact")[0] == 0
    assert _exact(run)
    assert capsys.readouterr().err == ""
    last = store.read_manifest(RunFolder(run).last_weights())
    assert last["fingerprint"]["environment"]["steps"] > 0


# Arithmetic


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
def test_another_mode_of_mkl_is_another_fingerprint() -> None:
    code = "import json; from bridgerl.training.process import fingerprint\n"
    code += "print(json.dumps(fingerprint(1, 'cpu')))"
    command = [sys.executable, "-c", code]
    runs = [finished(command, env=environment(MKL_CBWR=m)) for m in ("", "", "COMPATIBLE")]
    facts = [json.loads(run.stdout) for run in runs]
    assert facts[0] == facts[1]
    changed = {name for name in facts[0] if facts[0][name] != facts[2][name]}
    assert changed == {"arithmetic"}
