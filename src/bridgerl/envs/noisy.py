"""Tasks whose returns are random: MuJoCo's own, with noise on every action and every reward."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

NAMESPACE = "Noisy/"
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
ACTION_NOISE = 0.2
"""Deviation of the noise on actions, over half the width of their bounds."""
REWARD_NOISE = 1.0
"""Deviation of the noise on rewards."""


class Noisy(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """Gaussian noise, drawn from the environment's own generator: an episode can be repeated."""

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act not quite as told, be paid not quite as earned."""
        space = self.action_space
        assert isinstance(space, gym.spaces.Box)
        noise = ACTION_NOISE * self.np_random.standard_normal(action.shape)
        shaken = action + 0.5 * (space.high - space.low) * noise
        shaken = np.clip(shaken, space.low, space.high).astype(action.dtype)
        obs, reward, terminated, truncated, info = super().step(shaken)
        reward = float(reward) + REWARD_NOISE * self.np_random.standard_normal()
        return obs, reward, terminated, truncated, info


def make_noisy(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """What `gym.make` of a noisy task makes; the time limit is outside."""
    return Noisy(gym.make(env_id, max_episode_steps=-1, disable_env_checker=True, **kwargs))


def register_noisy() -> None:
    """Make `Noisy/HalfCheetah-v5` and the like known to Gymnasium."""
    for env_id in TASKS:
        name = NAMESPACE + env_id
        if name not in gym.registry:
            how: dict[str, Any] = {"kwargs": {"env_id": env_id}, "max_episode_steps": 1000}
            gym.register(name, entry_point=make_noisy, **how)
