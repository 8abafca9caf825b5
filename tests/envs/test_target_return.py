"""Rewards that count up to a target: the sum that is promised, on real tasks, and resumes."""

import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bridgerl.cli.main import main
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.target_return import TargetReturn, counted
from bridgerl.envs.task import Task
from bridgerl.errors import UserError
from bridgerl.runs.verify import compare
from conftest import TINY
from warm_process import WarmProcess


class OwnNoise(gym.Env[np.ndarray, np.ndarray]):
    """Knows no seed."""

    observation_space = action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1), {}


@pytest.mark.parametrize("discount", [1.0, 0.97])
@pytest.mark.parametrize("target", [-15.0, 0.0, 4.0, 1e4])
def test_what_counts_of_an_episode_is_what_it_pays_up_to_the_target(
    target: float, discount: float
) -> None:
    env = TargetReturn(gym.make("Hopper-v5"), target, discount=discount)
    obs, _ = env.reset(seed=3)
    env.action_space.seed(3)
    assert obs[-1] == target
    counts, paid, over = [], [], False
    while not over:
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        counts.append(float(reward))
        paid.append(info["paid"])
        over = terminated or truncated
    weights = discount ** np.arange(len(paid))
    whole = float(weights @ paid)
    promised = max(target, 0) - max(target - whole, 0)
    assert float(weights @ counts) == pytest.approx(promised, abs=1e-8)
    assert all(abs(c) <= abs(p) + 1e-9 for c, p in zip(counts, paid, strict=True))
    assert obs[-1] == pytest.approx((target - whole) / discount ** len(paid))


def test_a_reward_counts_until_the_target_is_met() -> None:
    assert counted(5.0, 3.0) == 3
    assert counted(5.0, 8.0) == 5
    assert counted(-1.0, 8.0) == 0
    assert counted(-1.0, -0.5) == 0
    assert counted(-1.0, -3.0) == -2


def test_targets_are_drawn_anew_and_come_back_with_the_episode() -> None:
    recipe = Recipe("Pendulum-v1", wrappers=('TargetReturn={"high": 9, "low": -9}',))
    task = Task(recipe, 0)
    targets = [float(task.reset(episode)[-1]) for episode in range(20)]
    assert len(set(targets)) == 20
    assert -9 <= min(targets) < -4
    assert 4 < max(targets) <= 9
    own = TargetReturn(OwnNoise(), -9, 9)
    assert own.reset(seed=5)[0][-1] == own.reset(seed=5)[0][-1]
    assert float(task.reset(7)[-1]) == targets[7]


def test_a_reset_may_name_its_target() -> None:
    env = TargetReturn(gym.make("Pendulum-v1"), -9, 9)
    assert env.reset(seed=0, options={"target": -250})[0][-1] == -250
    assert -9 <= env.reset(seed=0)[0][-1] <= 9
    with pytest.raises(UserError, match="finite target"):
        env.reset(options={"target": np.inf})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"low": 2, "high": 1}, "low <= high"),
        ({"low": float("nan")}, "low <= high"),
        ({"low": 0, "discount": 0}, "discount"),
    ],
)
def test_odd_targets_are_refused(arguments: dict[str, float], says: str) -> None:
    with pytest.raises(UserError, match=says):
        TargetReturn(gym.make("Pendulum-v1"), **arguments)


def test_the_command_line_knows_the_wrapper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "Pendulum-v1", "--env-wrappers", 'TargetReturn={"low": -300}']) == 0
    assert "observations of 4 numbers" in capsys.readouterr().out
    assert main(["check-env", "Pendulum-v1", "--env-wrappers", "TargetReturn"]) == 2
    assert "low" in capsys.readouterr().err


def test_a_killed_run_to_a_target_ends_with_the_very_same_bits(
    warm: WarmProcess, tmp_path: Path
) -> None:
    command = [*TINY, "--env-wrappers", 'TargetReturn={"low": -40, "high": -5}', "--out"]
    folders = []
    for name, failpoint in (("whole", ""), ("killed", "ckpt.after_rename:2:kill")):
        out = str(tmp_path / name)
        if failpoint:
            assert warm.run(*command, out, failpoint=failpoint).code == -signal.SIGKILL
        assert warm.run(*command, out).code == 0
        folders.append(next(iter((tmp_path / name).glob("*/*/seed0"))))
    assert compare(*folders) is None
