"""Plain multi-layer perceptrons, one or several on the same input."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]


class MLP(nn.Module):
    """Linear layers with an activation between them: (b, in) -> (b, out)."""

    def __init__(self, sizes: Sequence[int], *, activation: Activation = torch.relu_) -> None:
        super().__init__()
        self.activation = activation
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Apply every layer; the last one stays linear."""
        *hidden, readout = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return readout(x)


class Heads(nn.Module):
    """Independent networks on one input: (b, in) -> (b, h, out)."""

    def __init__(self, n_heads: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(MLP(sizes) for _ in range(n_heads))

    def forward(self, x: Tensor) -> Tensor:
        """Stack the heads' outputs on axis 1."""
        return torch.stack([net(x) for net in self.nets], dim=1)
