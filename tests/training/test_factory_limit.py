"""A time limit given by a flag holds in place of the factory's own."""

import gymnasium as gym
import pytest

from bridgerl.errors import UserError
from bridgerl.settings.environment import canonical_wrapper
from bridgerl.training.recipe import Recipe, time_limit_of
from bridgerl.truth.values import TAIL, horizon


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


def test_a_wrapper_that_returns_what_an_earlier_episode_left_is_refused() -> None:
    with pytest.raises(UserError, match="use --env-frame-skip"):
        canonical_wrapper('MaxAndSkipObservation={"skip": 4}')


@pytest.mark.parametrize("discount", [0.0, 0.1, 0.01, 0.5, 0.9, 0.95, 0.99])
def test_the_horizon_is_the_first_step_at_which_little_is_left(discount: float) -> None:
    n = horizon(discount)
    assert discount**n <= TAIL < (discount ** (n - 1) if n > 1 else 1)
