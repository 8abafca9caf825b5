"""Running statistics between a task's units and the learner's: centred, and of a known size.

They change when an environment steps, never inside an update. At every step NumPy and plain
floats cost a quarter of what buffers would; `state_dict()` carries them as extra state.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from bridgerl.types import Batch

CLIP = 10.0
"""Largest size of a normalised observation."""
ROUNDING = 1e-5
"""Share of its mean below which a component's deviation is taken for rounding."""
TINY = float(np.finfo(np.float32).tiny)


class ObsMoments(nn.Module):
    """Mean and deviation of every component over all observations so far (Welford 1962)."""

    def __init__(self, n: int) -> None:
        super().__init__()
        # Changed in place: a module is slow to be given attributes.
        self._count, self.mean, self._squares = np.zeros(1), np.zeros(n), np.zeros(n)
        self._affine: list[Tensor] = []

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(self._squares / np.maximum(self._count, 1))

    def add(self, obs: np.ndarray) -> None:
        """Take one observation (o,) into account."""
        count, mean, squares = self._count, self.mean, self._squares
        count += 1
        apart = obs - mean
        mean += apart / count
        squares += apart * (obs - mean)
        self._affine.clear()

    def normalize(self, obs: Tensor) -> Tensor:
        """(obs - mean) / deviation within CLIP, float32: (b, o)."""
        if self._count[0] < 2:  # There is no deviation yet.
            return obs.clamp(-CLIP, CLIP)
        if not self._affine:
            # The floor is a share of the mean, so that the task's units do not matter. What has
            # never changed equals its mean and becomes 0 by any scale, if that is finite.
            size = np.maximum(np.hypot(self.std, ROUNDING * self.mean), TINY)
            for row in (self.mean, 1 / size):
                self._affine.append(torch.from_numpy(row.astype(np.float32)).to(obs.device))
        shift, scale = self._affine
        return torch.sub(obs, shift).mul_(scale).clamp_(-CLIP, CLIP)

    def get_extra_state(self) -> Tensor:
        return torch.from_numpy(np.concatenate([self._count, self.mean, self._squares]))

    def set_extra_state(self, state: Tensor) -> None:
        ends = (1, 1 + len(self.mean))
        self._count, self.mean, self._squares = np.split(state.cpu().numpy().copy(), ends)
        self._affine.clear()


class ReturnScale(nn.Module):
    """How large the discounted sum of an episode's rewards so far is, over all steps so far.

    By its root mean square. Its deviation goes to 0 where rewards are constant, or become so
    under a good policy, and values would grow without bound. Sums of 0, as before an episode's
    first reward, say nothing of its size: with them, a rare reward would pass for a large one.
    """

    def __init__(
        self, discount: float, unit: float, n_envs: int = 1, *, resumes: bool = True
    ) -> None:
        """`resumes`: whether episodes go on after a load, so that the state holds their sums."""
        super().__init__()
        self._discount, self._unit, self._resumes = discount, unit, resumes
        self._moments, self._sums = [0.0, 0.0], [0.0] * n_envs

    @property
    def gain(self) -> float:
        """What rewards are multiplied by; 1 as long as all of them were 0."""
        _, mean_square = self._moments
        return self._unit / math.sqrt(mean_square) if mean_square > 0 else 1.0

    @property
    def sums(self) -> list[float]:
        """Discounted sums of the episodes under way, one per environment."""
        return self._sums

    def go_on(self, sums: list[float]) -> None:
        """Let the episodes under way be those that had these sums."""
        self._sums[:] = sums

    def begin_episode(self, env: int) -> None:
        self._sums[env] = 0.0

    def add(self, reward: float, env: int) -> float:
        """Take the reward of a step into account; returns the ratio of new to old gain."""
        total = self._sums[env] = self._discount * self._sums[env] + reward
        if total == 0:
            return 1.0
        count, before = self._moments
        after = before + (total * total - before) / (count + 1)
        self._moments[:] = count + 1, after
        return math.sqrt(before / after) if before > 0 else 1.0

    def get_extra_state(self) -> Tensor:
        sums = self._sums if self._resumes else []
        return torch.tensor([*self._moments, *sums], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        self._moments[:] = state[:2].tolist()
        self._sums = state[2:].tolist() if self._resumes else [0.0] * len(self._sums)


class Normalizer(nn.Module):
    """Between the task's units and the learner's; a part that is None changes nothing."""

    def __init__(self, obs: ObsMoments | None = None, returns: ReturnScale | None = None) -> None:
        super().__init__()
        self.obs, self.returns = obs, returns

    def begin_episode(self, obs: np.ndarray, env: int) -> None:
        """An episode of one of the environments begins."""
        if self.obs is not None:
            self.obs.add(obs)
        if self.returns is not None:
            self.returns.begin_episode(env)

    def add(self, obs: np.ndarray, reward: float, env: int) -> float:
        """A step reached an observation and paid; returns the ratio of new to old gain."""
        if self.obs is not None:
            self.obs.add(obs)
        return 1.0 if self.returns is None else self.returns.add(reward, env)

    def normalize_obs(self, obs: Tensor) -> Tensor:
        """The task's observations as the learner sees them: (b, o)."""
        return obs if self.obs is None else self.obs.normalize(obs)

    def normalize_batch(self, batch: Batch) -> Batch:
        """The task's transitions as the learner learns from them."""
        obs, next_obs = self.normalize_obs(batch.obs), self.normalize_obs(batch.next_obs)
        reward = batch.reward
        if self.returns is not None:  # In float64, so that the unit of rewards is lost in rounding.
            reward = (reward.double() * self.returns.gain).float()
        return batch._replace(obs=obs, reward=reward, next_obs=next_obs)

    def in_task_units(self, returns: Tensor) -> Tensor:
        """The learner's returns in the task's units."""
        return returns if self.returns is None else returns / self.returns.gain
