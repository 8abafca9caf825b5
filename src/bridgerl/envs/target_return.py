"""A target for the whole episode: what it pays beyond does not count."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from bridgerl.errors import UserError

Array = np.ndarray[Any, np.dtype[np.float64]]


def counted(missing: Array | float, reward: Array | float) -> Array:
    """What a reward counts while so much is missing to the target: m+ - (m - r)+."""
    return np.maximum(missing, 0.0) - np.maximum(np.subtract(missing, reward), 0.0)


class TargetReturn(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """The static form of risk as a task like any other: the mean of min(return, target).

    A reward r counts m+ - (m - r)+ and leaves m' = (m - r) / discount missing, which observations
    tell. All that counts in an episode of return G and target b adds up to b+ - (b - G)+. Every
    episode draws its target between `low` and `high`, or `reset(options={"target": b})` names it.
    `info` keeps the task's own reward as "paid".
    """

    def __init__(
        self,
        env: gym.Env[np.ndarray, np.ndarray],
        low: float,
        high: float | None = None,
        discount: float = 1.0,
    ) -> None:
        super().__init__(env)
        high, space = low if high is None else high, env.observation_space
        if not (isinstance(space, Box) and len(space.shape) == 1):
            hint = "put FlattenObservation before it"
            raise UserError(f"TargetReturn needs observations that are a vector; {hint}")
        if not (-np.inf < low <= high < np.inf):
            raise UserError(f"TargetReturn needs finite low <= high, got {low:g} and {high:g}")
        if not 0 < discount <= 1:
            raise UserError(f"TargetReturn needs a discount above 0 to 1, got {discount:g}")
        self._range, self._discount, self._missing = (low, high), discount, 0.0
        self._draws = np.random.default_rng()
        self.observation_space = Box(
            np.append(space.low, -np.inf), np.append(space.high, np.inf), dtype=np.float64
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin with a target: that of `options`, or one that is drawn."""
        mine = dict(options or {})
        given = mine.pop("target", None)
        obs, info = super().reset(seed=seed, options=mine or None)
        if seed is not None:  # Apart from the task's own generator, which not every task seeds.
            self._draws = np.random.default_rng([seed, 1])
        self._missing = float(self._draws.uniform(*self._range) if given is None else given)
        if not np.isfinite(self._missing):
            raise UserError(f"TargetReturn needs a finite target, got {given}")
        return self._told(obs), info

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act; of what is paid only what was missing counts."""
        obs, reward, terminated, truncated, info = super().step(action)
        paid = float(reward)
        counts = float(counted(self._missing, paid))
        self._missing = (self._missing - paid) / self._discount
        return self._told(obs), counts, terminated, truncated, info | {"paid": paid}

    def _told(self, obs: np.ndarray) -> np.ndarray:
        return np.append(obs, self._missing)
