"""What reads (s, a), or s: the part of a network that comes in several kinds.

A trunk takes (b, in) and gives the features of every head, (h, width, b):

- plain: Linear, ReLU, layer by layer;
- layernorm: Linear, LayerNorm, ReLU, layer by layer;
- simba: Linear, then residual blocks x + Linear(ReLU(Linear(LayerNorm(x)))), then LayerNorm;
- batchnorm: BatchRenorm, then Linear, ReLU, BatchRenorm, layer by layer, as in CrossQ.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from bridgerl.nn.layers import HeadBatchRenorm, HeadLinear, feature_major, layer_norm, of
from bridgerl.nn.settings import TrunkName

EXPANSION = 4
"""Width of a residual block's hidden layer over that of its input."""


class Trunk(nn.Module, ABC):
    """Layers of h heads on one input."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads

    @abstractmethod
    def forward(self, x: Tensor, n_heads: int | None = None) -> Tensor:
        """Features of every head, or of the first so many: (b, in) -> (h, width, b)."""


class Plain(Trunk):
    """Linear, ReLU."""

    def __init__(self, n_heads: int, sizes: Sequence[int]) -> None:
        super().__init__(n_heads)
        layers = _affine(n_heads, sizes)
        self.layers = nn.ModuleList(layers)
        # As in MLP: looking parameters up through modules costs a small network 3 %.
        self._affine = [tuple(layer.parameters()) for layer in layers]

    def forward(self, x: Tensor, n_heads: int | None = None) -> Tensor:
        """Feature-major all the way, which is a little faster where no norm asks for rows."""
        h = n_heads or self.n_heads
        y = x.t().expand(h, -1, -1)
        for weight, bias in self._affine:
            y = torch.relu_(torch.baddbmm(of(y, bias), of(y, weight), y))
        return y


class LayerNormed(Trunk):
    """Linear, LayerNorm, ReLU."""

    def __init__(self, n_heads: int, sizes: Sequence[int]) -> None:
        super().__init__(n_heads)
        self._layers = _affine(n_heads, sizes)
        self.layers = nn.ModuleList(self._layers)

    def forward(self, x: Tensor, n_heads: int | None = None) -> Tensor:
        """Layer by layer."""
        y = x.expand(n_heads or self.n_heads, -1, -1)
        for layer in self._layers:
            y = torch.relu_(layer_norm(layer.rows(y)))
        return feature_major(y)


class Simba(Trunk):
    """Residual blocks on normalised inputs (Lee et al. 2025): one per width after the first."""

    def __init__(self, n_heads: int, sizes: Sequence[int]) -> None:
        super().__init__(n_heads)
        n_in, width, *others = sizes
        self.embed = HeadLinear(n_heads, n_in, width)
        wide = [HeadLinear(n_heads, width, EXPANSION * width) for _ in others]
        back = [HeadLinear(n_heads, EXPANSION * width, width) for _ in others]
        self.wide, self.back = nn.ModuleList(wide), nn.ModuleList(back)
        self._blocks = list(zip(wide, back, strict=True))

    def forward(self, x: Tensor, n_heads: int | None = None) -> Tensor:
        """Block by block."""
        y = self.embed.rows(x.expand(n_heads or self.n_heads, -1, -1))
        for wide, back in self._blocks:
            y = y + back.rows(torch.relu_(wide.rows(layer_norm(y))))
        return feature_major(layer_norm(y))


class BatchNormed(Trunk):
    """BatchRenorm before the first layer and after every one; running statistics but in `joint`."""

    def __init__(self, n_heads: int, sizes: Sequence[int]) -> None:
        super().__init__(n_heads)
        layers = _affine(n_heads, sizes)
        norms = [HeadBatchRenorm(n_heads, width) for width in sizes]
        self.layers, self.norms = nn.ModuleList(layers), nn.ModuleList(norms)
        self._first, self._stages = norms[0], list(zip(layers, norms[1:], strict=True))
        self.learning = False
        self.mate: Tensor | None = None

    def forward(self, x: Tensor, n_heads: int | None = None) -> Tensor:
        """Layer by layer, a mate's rows beside the batch's own."""
        of_batch = self.learning and (self.mate is not None or torch.is_grad_enabled())
        rows = x if self.mate is None else torch.cat([x, self.mate])
        y = self._first(rows.expand(n_heads or self.n_heads, -1, -1), of_batch=of_batch)
        for layer, norm in self._stages:
            y = norm(torch.relu_(layer.rows(y)), of_batch=of_batch)
        return feature_major(y[:, : x.shape[0]])


TRUNKS: dict[TrunkName, Callable[[int, Sequence[int]], Trunk]] = {
    "plain": Plain,
    "layernorm": LayerNormed,
    "simba": Simba,
    "batchnorm": BatchNormed,
}


def make_trunk(kind: TrunkName, n_heads: int, sizes: Sequence[int]) -> Trunk:
    """A trunk of these sizes, the input's first."""
    return TRUNKS[kind](n_heads, sizes)


def batch_norms(net: nn.Module) -> list[BatchNormed]:
    """The trunks of a network that `joint` is for."""
    return [module for module in net.modules() if isinstance(module, BatchNormed)]


@contextmanager
def joint(norms: Sequence[BatchNormed], mate: Tensor | None = None) -> Iterator[None]:
    """In this block the batch's own statistics are used, and gathered where there is a graph.

    They are those of the batch and its mate (b, in) together. Without a mate, passes that have no
    graph keep to running statistics.
    """
    for trunk in norms:
        trunk.learning, trunk.mate = True, mate
    try:
        yield
    finally:
        for trunk in norms:
            trunk.learning, trunk.mate = False, None


@contextmanager
def mated(norms: Sequence[BatchNormed], mate: Tensor) -> Iterator[None]:
    """Inside `joint`, for passes of the other half of a pair, whose mate is this one."""
    before = [trunk.mate for trunk in norms]
    for trunk in norms:
        trunk.mate = mate if trunk.learning else None
    try:
        yield
    finally:
        for trunk, own in zip(norms, before, strict=True):
            trunk.mate = own


def paired_statistics(slow: nn.Module, fast: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """What batch norms have gathered, of a slow copy and of the network that it follows."""
    of_slow, of_fast = (
        [b for norm in batch_norms(net) for b in norm.buffers()] for net in (slow, fast)
    )
    return list(zip(of_slow, of_fast, strict=True))


def _affine(n_heads: int, sizes: Sequence[int]) -> list[HeadLinear]:
    return [HeadLinear(n_heads, a, b) for a, b in pairwise(sizes)]
