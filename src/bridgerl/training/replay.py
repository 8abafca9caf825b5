"""Uniform replay in float32: one row per transition, so that a batch is one gather."""

import numpy as np
import psutil
import torch
from torch import Tensor

from bridgerl.errors import UserError
from bridgerl.types import Batch, EnvSpec

Array = np.ndarray


class Replay:
    """Ring of rows [obs, action, reward, discount, next_obs]; row i lives in slot i % capacity."""

    def __init__(self, capacity: int, spec: EnvSpec, *, fine_rewards: bool = False) -> None:
        """`fine_rewards`: a sixth column holds what float32 leaves of a reward."""
        self.capacity, self.count, self.fine_rewards = capacity, 0, fine_rewards
        self.widths = row_widths(spec, fine_rewards=fine_rewards)
        # Memory is touched, and so paid for, only where rows are written.
        self.rows = torch.empty(capacity, sum(self.widths))
        self._columns = np.split(self.rows.numpy(), np.cumsum(self.widths)[:-1], axis=1)

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    def add(
        self, obs: Array, action: Array, reward: float, discount: float, next_obs: Array
    ) -> None:
        """Store one transition over the oldest one; discount is 0 after termination."""
        values = (obs, action, reward, discount, next_obs, reward - float(np.float32(reward)))
        for column, value in zip(self._columns, values, strict=False):
            column[self.count % self.capacity] = value
        self.count += 1

    def sample(self, n: int, generator: torch.Generator, device: str = "cpu") -> Batch:
        """N transitions drawn uniformly with replacement."""
        index = torch.randint(len(self), (n,), generator=generator)
        return self._batch(self.rows.index_select(0, index).to(device))

    def latest(self, n: int, device: str = "cpu") -> Batch:
        return self._batch(self.read(self.live_rows()[-n:]).to(device))

    def _batch(self, rows: Tensor) -> Batch:
        obs, action, reward, discount, next_obs, *rest = rows.split(self.widths, 1)
        reward = reward.double() + rest[0] if rest else reward
        return Batch(obs, action, reward.squeeze(1), discount.squeeze(1), next_obs)

    def largest_reward(self) -> float:
        """The largest size of a reward still held."""
        return float(np.abs(self._columns[2][: len(self)]).max(initial=0.0))

    def live_rows(self) -> range:
        """Global numbers of the rows still held."""
        return range(self.count - len(self), self.count)

    def read(self, rows: range) -> Tensor:
        """Copy of the rows with these global numbers, (n, width)."""
        return self.rows[torch.arange(rows.start, rows.stop) % self.capacity]

    def write(self, first: int, rows: Tensor) -> None:
        self.rows[torch.arange(first, first + len(rows)) % self.capacity] = rows


def row_widths(spec: EnvSpec, *, fine_rewards: bool) -> tuple[int, ...]:
    """Numbers in each part of a row."""
    return (spec.obs_dim, spec.action_dim, 1, 1, spec.obs_dim) + (1,) * fine_rewards


def row_bytes(spec: EnvSpec, *, fine_rewards: bool) -> int:
    """Bytes that one row of the replay takes."""
    return 4 * sum(row_widths(spec, fine_rewards=fine_rewards))


def check_memory(spec: EnvSpec, rows: int, *, fine_rewards: bool = False) -> int:
    """Bytes that so many rows take; refuses what the machine cannot hold."""
    need = rows * row_bytes(spec, fine_rewards=fine_rewards)
    have = psutil.virtual_memory().available
    if need > 0.9 * have:
        what = f"replay of {rows:,} rows needs {need / 1e9:.2f} GB, {have / 1e9:.2f} GB are free"
        fits = int(rows * 0.8 * have / need)
        raise UserError(f"{what}; lower --train.buffer-size to about {fits:,}")
    return need
