"""Time limits: a given one replaces the environment's own, and returns are known past it."""

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bridgerl.config import EvalConfig, TrainConfig
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.envs.time_limits import time_limit_of
from bridgerl.errors import UserError
from bridgerl.settings.environment import canonical_wrapper
from bridgerl.truth.values import TAIL, comparable, horizon, plays_on


def bare() -> gym.Env:
    return gym.make("Pendulum-v1").unwrapped


@pytest.mark.parametrize("make", [lambda: gym.make("Pendulum-v1"), bare])
@pytest.mark.parametrize("steps", [50, 500])
def test_a_given_limit_replaces_that_of_the_factory(make: object, steps: int) -> None:
    env = Recipe("pendulum", factory="here:make", time_limit=steps, make_env=make).make()  # pyright: ignore
    assert time_limit_of(env) == steps
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(steps)]
    assert ends == [False] * (steps - 1) + [True]


@pytest.mark.parametrize("steps", [None, 30, 1500])
def test_a_limit_inside_of_dm_control_is_known_and_replaced(steps: int | None) -> None:
    pytest.importorskip("shimmy")
    env = Recipe("dm_control/cartpole-balance-v0", time_limit=steps).make()
    limit = steps or 1000
    assert time_limit_of(env) == limit
    env.reset(seed=0)
    still = np.zeros(1)
    ends = [env.step(still)[3] for _ in range(limit)]
    assert ends == [False] * (limit - 1) + [True]


def test_new_randomness_is_of_the_kind_that_the_environment_draws_from() -> None:
    pytest.importorskip("shimmy")
    task = Task("dm_control/cartpole-balance-v0", 0)
    task.reset(0)
    task.reseed(1)
    first = task.env.np_random.randn()  # pyright: ignore[reportAttributeAccessIssue]
    task.reseed(1)
    assert task.env.np_random.randn() == first  # pyright: ignore[reportAttributeAccessIssue]
    task.close()


def test_a_wrapper_that_returns_what_an_earlier_episode_left_is_refused() -> None:
    with pytest.raises(UserError, match="use --env-frame-skip"):
        canonical_wrapper('MaxAndSkipObservation={"skip": 4}')


@pytest.mark.parametrize("discount", [0.0, 0.1, 0.01, 0.5, 0.9, 0.95, 0.99])
def test_the_horizon_is_the_first_step_at_which_little_is_left(discount: float) -> None:
    n = horizon(discount)
    assert discount**n <= TAIL < (discount ** (n - 1) if n > 1 else 1)


def test_the_steps_that_count_grow_without_a_jump_with_the_time_limit() -> None:
    train, evaluation, counts = TrainConfig(discount=0.9), EvalConfig(max_steps=1000), []
    config: Any = SimpleNamespace(train=train, eval=evaluation)
    needed = horizon(0.9)
    for limit in range(1, 4 * needed):
        task: Any = SimpleNamespace(time_limit=limit)
        longest = plays_on(task, config)
        assert (longest is not None) == (limit < 2 * needed - 1)
        n = longest or limit
        counts.append(int(comparable(n, 0.9, n, terminated=False).sum()))
    assert counts[:needed] == list(range(1, needed + 1))
    assert set(np.diff(counts)) == {0, 1}
    assert counts[-1] == 3 * needed
