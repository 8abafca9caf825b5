"""A loaded policy: what an environment gives goes in, what it takes comes out."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import own_envs
from bridgerl import load_policy, train
from bridgerl.errors import BridgeError, UserError
from bridgerl.training.play import play
from bridgerl.training.policy import Policy
from envs.test_recipe import small
from runs.strangers import copy_run, forge_config, make_run


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with observations of every kind and lopsided bounds."""
    return train(small(tmp_path_factory.mktemp("reach")), quiet=True)


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("point"))


def episode(policy: Policy, env: gym.Env[Any, Any], seed: int) -> float:
    obs, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        action = policy(obs)
        assert env.action_space.contains(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        done = terminated or truncated
    return total


@pytest.mark.parametrize("kind", ["reach", "point"])
def test_it_plays_what_evaluate_plays(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Path = request.getfixturevalue(kind)
    policy, seeds, plain = load_policy(run, "last"), [], gym.Wrapper.reset

    def noted(self: Any, *, seed: Any = None, options: Any = None) -> Any:
        seeds.append(seed)
        return plain(self, seed=seed, options=options)

    with monkeypatch.context() as patched:
        patched.setattr(gym.Wrapper, "reset", noted)
        wanted = play(run, "last", 2, 7)["returns"]
    env = policy.make_env()
    played = [episode(policy, env, seed) for seed in dict.fromkeys(seeds)]
    assert played == pytest.approx(wanted, rel=1e-4)


def test_actions_are_in_the_environments_own_bounds_and_type(reach: Path) -> None:
    policy, env = load_policy(reach), own_envs.Reach()
    obs, _ = env.reset(seed=0)
    for deterministic in (True, False):
        action = policy(obs, deterministic=deterministic)
        assert action.dtype == np.float64
        assert env.action_space.contains(action)
    assert policy.action_space == env.action_space
    assert policy.step in (30, 60)


def test_one_observation_and_a_batch_of_them(reach: Path, point: Path) -> None:
    policy, draws = load_policy(point), np.random.default_rng(0)
    rows = draws.normal(size=(5, 3))  # Float64, as the environment has them.
    batch = policy(rows)
    assert batch.shape == (5, 2)
    for row, action in zip(rows, batch, strict=True):
        np.testing.assert_allclose(policy(row), action, rtol=1e-5)
    np.testing.assert_array_equal(policy(rows.astype(np.float32)), batch)
    policy, env = load_policy(reach), own_envs.Reach()
    singles = [env.reset(seed=seed)[0] for seed in range(3)]
    vector = gym.vector.SyncVectorEnv([own_envs.Reach] * 3)
    together, _ = vector.reset(seed=[0, 1, 2])
    actions = policy(together)
    assert actions.shape == (3, 2)
    np.testing.assert_allclose(np.stack([policy(obs) for obs in singles]), actions, rtol=1e-5)


def test_it_needs_no_generator_and_explores_when_asked(point: Path) -> None:
    obs = np.zeros(3)
    policy = load_policy(point)
    np.testing.assert_array_equal(policy(obs), policy(obs))
    assert not np.array_equal(
        policy(obs, deterministic=False), load_policy(point)(obs, deterministic=False)
    )
    first, second = (load_policy(point, seed=3) for _ in range(2))
    drawn = [[p(obs, deterministic=False).tolist() for _ in range(3)] for p in (first, second)]
    assert drawn[0] == drawn[1]
    assert len({tuple(action) for action in drawn[0]}) == 3


BAD = {
    "size": (np.zeros(4), "observation has shape (4,), not (3,) or (b, 3)"),
    "axes": (np.zeros((2, 2, 3)), "not (3,) or (b, 3)"),
    "text": (["a", "b", "c"], "observation is no array of real numbers"),
    "nan": ([0.0, np.nan, 0.0], "not finite"),
    "a dictionary": ({"a": 1}, "observation is no array of real numbers"),
    "all of reset": ((np.zeros(3), {}), "obs, _ = env.reset()"),
    "all of step": ((np.zeros(3), 0.0, False, False, {}), "obs, _ = env.reset()"),
    "none": (np.zeros((0, 3)), "observation has shape (0, 3)"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_observation_is_refused_in_words(point: Path, case: str) -> None:
    obs, says = BAD[case]
    with pytest.raises(UserError) as caught:
        load_policy(point)(obs)
    assert says in str(caught.value)


def test_a_dictionary_that_does_not_fit_is_refused_in_words(reach: Path) -> None:
    policy, (obs, _) = load_policy(reach), own_envs.Reach().reset(seed=0)
    bad = {
        "with the keys": {"goal": obs["goal"]},
        "observation['goal'] has shape (3,), not (2,)": obs | {"goal": np.zeros(3)},
        "observation['place'] must be a tuple of 2": obs | {"place": (np.zeros(2),)},
        "different numbers of observations": obs | {"goal": np.zeros((4, 2))},
    }
    for says, given in bad.items():
        with pytest.raises(UserError) as caught:
            policy(given)
        assert says in str(caught.value)


def test_a_run_of_before_spaces_were_kept_asks_its_environment(point: Path, tmp_path: Path) -> None:
    run = copy_run(point, tmp_path)
    forge_config(run, lambda stored: stored.pop("spaces"))
    obs = np.ones(3)
    np.testing.assert_array_equal(load_policy(run)(obs), load_policy(point)(obs))
    forge_config(run, lambda stored: stored["config"].update(env="no_such_module:Own-v0"))
    with pytest.raises(UserError, match="--trust-env no_such_module"):
        load_policy(run)


FORGED: dict[str, Any] = {
    "huge": {"type": "Box", "shape": [10**12], "dtype": "float64"},
    "many": {"type": "Discrete", "n": 10**15, "start": 0},
    "negative": {"type": "Box", "shape": [-3, -1], "dtype": "float64"},
    "objects": {"type": "Box", "shape": [3], "dtype": "object"},
    "odd": {"type": "Graph"},
    "empty": {},
    "list": [3],
    "text": {"type": "MultiDiscrete", "nvec": "abc", "start": 0},
    "loop": {"type": "Dict", "spaces": [["a"]]},
}


@pytest.mark.parametrize("part", ["observation", "action"])
@pytest.mark.parametrize("case", FORGED)
def test_forged_spaces_are_refused_before_they_cost(
    point: Path, tmp_path: Path, case: str, part: str
) -> None:
    run = copy_run(point, tmp_path)
    forge_config(run, lambda stored: stored["spaces"].update({part: FORGED[case]}))
    with pytest.raises(BridgeError, match=r"config\.json is damaged: spaces"):
        load_policy(run)


# Environments of a script

SCRIPT = """
import sys

import own_envs
from bridgerl import load_policy, train
from pathlib import Path
from envs.test_recipe import small


def make_arm():
    return own_envs.make_reach()


class Arm(own_envs.Reach):
    pass


if __name__ == "__main__":
    for factory in (make_arm, Arm):
        config = small(Path("runs"), factory.__name__)
        run = Path("runs", factory.__name__, "sac-cdq-lite", "seed0")
        if not run.exists():
            train(config, make_env=factory, quiet=True)
        print(type(load_policy(run).make_env().unwrapped).__name__)
"""


def test_a_script_that_is_run_again_makes_the_environment_it_defines(tmp_path: Path) -> None:
    (tmp_path / "arm_script.py").write_text(SCRIPT)
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(2):
        command = [sys.executable, "arm_script.py"]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True
        )
        assert done.stdout.split() == ["Reach", "Arm"], done.stderr
    run = tmp_path / "runs" / "Arm" / "sac-cdq-lite" / "seed0"
    with pytest.raises(UserError, match="add --trust-env arm_script, or import it first"):
        load_policy(run).make_env()


LONGER = """
import sys
from bridgerl import train
import own_envs
from envs.test_recipe import small
from pathlib import Path

class Arm(own_envs.Reach):
    pass

if __name__ == "__main__":
    steps = STEPS
    train(small(Path("runs"), "arm").changed(steps=steps), make_env=Arm, quiet=True)
"""


def test_a_script_may_ask_for_more_steps_and_its_environment_is_the_same(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])}

    def finished(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=os.environ | paths, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        return done.stderr.decode()

    for steps in ("200", "300"):
        (tmp_path / "arm_script.py").write_text(LONGER.replace("STEPS", steps))
        assert "bit-exact" not in finished("arm_script.py")
    run = tmp_path / "runs/arm/sac-cdq-lite/seed0"
    more = ["--steps", "400", "--trust-env", "arm_script"]
    assert "bit-exact" not in finished("-m", "bridgerl", "train", "--resume", str(run), *more)
    assert '"exact": true' in (run / "DONE").read_text()


def test_an_environment_of_a_session_that_is_over_is_handed_over(tmp_path: Path) -> None:
    make_env = type("Arm", (own_envs.Reach,), {"__module__": "__main__"})
    run = train(small(tmp_path, "arm"), make_env=make_env, quiet=True)
    forge_config(run, lambda stored: stored["config"].update(env_factory="__main__:Arm"))
    with pytest.raises(UserError, match=r"__main__:Arm is not there: .*move it into a module"):
        load_policy(run).make_env()
    env = load_policy(run, make_env=make_env).make_env(pay=2.0)
    assert isinstance(env.unwrapped, make_env)
    nameless = load_policy(run, make_env=lambda: own_envs.make_reach())
    assert isinstance(nameless.make_env(), gym.wrappers.TimeLimit)
