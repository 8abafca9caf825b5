"""N-step returns: a transition waits until the rewards after it are known, then is a replay row."""

from collections import deque

import numpy as np
import torch
from torch import Tensor

from bridgerl.envs.task import Outcome
from bridgerl.errors import StorageFault
from bridgerl.runs.checkpoint import EPISODE
from bridgerl.training.replay import Array, Replay


class PendingRows:
    """Transitions of the episode under way that still wait for some of their n rewards.

    Complete ones become rows [obs, action, sum of discount^k reward_k, discount^n, observation n
    steps on], with fewer steps where the episode ends before, and no discount left where it
    terminates.
    """

    def __init__(self, replay: Replay, n_step: int, discount: float) -> None:
        self._replay, self._n_step, self._discount = replay, n_step, discount
        self._waiting: deque[tuple[Array, Array, float]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, obs: Array, action: Array, out: Outcome) -> None:
        """Take the next transition of the episode in, and write the rows that it completes."""
        if out.diverged:  # It belongs to no transition: the episode ends before it.
            self.break_off(obs)
            return
        self._waiting.append((obs, action, out.reward))
        if out.terminated:
            while self._waiting:
                self._write_oldest(out.obs, 0.0)
        elif out.truncated:
            self.break_off(out.obs)
        elif len(self._waiting) == self._n_step:
            self._write_oldest(out.obs, self._discount**self._n_step)

    def break_off(self, last_obs: Array) -> None:
        """Write all rows as they are, each with the value of the last observation ahead."""
        while self._waiting:
            self._write_oldest(last_obs, self._discount ** len(self._waiting))

    def _write_oldest(self, next_obs: Array, discount: float) -> None:
        rewards = [reward for _, _, reward in self._waiting]
        total = rewards.pop()
        while rewards:
            total = rewards.pop() + self._discount * total
        obs, action, _ = self._waiting.popleft()
        self._replay.add(obs, action, total, discount, next_obs)

    def state(self) -> Tensor:
        """Rows [obs, action, reward] in float64, where all three are exact: (n, o + a + 1)."""
        rows = [np.concatenate([obs, action, [reward]]) for obs, action, reward in self._waiting]
        return torch.from_numpy(np.array(rows).reshape(len(rows), sum(self._replay.widths[:3])))

    def load(self, rows: Tensor) -> None:
        """Put saved rows that wait for later rewards back."""
        if len(rows) >= self._n_step:
            what = f"{len(rows)} rows wait, --train.n-step {self._n_step} lets fewer"
            raise StorageFault(f"{EPISODE} is damaged: {what}")
        cuts = np.cumsum(self._replay.widths[:2])
        for row in rows.numpy():
            obs, action, (reward,) = np.split(row, cuts)
            self._waiting.append((obs.astype(np.float32), action.astype(np.float32), float(reward)))
