"""Time limits of environments: those of Gymnasium's wrapper, and dm_control's own."""

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit


def time_limit_of(env: gym.Env[Any, Any]) -> int | None:
    """Steps of a learner after which an episode is cut off, if it can be told."""
    limits, skip = [math.inf], 1
    for layer in _wrappers(env):
        skip *= getattr(layer, "num_repeats", 1) if type(layer).__name__ == "RepeatAction" else 1
        if isinstance(layer, TimeLimit):
            limits.append(math.ceil(layer._max_episode_steps / skip))
    if (inner := _dm_control(env)) is not None and (steps := _own_limit(inner)) < math.inf:
        limits.append(math.ceil(steps / skip))
    return None if min(limits) == math.inf else int(min(limits))


def with_limit(env: gym.Env[Any, Any], steps: int) -> gym.Env[Any, Any]:
    """The environment with a limit in its own steps, in place of any that it has."""
    _set_limits(env, steps)
    wrapped = any(isinstance(layer, TimeLimit) for layer in _wrappers(env))
    return env if wrapped else TimeLimit(env, steps)


def told_limit(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment with its limit where Gymnasium's wrappers look, in the steps they count.

    They take the number that it was registered with, which a frame skip, a shorter limit around it
    or one that dm_control keeps inside makes wrong. The layer added here cuts nothing off earlier.
    """
    limit, told = time_limit_of(env), None if env.spec is None else env.spec.max_episode_steps
    return env if limit is None or limit == told else TimeLimit(env, limit)


def lift_limit(env: gym.Env[Any, Any]) -> None:
    """Let episodes go on until they end by themselves."""
    _set_limits(env, math.inf)


def _set_limits(env: gym.Env[Any, Any], steps: float) -> None:
    for layer in _wrappers(env):
        if isinstance(layer, TimeLimit):
            layer._max_episode_steps = steps  # pyright: ignore[reportAttributeAccessIssue]
    if (inner := _dm_control(env)) is not None:
        for name in _OWN & vars(inner).keys():
            setattr(inner, name, math.inf)


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


_OWN = {"_step_limit", "_time_limit"}
"""Where dm_control keeps a limit: in steps (its suite), or in seconds (its composer)."""


def _dm_control(env: gym.Env[Any, Any]) -> Any:
    """The environment of dm_control that Shimmy makes one of Gymnasium; None if there is none."""
    inner: Any = env.unwrapped
    if not type(inner).__module__.startswith("shimmy."):
        return None
    while inner is not None and not _OWN & vars(inner).keys():
        inner = vars(inner).get("_env")
    return inner


def _own_limit(inner: Any) -> float:
    """The limit that dm_control keeps, in steps; one that is given in seconds may be rounded."""
    if "_step_limit" in vars(inner):
        return inner._step_limit
    steps = inner._time_limit / inner.control_timestep()
    return round(steps, 6)
