"""Parameters as one flat vector, so that Adam, clipping and the Polyak step are one kernel each."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from bridgerl.nn.settings import AdamConfig


def flatten_(params: Iterable[nn.Parameter]) -> Tensor:
    """Make the parameters views of one contiguous vector and return it."""
    params = list(params)
    flat = torch.cat([p.detach().reshape(-1) for p in params])
    for p, part in zip(params, flat.split([p.numel() for p in params]), strict=True):
        p.data = part.view_as(p)
    return flat


@torch.no_grad()
def polyak_(target: Tensor, online: Tensor, rate: float) -> None:
    """Target <- (1 - rate) target + rate online."""
    target.lerp_(online, rate)


class GuardedAdam(nn.Module):
    """Adam on a flat vector with a joint norm clip; a non-finite update is skipped.

    The skip is decided on the device: no host read per step. `worst_streak` tells afterwards
    how many updates in a row were lost.
    """

    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor
    streak: Tensor
    worst_streak: Tensor

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        eps: float = 1e-8,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        self.params = list(params)
        self.flat = flatten_(self.params)
        self.flat.grad = torch.zeros_like(self.flat)
        self.lr = lr
        self._eps, self._clip = eps, clip
        self.register_buffer("exp_avg", torch.zeros_like(self.flat))
        self.register_buffer("exp_avg_sq", torch.zeros_like(self.flat))
        for name in ("steps", "streak", "worst_streak"):
            self.register_buffer(name, torch.zeros(()))

    @classmethod
    def of(cls, config: AdamConfig, net: nn.Module) -> "GuardedAdam":
        """The optimiser a config asks for, on a network's parameters."""
        return cls(net.parameters(), lr=config.lr, eps=config.adam_eps, clip=config.grad_clip)

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refused: the copy's weights would no longer be views of its flat vector."""
        raise TypeError("build a second agent and load_state_dict() instead of copying one")

    def _apply(self, fn: object, recurse: bool = True) -> NoReturn:
        """Refused for the same reason: .to(), .double() and the like replace every tensor."""
        raise TypeError("an agent stays on the device and type it was built with")

    def step(self, loss: Tensor) -> Tensor:
        """Differentiate the loss, update the parameters; returns the norm before clipping."""
        return self.descend(loss, torch.autograd.grad(loss, self.params))

    def descend(self, loss: Tensor, grads: Sequence[Tensor]) -> Tensor:
        """Update the parameters by the gradients of a loss; returns the norm before clipping."""
        grad = self.flat.grad
        assert grad is not None
        torch.cat([g.reshape(-1) for g in grads], out=grad)
        norm = torch.linalg.vector_norm(grad)
        probe = norm + loss.detach()
        lost = (probe - probe).nan_to_num_(nan=1.0)  # 0 if finite, else 1.
        # The functional form works in place on our buffers, so that state_dict() carries them; its
        # fused kernel divides by grad_scale and skips at found_inf, as under mixed precision.
        adam(
            [self.flat],
            [grad],
            [self.exp_avg],
            [self.exp_avg_sq],
            [],
            [self.steps],
            fused=True,
            grad_scale=None if self._clip is None else (norm / self._clip).clamp_(min=1.0),
            found_inf=lost,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=0.0,
            eps=self._eps,
            maximize=False,
        )
        torch.addcmul(lost, self.streak, lost, out=self.streak)
        torch.maximum(self.worst_streak, self.streak, out=self.worst_streak)
        return norm
