"""Numbers from 0 to 1, levels and times, as cosines that a network can read."""

import math

import torch
from torch import Tensor, nn

from bridgerl.nn.layers import HeadLinear

OUTERMOST = 1e-5
"""Levels nearer to 0 or 1 have this one's logarithms."""


class CosineEmbedding(nn.Module):
    """ReLU(W cos(pi i u) + b), i = 1 .. n: (...,) -> (..., width), by default n wide."""

    frequencies: Tensor

    def __init__(self, n: int, width: int | None = None) -> None:
        super().__init__()
        self.register_buffer("frequencies", math.pi * torch.arange(1, n + 1), persistent=False)
        self.project = nn.Linear(n, width or n)

    def forward(self, u: Tensor) -> Tensor:
        """Embed every number."""
        return torch.relu_(self.project(torch.cos(u[..., None] * self.frequencies)))


class HeadCosine(nn.Module):
    """`CosineEmbedding` of h heads, feature-major: (h or 1, k) -> (h, width, k).

    With `tails`, -log(u) / 2 and -log(1 - u) / 2 join the cosines, which are flat at 0 and 1.
    """

    frequencies: Tensor

    def __init__(
        self, n_heads: int, n: int, width: int | None = None, *, tails: bool = False
    ) -> None:
        super().__init__()
        frequencies = math.pi * torch.arange(1, n + 1)[:, None]
        self.register_buffer("frequencies", frequencies, persistent=False)
        self._tails = tails
        self.project = HeadLinear(n_heads, n + 2 * tails, width or n)

    def forward(self, u: Tensor) -> Tensor:
        """Embed every number."""
        inputs = torch.cos(u[:, None] * self.frequencies)
        if self._tails:
            inside = u.clamp(OUTERMOST, 1 - OUTERMOST)
            logs = torch.stack([inside.log(), torch.log1p(-inside)], 1)
            inputs = torch.cat([inputs, -0.5 * logs], 1)
        return torch.relu_(self.project(inputs))
