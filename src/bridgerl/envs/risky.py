"""Tasks with rare costly events: MuJoCo's own, and a point mass with a disc on the short way."""

from collections.abc import Callable
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np

NAMESPACE = "Risky/"
POINT_MASS = "Risky/PointMass-v0"


class Danger(NamedTuple):
    """Where something may happen, how often, and what it takes."""

    where: Callable[[Any], bool]
    """Whether a MuJoCo task, by its state, is in danger."""
    chance: float
    """Probability that it happens in a step that is in danger."""
    cost: float


SPEED = 4.0
"""Speed above which HalfCheetah may break down."""
PITCH = 0.1
"""Radians of lean, to either side, beyond which Hopper may stumble."""
# As in the literature on offline learning under risk, where episodes are shorter.
DANGERS = {
    "HalfCheetah-v5": Danger(lambda data: data.qvel[0] > SPEED, 0.05, 70.0),
    "Hopper-v5": Danger(lambda data: abs(data.qpos[2]) > PITCH, 0.1, 50.0),
}


class Risky(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """Events are drawn from the environment's own generator: an episode can be repeated."""

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray], danger: Danger) -> None:
        super().__init__(env)
        self._danger = danger

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Act, and pay if something happens; `info` tells whether it could and did."""
        obs, reward, terminated, truncated, info = super().step(action)
        data: Any = getattr(self.unwrapped, "data", None)
        danger = bool(self._danger.where(data))
        struck = danger and self.np_random.random() < self._danger.chance
        info |= {"danger": danger, "struck": struck}
        return obs, float(reward) - self._danger.cost * struck, terminated, truncated, info


class PointMass(gym.Env[np.ndarray, np.ndarray]):
    """A point goes from the left to the right; the short way leads through a disc.

    A step pays 50 for every unit of way made towards the goal, less 5. In the disc it costs 50
    more with a chance of 2 %. Straight on takes 20 steps, 12 of them in the disc, and loses 12 on
    average to it; around it takes 24, a loss of 20 for sure.
    """

    START, GOAL, REACH = np.array([-1.0, 0.0]), np.array([1.0, 0.0]), 0.1
    RADIUS, CHANCE, COST = 0.6, 0.02, 50.0
    SPEED, PAY, TIME = 0.1, 50.0, 5.0
    WALL = 1.5
    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        wall = np.full(2, self.WALL)
        self.observation_space = gym.spaces.Box(-wall, wall, dtype=np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._at = self.START

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Put the point near the left end, where an episode begins."""
        super().reset(seed=seed, options=options)
        self._at = self.START + self.np_random.uniform(-0.05, 0.05, 2)
        return self._at.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go a tenth of a unit at most."""
        before = float(np.linalg.norm(self.GOAL - self._at))
        way = self.SPEED * np.asarray(action, np.float64)
        way /= max(1.0, float(np.linalg.norm(way)) / self.SPEED)
        self._at = np.clip(self._at + way, -self.WALL, self.WALL)
        left = float(np.linalg.norm(self.GOAL - self._at))
        danger = bool(np.linalg.norm(self._at) < self.RADIUS)
        struck = danger and self.np_random.random() < self.CHANCE
        reward = self.PAY * (before - left) - self.TIME - self.COST * struck
        info = {"danger": danger, "struck": struck}
        return self._at.copy(), float(reward), left < self.REACH, False, info


def make_risky(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """What `gym.make` of a risky MuJoCo task makes; the time limit is outside."""
    plain = gym.make(env_id, max_episode_steps=-1, disable_env_checker=True, **kwargs)
    return Risky(plain, DANGERS[env_id])


def register_risky() -> None:
    """Make `Risky/HalfCheetah-v5`, `Risky/PointMass-v0` and the like known to Gymnasium."""
    for env_id in DANGERS:
        name = NAMESPACE + env_id
        if name not in gym.registry:
            how: dict[str, Any] = {"kwargs": {"env_id": env_id}, "max_episode_steps": 1000}
            gym.register(name, entry_point=make_risky, **how)
    if POINT_MASS not in gym.registry:
        gym.register(POINT_MASS, entry_point=f"{__name__}:PointMass", max_episode_steps=100)
