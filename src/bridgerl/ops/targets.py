"""From next-state atoms to regression targets."""

from typing import Literal

import torch
from torch import Tensor

from bridgerl.types import Batch, Bootstrap

HeadRule = Literal["min", "mean"]


def merge_heads(z: Tensor, rule: HeadRule) -> Tensor:
    """One value of every head's: (b, h, ...) -> (b, ...)."""
    return z.amin(1) if rule == "min" else z.mean(1)


def drop_top(atoms: Tensor, n_drop: int) -> Tensor:
    """Pool the heads' atoms (b, h, k), sort, drop the n_drop largest: (b, h k - n_drop)."""
    b, h, k = atoms.shape
    return torch.sort(atoms.reshape(b, h * k), dim=1).values[:, : h * k - n_drop]


def bellman(batch: Batch, boot: Bootstrap, atoms: Tensor) -> Tensor:
    """Targets y = r + discount (z - entropy cost) for atoms (b, n); order is kept."""
    discount = batch.discount[:, None]
    return batch.reward[:, None] + discount * (atoms - boot.entropy_cost[:, None])
