"""The network that predicts where a bridge ends: (s, a) once per transition, (tau, t, z) per atom.

All heads run as one batched product, feature-major: activations are (h, width, k b), so that
whatever belongs to a transition, a level or a time is added along contiguous memory. The first
layer is split by input; nothing of size (b, k, inputs) is ever built. Outside, atoms are (b, h, k):
views of memory that lies (h, k, b), an order which elementwise operations keep.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.jit import is_tracing  # pyright: ignore[reportPrivateImportUsage]

from bridgerl.nn.embed import HeadCosine
from bridgerl.nn.layers import HeadLinear
from bridgerl.nn.trunk import Trunk

CACHED = 2**18
"""Numbers of one layer that cross the bridge together without a graph: 1 MB, a core's cache."""


class Context(NamedTuple):
    """What stays the same while an atom crosses the bridge."""

    base: Tensor
    """First-layer part of (s, a) and tau, (h, width, k b)."""
    start: Tensor
    """Every head's atoms at their levels, (b, h, k)."""
    direct: Tensor | None
    """What features and levels add to every prediction beside the network, (b, h, k), or None."""


class EndpointNet(nn.Module):
    """Networks on (s, a), tau, t and z, one per head, first layers split by input.

    By default an MLP on [(s, a), emb(tau), emb(t), z], the paper's network. A trunk is read once
    per transition, so that only the rest, which can be small, is run at every step; its features
    meet levels in products too: W [features, emb(tau), features * gate(tau)]. One row of that goes
    straight to the output: few units alone may not see what is rare.
    """

    def __init__(
        self,
        n_heads: int,
        n_features: int,
        hidden: Sequence[int],
        trunk: Trunk | None = None,
        *,
        n_embed: int = 32,
        z_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.trunk, self._z_scale, factored = trunk, z_scale, trunk is not None
        self._widths = (n_embed, n_features if factored else 0)  # Of a level's own part, its gate.
        self.embed_tau = HeadCosine(n_heads, n_embed, sum(self._widths), tails=factored)
        self.embed_t = HeadCosine(n_heads, n_embed)
        # One layer in parts: their fan-in is that of all inputs, products not counted twice.
        total = n_features + 2 * n_embed + 1

        def part(n_in: int, n_direct: int = 0, *, bias: bool = False) -> HeadLinear:
            return HeadLinear(n_heads, n_in, hidden[0] + n_direct, fan_in=total, bias=bias)

        self.from_features = part(n_features, int(factored), bias=not factored)
        self.from_tau = part(n_embed, int(factored), bias=factored)
        self.from_t, self.from_z = part(n_embed), part(1)
        self.rest = _layers(n_heads, (*hidden, 1))
        self.from_product = part(n_features, 1) if factored else None

    def begin(self, x: Tensor, tau: Tensor) -> Context:
        """The part of transitions x (b, i) and their levels tau (b or 1, h or 1, k)."""
        return self._begin(x.t() if self.trunk is None else self.trunk(x), tau)

    def _begin(self, features: Tensor, tau: Tensor) -> Context:
        """The same of their features, (h, width, b), or without a trunk (i, b)."""
        tau = tau.permute(1, 2, 0)
        level, gate = self.embed_tau(tau.flatten(1)).split(self._widths, 1)
        levels, direct = self.from_tau(level).unflatten(2, tau.shape[1:]), None
        if self.from_product is None:
            base = self.from_features(features)[:, :, None] + levels
        else:
            gate = gate.unflatten(2, tau.shape[1:])
            met = self._meet(self.from_product, features, levels, gate)
            base, direct = met.split((met.shape[1] - 1, 1), 1)
            direct = self._z_scale * direct[:, 0].permute(2, 0, 1)
        start = tau.expand(len(base), -1, features.shape[-1]).contiguous()
        return Context(base.flatten(2), start.permute(2, 0, 1), direct)

    def _meet(
        self, from_product: HeadLinear, features: Tensor, levels: Tensor, gate: Tensor
    ) -> Tensor:
        """V features + levels + W (features * gate): (h, width, k, b).

        Features (h, f, b), levels (h, width, k, b or 1), gate (h, f, k, b or 1).
        """
        if gate.shape[3] != 1:
            product = from_product((features[:, :, None] * gate).flatten(2))
            return product.view_as(levels) + self.from_features(features)[:, :, None] + levels
        # Levels that the batch shares multiply the weights instead: all is one small product.
        v, w = self.from_features.weight[:, :, None], from_product.weight[:, :, None]
        gate = gate.permute(0, 3, 2, 1).contiguous()  # Or the product takes its odd strides.
        weight = torch.addcmul(v, w, gate).flatten(1, 2)  # (h, width k, f)
        met = torch.baddbmm(levels.flatten(1, 2), weight, features)
        return met.unflatten(1, levels.shape[1:3])

    def at(self, t: Tensor) -> Tensor:
        """First-layer part of bridge times (n,): (h, width, n)."""
        return self.from_t(self.embed_t(t[None]))

    def forward(self, context: Context, at: Tensor, z: Tensor) -> Tensor:
        """Predicted endpoints of atoms z (b, h, k) at the times of `at` (h, width, b or 1)."""
        b, h, k = z.shape
        flat, gain = z.permute(1, 2, 0).reshape(h, 1, k * b), 1 / self._z_scale
        if torch.is_grad_enabled():
            x = torch.baddbmm(context.base, self.from_z.weight, flat, alpha=gain)
        else:  # The same product of rank one in fewer passes over memory.
            x = torch.addcmul(context.base, self.from_z.weight, flat, value=gain)
        # A time of its own for every transition, the same for all its atoms; or one for all.
        own = at.shape[2] > 1
        x = (x.view(h, -1, k, b) + at[:, :, None]).relu_().flatten(2) if own else x.add_(at).relu_()
        *hidden, readout = self.rest
        for layer in hidden:
            x = torch.relu_(layer(x))
        end = readout(x).view(h, k, b).permute(2, 0, 1)
        if context.direct is not None:
            return torch.add(context.direct, end, alpha=self._z_scale)
        return end if self._z_scale == 1 else self._z_scale * end

    def contexts(self, x: Tensor, tau: Tensor) -> Iterator[Context]:
        """`begin` in parts of the transitions whose activations stay in a CPU's cache on the way.

        With a graph, which keeps them all, on other devices, or where the way is written down for
        batches of any size, it is one part.
        """
        h, width, _ = self.from_z.weight.shape
        widest = max([width, *(w.shape[1] for w in self.rest.parameters())])
        features = None if self.trunk is None else self.trunk(x)  # Batch norms want all rows.
        if torch.is_grad_enabled() or x.device.type != "cpu" or is_tracing():
            yield self._begin(x.t() if features is None else features, tau)
            return
        rows = max(1, CACHED // (h * widest * tau.shape[2]))
        for i in range(0, max(len(x), 1), rows):
            part = slice(i, i + rows)
            own = x[part].t() if features is None else features[..., part]
            yield self._begin(own, tau if len(tau) == 1 else tau[part])


def _layers(n_heads: int, sizes: Sequence[int]) -> nn.ModuleList:
    """Affine maps between the sizes."""
    return nn.ModuleList(HeadLinear(n_heads, a, b) for a, b in pairwise(sizes))
