"""Networks that predict where a bridge ends: (s, a) once per transition, (tau, t, z) per atom.

The first layer is split: what depends on (s, a) is computed once per transition, on tau once per
level, on t once per step, and z enters by rank one. Nothing of size (b, k, inputs) is ever built.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bridgerl.nn.mlp import MLP


class Context(NamedTuple):
    """What stays the same while an atom crosses the bridge."""

    base: Tensor
    """First-layer sum of (s, a) and tau, (b, k, width)."""
    location: Tensor
    """Where returns lie, (b, 1); atoms are read relative to it."""


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


class EndpointNet(nn.Module):
    """An MLP on [features(s, a), emb(tau), emb(t), z] whose first layer is split by input.

    Without a trunk the features are (s, a) themselves and the location is 0: the paper's network.
    With one, the trunk's width reads out the location m(s, a), and the small rest only bends it:
    m + shape(tau, t, z - m).
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        *,
        trunk: Sequence[int] = (),
        n_embed: int = 32,
        z_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self._z_scale = z_scale
        self.trunk = MLP((n_inputs, *trunk)) if trunk else None
        n_features = trunk[-1] if trunk else n_inputs
        self.locate = nn.Linear(n_features, 1) if trunk else None
        self.embed_tau, self.embed_t = CosineEmbedding(n_embed), CosineEmbedding(n_embed)
        # One matrix, so that PyTorch's initial range follows from all inputs together.
        self.first = nn.Linear(n_features + 2 * n_embed + 1, hidden[0])
        self._parts = (n_features, n_embed, n_embed, 1)
        self.rest = MLP((*hidden, 1))

    def begin(self, x: Tensor, tau: Tensor) -> Context:
        """The part of a transition and its levels: x (b, i), tau (b or 1, k)."""
        if self.trunk is None or self.locate is None:
            features, location = x, x.new_zeros(1, 1)
        else:
            features = torch.relu(self.trunk(x))
            location = self.locate(features)
        w_features, w_tau, _, _ = self.first.weight.split(self._parts, 1)
        per_row = torch.addmm(self.first.bias, features, w_features.t())
        return Context(per_row[:, None] + self.embed_tau(tau) @ w_tau.t(), location)

    def forward(self, context: Context, t: Tensor, z: Tensor) -> Tensor:
        """Predicted endpoints of atoms z (b, k) at times t (b or 1, 1): (b, k)."""
        _, _, w_t, w_z = self.first.weight.split(self._parts, 1)
        at = self.embed_t(t) @ w_t.t()
        shifted = (z - context.location) / self._z_scale
        h = torch.relu_(torch.addcmul(context.base + at, shifted[..., None], w_z[:, 0]))
        return context.location + self._z_scale * self.rest(h)[..., 0]
