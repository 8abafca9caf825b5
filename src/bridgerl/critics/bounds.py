"""What returns the rewards seen so far allow, for critics whose samplers need a fence."""

from abc import ABC

import torch
from torch import Tensor, nn

from bridgerl.critics.base import Critic
from bridgerl.ops.targets import bellman
from bridgerl.types import Batch, Bootstrap


class ReturnBounds(nn.Module):
    """Extremes of reward less entropy cost, and the largest discount, over all batches seen."""

    seen: Tensor
    low: Tensor
    high: Tensor
    discount: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Finite from the start, as checkpoints want every number; `seen` tells whether they count.
        for name in ("seen", "low", "high", "discount"):
            self.register_buffer(name, torch.zeros(()))

    @torch.no_grad()
    def widen(self, batch: Batch, boot: Bootstrap) -> None:
        """Take a batch into account."""
        paid = bellman(batch, boot, torch.zeros_like(batch.reward[:, None]))
        low, high = paid.min(), paid.max()
        self.low.copy_(torch.where(self.seen > 0, torch.minimum(self.low, low), low))
        self.high.copy_(torch.where(self.seen > 0, torch.maximum(self.high, high), high))
        torch.maximum(self.discount, batch.discount.max(), out=self.discount)
        self.seen.fill_(1)

    @torch.no_grad()
    def rescale(self, ratio: float) -> None:
        """Follow rewards whose gain has changed: old extremes in new units.

        Entropy costs do not change with it; their share of the bounds is renewed by every batch.
        """
        self.low.mul_(ratio)
        self.high.mul_(ratio)

    def limits(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest return, 0-d: an extreme reward for ever, or once if that is more.

        Once counts because episodes may end; before the first batch nothing is bounded.
        """
        forever = 1 / (1 - self.discount).clamp(min=1e-6)
        low = torch.minimum(self.low, forever * self.low)
        high = torch.maximum(self.high, forever * self.high)
        free = self.seen == 0
        return low.masked_fill(free, -torch.inf), high.masked_fill(free, torch.inf)


class BoundedCritic(Critic, ABC):
    """A critic whose sampler keeps returns within `bounds`, which stay open unless it is asked."""

    bounds: ReturnBounds
    bounded: bool

    def see(self, batch: Batch, boot: Bootstrap) -> None:
        """Let returns be as large as the batch's rewards allow."""
        if self.bounded:
            self.bounds.widen(batch, boot)

    def rescale(self, ratio: float) -> None:
        self.bounds.rescale(ratio)
