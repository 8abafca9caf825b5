"""Tasks with rare costly events."""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from bridgerl import resolve, train
from bridgerl.config import EvalConfig
from bridgerl.envs.probe import check_env
from bridgerl.envs.risky import DANGERS, POINT_MASS, Danger, PointMass, Risky
from bridgerl.envs.task import Task
from bridgerl.errors import UserError
from bridgerl.runs.folder import RunFolder

NAMES = (POINT_MASS, "Risky/HalfCheetah-v5", "Risky/Hopper-v5")


@pytest.mark.parametrize("name", NAMES)
def test_episodes_can_be_trained_on_and_repeated(name: str) -> None:
    assert check_env(name)["reproducible"]
    totals = []
    for _ in range(2):
        task = Task(name, 0)
        task.reset(3)
        rng = np.random.default_rng(0)
        actions = rng.uniform(-1, 1, (40, task.spec.action_dim)).astype(np.float32)
        totals.append([task.step(action).reward for action in actions])
        task.close()
    assert totals[0] == totals[1]


@pytest.mark.parametrize(
    ("name", "chance", "cost"), [("HalfCheetah", 0.05, 70), ("Hopper", 0.1, 50)]
)
def test_events_are_as_rare_and_costly_as_they_say(name: str, chance: float, cost: float) -> None:
    danger = DANGERS[f"{name}-v5"]
    assert (danger.chance, danger.cost) == (chance, cost)
    plain = gym.make(f"{name}-v5", disable_env_checker=True)
    always = Risky(gym.make(f"{name}-v5", disable_env_checker=True), danger._replace(where=_yes))
    n, gaps = 400, []
    for env in (plain, always):
        env.reset(seed=1)
        rewards, struck = [], []
        for _ in range(n):
            _, reward, terminated, truncated, info = env.step(
                np.zeros_like(env.action_space.sample())
            )
            rewards.append(float(reward))
            struck.append(info.get("struck", False))
            if terminated or truncated:
                break
        gaps.append((sum(rewards), sum(struck)))
        env.close()
    assert gaps[0][0] - gaps[1][0] == pytest.approx(cost * gaps[1][1])
    if len(struck) == n:
        assert gaps[1][1] == pytest.approx(chance * n, rel=0.5)


def _yes(data: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("name", "index", "safe", "wild"),
    [("HalfCheetah", "qvel", 3.9, 4.1), ("Hopper", "qpos", 0, 0.2)],
)
def test_danger_is_above_a_speed_or_outside_a_pitch_band(
    name: str, index: str, safe: float, wild: float
) -> None:
    env = gym.make(f"{name}-v5", disable_env_checker=True)
    env.reset(seed=0)
    data = env.unwrapped.data  # pyright: ignore[reportAttributeAccessIssue]
    danger: Danger = DANGERS[f"{name}-v5"]
    place = 0 if index == "qvel" else 2
    for value, expected in ((safe, False), (wild, True)):
        getattr(data, index)[place] = value
        assert bool(danger.where(data)) == expected
    env.close()


def cross(ways: list[tuple[float, float]], seed: int) -> tuple[float, int, int]:
    """Return, steps and steps in the disc of a walk to points one after another."""
    env, total, steps, inside = PointMass(), 0.0, 0, 0
    at, _ = env.reset(seed=seed)
    for goal in ways:
        while np.linalg.norm(np.array(goal) - at) > 0.05:
            at, reward, done, _, info = env.step((np.array(goal) - at) / env.SPEED)
            total, steps, inside = total + reward, steps + 1, inside + info["danger"]
            if done:
                return total, steps, inside
    raise AssertionError("never reached the goal")


def test_the_short_way_is_better_on_average_and_worse_in_bad_cases() -> None:
    around = [(-0.6, 0.45), (-0.3, 0.63), (0.0, 0.7), (0.3, 0.63), (0.6, 0.45), (1.0, 0.0)]
    through = [cross([(1.0, 0.0)], seed) for seed in range(400)]
    wide = [cross(around, seed) for seed in range(400)]
    assert max(inside for _, _, inside in wide) == 0
    assert min(inside for _, _, inside in through) >= 11
    short, sure = (np.sort([total for total, _, _ in walks]) for walks in (through, wide))
    assert short.mean() > sure.mean() + 2
    assert short[:40].mean() < sure[:40].mean() - 20


def test_evaluations_log_what_their_returns_are_worth(tmp_path: Path) -> None:
    judged = {"every": 150, "episodes": 4, "risk": "cvar:0.25"}
    config = resolve("Pendulum-v1", critic="cdq").changed(steps=300, out=tmp_path, eval=judged)
    run = RunFolder(train(config, quiet=True))
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert len(evaluations) == 2
    for line in evaluations:
        assert line["eval/risk"] == pytest.approx(min(line["eval/returns"]))


def test_a_measure_that_nobody_knows_is_refused_before_a_run_begins() -> None:
    with pytest.raises(UserError, match="did you mean cvar"):
        EvalConfig(risk="cvr:0.1")
