"""The noise-predicting network of a diffusion: eps(x, k, c) for points x and a condition c."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgerl.nn.mlp import MLP, mish


class Condition(NamedTuple):
    """What stays the same while a point is denoised: shares of the first layer."""

    base: Tensor
    """Of the condition, (b, 1, width)."""
    steps: Tensor
    """Of every diffusion step, (T, width)."""


class StepEmbedding(nn.Module):
    """Sinusoids of the steps 0 .. T - 1, then Linear, Mish, Linear: (T, n)."""

    waves: Tensor

    def __init__(self, steps: int, n: int, hidden: int) -> None:
        super().__init__()
        self.width, half = n, n // 2
        rates = torch.exp(torch.arange(half) * (-math.log(10_000) / max(half - 1, 1)))
        angles = torch.arange(steps)[:, None] * rates
        self.register_buffer("waves", torch.cat([angles.sin(), angles.cos()], -1), persistent=False)
        self.mlp = MLP((n, hidden, n), activation=mish)

    def forward(self) -> Tensor:
        """Embed every step."""
        return self.mlp(self.waves)


class Denoiser(nn.Module):
    """An MLP with Mish on [x, emb(k), c], its first layer split so that c is read once per walk.

    What a trunk makes of the condition stands in its place.
    """

    def __init__(
        self,
        n_x: int,
        n_condition: int,
        hidden: Sequence[int],
        embed: StepEmbedding,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embed, self.trunk = embed, trunk or nn.Identity()
        self._parts = (n_x, embed.width, n_condition)
        # One matrix, so that PyTorch's initial range follows from all inputs together.
        self.first = nn.Linear(sum(self._parts), hidden[0])
        self.rest = MLP((*hidden, n_x), activation=mish)

    def begin(self, c: Tensor) -> Condition:
        """The part of a condition c (b, i)."""
        c, (_, w_k, w_c) = self.trunk(c), self.first.weight.split(self._parts, 1)
        return Condition(torch.addmm(self.first.bias, c, w_c.t())[:, None], self.embed() @ w_k.t())

    def forward(self, condition: Condition, x: Tensor, k: int | Tensor) -> Tensor:
        """Noise in the points x (b, n, d) at steps k, one or (b, n): (b, n, d)."""
        w_x = self.first.weight[:, : self._parts[0]]
        return self.rest(mish(condition.base + condition.steps[k] + F.linear(x, w_x)))
