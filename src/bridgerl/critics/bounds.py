"""What returns the rewards seen so far allow, for critics whose samplers need a fence."""

import torch
from torch import Tensor, nn

from bridgerl.ops.targets import bellman
from bridgerl.types import Batch, Bootstrap


class ReturnBounds(nn.Module):
    """Extremes of reward less entropy cost, and the largest discount, over all batches seen."""

    rewards: Tensor
    discount: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rewards", torch.tensor([torch.inf, -torch.inf]))
        self.register_buffer("discount", torch.zeros(()))

    @torch.no_grad()
    def widen(self, batch: Batch, boot: Bootstrap) -> None:
        """Take a batch into account."""
        paid = bellman(batch, boot, torch.zeros_like(batch.reward[:, None]))
        low, high = self.rewards
        self.rewards.copy_(
            torch.stack([torch.minimum(low, paid.min()), torch.maximum(high, paid.max())])
        )
        torch.maximum(self.discount, batch.discount.max(), out=self.discount)

    def limits(self) -> tuple[Tensor, Tensor]:
        """Smallest and largest return, 0-d: an extreme reward for ever, or once if that is more.

        Once counts because episodes may end; before the first batch nothing is bounded.
        """
        forever = 1 / (1 - self.discount).clamp(min=1e-6)
        low, high = self.rewards
        seen = high >= low
        smallest = torch.where(seen, torch.minimum(low, forever * low), -torch.inf)
        return smallest, torch.where(seen, torch.maximum(high, forever * high), torch.inf)
