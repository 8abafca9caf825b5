"""Environments as users have them: arguments, dictionaries, wrappers and factories of their own."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

GOAL = np.array([0.5, -0.5])


class Reach(gym.Env[dict[str, Any], np.ndarray]):
    """Push a point to a goal; what it sees is of every kind of space that can be flattened."""

    observation_space = spaces.Dict(
        {
            "goal": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "gear": spaces.Discrete(3),
            "lights": spaces.MultiBinary(2),
            "place": spaces.Tuple(
                (spaces.Box(-9.0, 9.0, (2,), np.float64), spaces.MultiDiscrete([2, 3]))
            ),
        }
    )
    action_space = spaces.Box(np.array([-3.0, 10.0]), np.array([-1.0, 30.0]), dtype=np.float64)

    def __init__(self, pay: float = 1.0, kind: str = "plain") -> None:
        self.pay, self.kind = pay, kind
        self.received: list[np.ndarray] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.uniform(-1.0, 1.0, 2)
        return self._see(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.received.append(action)
        push = np.array([action[0] + 2.0, (action[1] - 20.0) / 10.0])
        self._at = np.clip(self._at + 0.1 * push, -2.0, 2.0)
        return self._see(), -self.pay * float(np.abs(self._at - GOAL).sum()), False, False, {}

    def _see(self) -> dict[str, Any]:
        side = (self._at > 0).astype(np.int64)
        place = (self._at.copy(), np.array([side[0], side.sum()]))
        goal = GOAL.astype(np.float32)
        return {"goal": goal, "gear": int(side.sum()), "lights": side.astype(np.int8)} | {
            "place": place
        }


class Doubled(gym.RewardWrapper[Any, Any]):
    """Pays more."""

    def __init__(self, env: gym.Env[Any, Any], times: float = 2.0) -> None:
        super().__init__(env)
        self._times = times

    def reward(self, reward: Any) -> float:
        return self._times * float(reward)


def make_reach(pay: float = 1.0) -> gym.Env[Any, Any]:
    """A factory: the same task with a time limit."""
    return gym.wrappers.TimeLimit(Reach(pay), 15)


def make_registered() -> gym.Env[Any, Any]:
    """A factory that asks Gymnasium."""
    return gym.make("Reach-v0")


gym.register("Reach-v0", "own_envs:Reach", max_episode_steps=20)
gym.register("Timeless", "own_envs:Reach", max_episode_steps=20)
