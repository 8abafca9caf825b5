"""The network that predicts where a bridge ends: (s, a) once per transition, (tau, t, z) per atom.

All heads run as one batched product, feature-major: activations are (h, width, k b), so that
whatever belongs to a transition, a level or a time is added along contiguous memory. The first
layer is split by input; nothing of size (b, k, inputs) is ever built.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bridgerl.nn.heads import HeadLinear


class Context(NamedTuple):
    """What stays the same while an atom crosses the bridge."""

    base: Tensor
    """First-layer sum of (s, a) and tau, (h, width, k b)."""
    location: Tensor
    """Where each transition's returns lie, (h, 1, b)."""


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
    """`CosineEmbedding` of h heads, feature-major: (h or 1, n) -> (h, width, n)."""

    frequencies: Tensor

    def __init__(self, n_heads: int, width: int) -> None:
        super().__init__()
        frequencies = math.pi * torch.arange(1, width + 1)[:, None]
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.project = HeadLinear(n_heads, width, width)

    def forward(self, u: Tensor) -> Tensor:
        """Embed every number."""
        return torch.relu_(self.project(torch.cos(u[:, None] * self.frequencies)))


class EndpointNet(nn.Module):
    """MLPs on [features(s, a), emb(tau), emb(t), z], one per head, first layers split by input.

    Without a trunk the features are (s, a) themselves and the location is 0: the paper's network.
    With one, the trunk's width reads out the location m(s, a), and the small rest is a bridge of
    its own from tau to the deviation Z_tau - m: it stands at z - (1 - xi(t)) m, which is tau at the
    start and the deviation at the end, where the location is added.
    """

    def __init__(
        self,
        n_heads: int,
        n_inputs: int,
        hidden: Sequence[int],
        *,
        trunk: Sequence[int] = (),
        n_embed: int = 32,
        z_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self._z_scale = z_scale
        self.trunk = _layers(n_heads, (n_inputs, *trunk))
        n_features = trunk[-1] if trunk else n_inputs
        self.embed_tau = HeadCosine(n_heads, n_embed)
        self.embed_t = HeadCosine(n_heads, n_embed)
        # One layer in four parts: their fan-in is that of all inputs together.
        total = n_features + 2 * n_embed + 1
        self._widths = (hidden[0], 1 if trunk else 0)  # The last row reads out the location.
        self.from_features = HeadLinear(n_heads, n_features, sum(self._widths), fan_in=total)
        self.from_tau = HeadLinear(n_heads, n_embed, hidden[0], fan_in=total, bias=False)
        self.from_t = HeadLinear(n_heads, n_embed, hidden[0], fan_in=total, bias=False)
        self.from_z = HeadLinear(n_heads, 1, hidden[0], fan_in=total, bias=False)
        self.rest = _layers(n_heads, (*hidden, 1))

    def begin(self, x: Tensor, tau: Tensor) -> Context:
        """The part of a transition and its levels: x (b, i), tau (h or 1, k, b or 1)."""
        features = x.t()
        for layer in self.trunk:
            features = torch.relu_(layer(features))
        rows, location = self.from_features(features).split(self._widths, 1)
        if location.shape[1] == 0:
            location = rows.new_zeros(1, 1, 1)
        levels = self.from_tau(self.embed_tau(tau.flatten(1)))
        levels = levels.view(*levels.shape[:2], *tau.shape[1:])
        return Context((rows[:, :, None] + levels).flatten(2), location)

    def at(self, t: Tensor) -> Tensor:
        """First-layer part of bridge times (n,): (h, width, n)."""
        return self.from_t(self.embed_t(t[None]))

    def forward(self, context: Context, at: Tensor, z: Tensor) -> Tensor:
        """Predicted endpoints of atoms z (h, k, b) at the times of `at` (h, width, b or 1)."""
        h, k, b = z.shape
        flat, gain = z.reshape(h, 1, k * b), 1 / self._z_scale
        if torch.is_grad_enabled():
            x = torch.baddbmm(context.base, self.from_z.weight, flat, alpha=gain)
        else:  # The same product of rank one in fewer passes over memory.
            x = torch.addcmul(context.base, self.from_z.weight, flat, value=gain)
        # A time of its own for every transition, the same for all its atoms; or one for all.
        own = at.shape[2] > 1
        x = (x.view(h, -1, k, b) + at[:, :, None]).flatten(2) if own else x.add_(at)
        x = torch.relu_(x)
        *hidden, readout = self.rest
        for layer in hidden:
            x = torch.relu_(layer(x))
        end = readout(x).view(h, k, b)
        return end if self._z_scale == 1 else self._z_scale * end


def _layers(n_heads: int, sizes: Sequence[int]) -> nn.ModuleList:
    """Affine maps between the sizes."""
    return nn.ModuleList(HeadLinear(n_heads, a, b) for a, b in pairwise(sizes))
