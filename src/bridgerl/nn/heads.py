"""Networks of several heads, and of one, whose hidden layers are a trunk of any kind."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bridgerl.nn.layers import HeadLinear, of
from bridgerl.nn.mlp import MLP, Activation
from bridgerl.nn.settings import TrunkName
from bridgerl.nn.trunk import make_trunk


class Heads(nn.Module):
    """Independent networks on one input, their outputs times a scale: (b, in) -> (b, h, out)."""

    def __init__(
        self,
        n_heads: int,
        sizes: Sequence[int],
        trunk: TrunkName = "plain",
        *,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self._scale = scale
        *widths, n_out = sizes
        self.trunk = make_trunk(trunk, n_heads, widths)
        self.readout = HeadLinear(n_heads, widths[-1], n_out)
        self._affine = tuple(self.readout.parameters())

    def forward(self, x: Tensor, n_heads: int | None = None) -> Tensor:
        """Stack the outputs of every head, or of the first so many, on axis 1."""
        y, (weight, bias) = self.trunk(x, n_heads), self._affine
        c = self._scale
        return torch.baddbmm(of(y, bias), of(y, weight), y, alpha=c, beta=c).permute(2, 0, 1)


class Features(nn.Module):
    """A trunk of one head, in rows: (b, in) -> (b, width)."""

    def __init__(self, sizes: Sequence[int], trunk: TrunkName) -> None:
        super().__init__()
        self.trunk = make_trunk(trunk, 1, sizes)

    def forward(self, x: Tensor) -> Tensor:
        """What the trunk makes of every row."""
        return self.trunk(x).squeeze(0).t()


def reader(n_in: int, widths: Sequence[int], trunk: TrunkName) -> tuple[nn.Module, int]:
    """A trunk of one head and the width of its features; without widths the input itself."""
    if not widths:
        return nn.Identity(), n_in
    sizes = (n_in, *widths)
    kind = MLP(sizes, open_end=False) if trunk == "plain" else Features(sizes, trunk)
    return kind, widths[-1]


def network(
    sizes: Sequence[int], trunk: TrunkName, *, activation: Activation = torch.relu_
) -> nn.Module:
    """A trunk of one head, its activation for the plain kind alone, and a linear layer."""
    if trunk == "plain":
        return MLP(sizes, activation=activation)
    *widths, n_out = sizes
    return nn.Sequential(Features(widths, trunk), nn.Linear(widths[-1], n_out))
