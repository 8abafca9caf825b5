"""The environment wrapper: what it passes on, what it refuses, what it can rebuild."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import faulty_envs
from bridgerl.cli.main import main
from bridgerl.envs.probe import check_env
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task, check_spaces
from bridgerl.errors import EnvFault
from conftest import Run
from envs.env_faults import FAULTS

MIDDLE = np.zeros(2, np.float32)


def draw_actions(task: Task, n: int) -> np.ndarray:
    draws = np.random.default_rng(0)
    return draws.uniform(-1, 1, (n, task.spec.action_dim)).astype(np.float32)


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ([-1.0, -1.0], [-3.0, 0.1]),
        ([1.0, 1.0], [-1.0, 0.7]),
        ([0.0, -1.0], [-2.0, 0.1]),
        ([-1.0, 1.0], [-3.0, 0.7]),
    ],
)
def test_actions_map_to_float64_bounds_exactly(action: list[float], wanted: list[float]) -> None:
    task = Task("faulty_envs:Healthy-v0", 0)
    task.reset(0)
    task.step(np.array(action, np.float32))
    inner: Any = task.env.unwrapped
    assert inner.received.dtype == np.float64
    assert inner.received.tolist() == wanted


def test_an_environment_may_change_the_array_it_returned() -> None:
    task = Task("faulty_envs:InPlace-v0", 0)
    seen = [task.reset(0)] + [task.step(MIDDLE).obs for _ in range(3)]
    assert [obs.tolist() for obs in seen] == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_float64_observations_become_float32_once() -> None:
    task = Task("faulty_envs:Healthy-v0", 0)
    task.reset(0)
    out = task.step(np.ones(2, np.float32))
    assert out.obs.dtype == np.float32
    assert out.obs.tolist() == [-1.0, np.float32(0.7)]
    assert task.obs is out.obs


def test_matrices_are_flattened_both_ways() -> None:
    task = Task("faulty_envs:Matrix-v0", 0)
    assert (task.spec.obs_dim, task.spec.action_dim) == (6, 4)
    assert task.reset(0).shape == (6,)
    out = task.step(np.ones(4, np.float32))
    assert out.obs.tolist() == [12.0, 13.0, 14.0, 15.0, 16.0, 17.0]


def test_termination_and_truncation_are_told_apart() -> None:
    task = Task("faulty_envs:Terminates-v0", 0)
    task.reset(0)
    ends = [task.step(MIDDLE)[2:] for _ in range(5)]
    assert ends == [(False, False, False)] * 4 + [(True, False, False)]
    task = Task("faulty_envs:Healthy-v0", 0)
    task.reset(0)
    ends = [task.step(MIDDLE)[2:] for _ in range(20)]
    assert ends == [(False, False, False)] * 19 + [(False, True, False)]


def test_episodes_depend_on_seed_purpose_and_key_alone() -> None:
    def first(seed: int, purpose: str, *key: int) -> list[float]:
        return Task("faulty_envs:Healthy-v0", seed, purpose).reset(*key).tolist()

    base = first(0, "env", 0)
    assert base == first(0, "env", 0)
    others = [first(1, "env", 0), first(0, "eval", 0), first(0, "env", 1), first(0, "env", 0, 0)]
    assert base not in others


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "fragment", "step"), FAULTS, ids=[f[0] for f in FAULTS])
def test_faults_name_what_and_where(name: str, fragment: str, step: int) -> None:
    task = Task(f"faulty_envs:{name}-v0", 0)
    actions = draw_actions(task, 10)
    with pytest.raises(EnvFault) as caught:
        task.replay((0,), actions)
    assert fragment in str(caught.value)
    assert f"{name}-v0" in str(caught.value)
    assert f"at step {step} of the episode seeded" in str(caught.value)


def test_what_an_environment_unpacks_itself_says_nothing_of_what_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faulty_envs.Healthy, "pay", lambda self: [a for a, b in [[1]]])
    with pytest.raises(EnvFault, match="step raised ValueError: not enough values to unpack"):
        Task("faulty_envs:Healthy-v0", 0).replay((0,), np.zeros((1, 2), np.float32))


def test_mujoco_divergence_is_a_truncation_and_leaves_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = Task("HalfCheetah-v5", 0)
    task.reset(0)
    still = np.zeros(task.spec.action_dim, np.float32)
    assert not task.step(still).diverged
    inner: Any = task.env.unwrapped
    inner.data.qpos[:] = 1e30
    out = task.step(still)
    assert out.diverged
    assert out.truncated
    assert not out.terminated
    assert np.isfinite(out.obs).all()
    task.reset(1)
    assert not task.step(still).diverged
    task.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Ant-v5", "Humanoid-v5"])
def test_replay_rebuilds_an_episode_under_way_bit_for_bit(env_id: str) -> None:
    played, rebuilt = Task(env_id, 3), Task(env_id, 3)
    actions = draw_actions(played, 12)
    for task in (played, rebuilt):  # Neither may depend on what was played before.
        task.replay((99,), actions[:4])
    played.replay((7,), actions[:8])
    rebuilt.replay((7,), np.stack(played.actions))
    assert rebuilt.obs.tobytes() == played.obs.tobytes()
    assert rebuilt.reward == played.reward
    for action in actions[8:]:
        a, b = played.step(action), rebuilt.step(action)
        assert a.obs.tobytes() == b.obs.tobytes()
        assert a[1:] == b[1:]


def test_replay_of_an_irreproducible_environment_ends_elsewhere() -> None:
    task = Task("faulty_envs:Irreproducible-v0", 0)
    actions = draw_actions(task, 3)
    task.replay((0,), actions)
    before = task.obs
    task.replay((0,), actions)
    assert not np.array_equal(task.obs, before)


@pytest.mark.parametrize("env_id", ["faulty_envs:Healthy-v0", "faulty_envs:Matrix-v0", "Hopper-v5"])
def test_check_env_finds_good_environments_reproducible(env_id: str) -> None:
    facts = check_env(env_id, steps=60)
    assert facts["reproducible"] is True
    assert facts["env"] == env_id
    spec = check_spaces(env_id, Recipe(env_id).make())
    assert (facts["obs_dim"], facts["action_dim"]) == (spec.obs_dim, spec.action_dim)


def test_check_env_says_so_when_resume_cannot_be_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "faulty_envs:Irreproducible-v0"]) == 0
    text = "but does not resume exactly: it remembers earlier episodes\n"
    assert capsys.readouterr().out.endswith(text)
    assert main(["check-env", "faulty_envs:Irreproducible-v0", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["reproducible"], facts["remembers"]) == (False, True)


def test_check_env_tells_chance_from_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "faulty_envs:Unseeded-v0", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["reproducible"], facts["remembers"]) == (False, False)


@pytest.mark.parametrize("name", ["NanReward", "RaisesInStep", "RaisesInReset"])
def test_check_env_of_a_broken_environment_exits_3(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-env", f"faulty_envs:{name}-v0"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bridgerl: error: faulty_envs:")
    assert err.count("\n") == 1


def test_mujoco_environments_start_without_a_word(cli: Run, tmp_path: Path) -> None:
    result = cli("check-env", "HalfCheetah-v5", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr == ""
    assert (
        result.stdout
        == "HalfCheetah-v5 is fit: observations of 17 numbers, actions of 6, resumes exactly\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_numpy_may_say_whether_an_episode_has_ended() -> None:
    task = Task("faulty_envs:NumpyTerminated-v0", 0)
    task.reset(0)
    ends = [task.step(MIDDLE)[2:] for _ in range(5)]
    assert ends == [(False, False, False)] * 4 + [(True, False, False)]
    assert {type(word) for word in ends[4]} == {bool}


def test_what_close_raises_is_a_warning_and_changes_no_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check-env", "faulty_envs:RaisesInClose-v0"]) == 0
    out, err = capsys.readouterr()
    assert "resumes exactly" in out
    env = "faulty_envs:RaisesInClose-v0"
    line = f"bridgerl: warning: {env}: close raised RuntimeError: the window is gone"
    assert set(err.splitlines()) == {line}


TRAINED = ["RaisesInStep", "NanReward", "NanAtReset", "LeavesInStep", "LeavesInReset"]
TRAINED += ["ArrayTerminated", "HugeIntegerObservation", "ComplexObservation", "MaskedObservation"]


@pytest.mark.parametrize("name", TRAINED)
def test_training_on_a_broken_environment_exits_3_with_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    env = f"faulty_envs:{name}-v0"
    small = ["--actor.hidden", "8", "--critic.hidden", "8", "--train.buffer-size", "1000"]
    assert main(["train", "--env", env, "--critic", "cdq", "--quiet", *small]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"bridgerl: error: {env}: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    run = tmp_path / "runs" / f"faulty_envs_{name}-v0" / "sac-cdq-lite" / "seed0"
    assert "Traceback" in (run / "run.log").read_text()


def test_broken_environment_through_the_real_program(cli: Run, tmp_path: Path) -> None:
    env = "faulty_envs:RaisesInStep-v0"
    result = cli("train", "--env", env, "--actor.hidden", "8", "--out", "o", cwd=tmp_path)
    assert result.returncode == 3
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(
        f"bridgerl: error: {env}: step raised RuntimeError: the simulator is"
    )
    assert "Traceback" in next(tmp_path.rglob("run.log")).read_text()
