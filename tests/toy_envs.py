"""Environments small enough for whole runs in a second, e.g. `toy_envs:Point-v0`."""

import time
from typing import Any

import gymnasium as gym
import numpy as np


class Point(gym.Env[np.ndarray, np.ndarray]):
    """A point in the plane is pushed towards the origin; it ends when it drifts far away."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Box(-2.0, 0.5, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self.np_random.normal(size=2)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._position = self._position + 0.1 * action + 0.05 * self.np_random.normal(size=2)
        distance = float(np.linalg.norm(self._position))
        return self._observation(), -distance, distance > 4.0, False, {}

    def _observation(self) -> np.ndarray:
        return np.append(self._position, np.sin(self._position[0]))


class HugeReward(Point):
    """Rewards that are numbers in float32, but whose square is not."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 1e30, terminated, truncated, info


class Endless(Point):
    """Neither ends nor is cut off."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class Cutting(Endless):
    """Cuts its episodes off itself, whoever makes it."""

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self._left = 30
        return super().reset(**options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, _, _, info = super().step(action)
        self._left -= 1
        return obs, reward, False, self._left == 0, info


class Slow(Point):
    """A simulator that thinks for a while at every step."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.25)
        return super().step(action)


class Coin(Endless):
    """Pays 1 or -1 by chance: at discount 1/2 the return is uniform on [-2, 2]."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(self.np_random.choice([-1, 1])), terminated, truncated, info


class Exploding(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """A MuJoCo pendulum whose state is thrown far away at every tenth step."""

    def __init__(self) -> None:
        super().__init__(gym.make("InvertedPendulum-v5"))
        self._steps = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps % 10 == 0:
            data: Any = getattr(self.unwrapped, "data", None)
            data.qpos[:] = 1e12
        return super().step(action)


class Loud(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """A pendulum whose rewards are multiplied."""

    def __init__(self, factor: float) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self._factor = factor

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, self._factor * float(reward), terminated, truncated, info


gym.register("Point-v0", "toy_envs:Point", max_episode_steps=50)
gym.register("HugeReward-v0", "toy_envs:HugeReward", max_episode_steps=50)
gym.register("Endless-v0", "toy_envs:Endless")
gym.register("Cutting-v0", "toy_envs:Cutting")
gym.register("Slow-v0", "toy_envs:Slow", max_episode_steps=50)
gym.register("Coin-v0", "toy_envs:Coin", max_episode_steps=20)
gym.register("Exploding-v0", "toy_envs:Exploding")
for _factor in (1, 1000, 1024):
    gym.register(f"Loud{_factor}-v0", "toy_envs:Loud", kwargs={"factor": float(_factor)})
