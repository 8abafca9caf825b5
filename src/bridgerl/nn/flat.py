"""Parameters as one flat vector, so that Adam, clipping and the Polyak step are one kernel each."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Self

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from bridgerl.nn.settings import LearnerConfig
from bridgerl.nn.trunk import paired_statistics


@torch.no_grad()
def polyak_(target: Tensor, online: Tensor, rate: float) -> None:
    """Target <- (1 - rate) target + rate online."""
    target.lerp_(online, rate)


class Flat:
    """Parameters made views of one contiguous vector."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        self.params = list(params)
        self.vector = torch.cat([p.detach().reshape(-1) for p in self.params])
        sizes = [p.numel() for p in self.params]
        for p, part in zip(self.params, self.vector.split(sizes), strict=True):
            p.data = part.view_as(p)

    def __reduce__(self) -> tuple[type["Flat"], tuple[list[nn.Parameter]]]:
        """A copy is made from its own parameters, so that they are views of its own vector."""
        return Flat, (self.params,)


class Follower:
    """A slow copy of a network, moved towards it with the statistics of its batch norms.

    It is no module: what it moves is the state of others.
    """

    def __init__(
        self, slow: nn.Module, fast: nn.Module, optimizer: "GuardedAdam", rate: float
    ) -> None:
        self._flat, self._optimizer, self.rate = Flat(slow.parameters()), optimizer, rate
        self.statistics = paired_statistics(slow, fast)

    @property
    def flat(self) -> Tensor:
        """All slow parameters as one vector."""
        return self._flat.vector

    def step(self) -> None:
        """One Polyak step."""
        polyak_(self.flat, self._optimizer.flat, self.rate)
        for slow, fast in self.statistics:
            polyak_(slow, fast, self.rate)


class Pinned(nn.Module):
    """Stays on the device and type it was built with: generators and flat vectors stay there."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Refuse a move before anything has moved; let one pass that leads to where it is."""
        kinds = {(t.device, t.dtype) for t in chain(self.parameters(), self.buffers())}
        for device, dtype in kinds:
            probe = torch.empty(0, device=device, dtype=dtype)
            if fn(probe) is not probe:
                raise TypeError(
                    "an agent stays on the device and type it was built with; "
                    "build another there and load_state_dict()"
                )
        return super()._apply(fn, recurse)


class GuardedAdam(Pinned):
    """AdamW on a flat vector with a joint norm clip; a non-finite update is skipped.

    Weight decay acts on the whole vector, biases included. The skip is decided on the device: no
    host read per step. `worst_streak` tells afterwards how many updates in a row were lost.
    """

    training_only = True
    """Playing needs nothing of its state; `Agent.played` asks every module for this word."""

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
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        self._flat = Flat(params)
        self._grad = torch.zeros_like(self.flat)
        self.lr = lr
        self._eps, self._clip = eps, clip
        self.betas, self.weight_decay = betas, weight_decay
        self.register_buffer("exp_avg", torch.zeros_like(self.flat))
        self.register_buffer("exp_avg_sq", torch.zeros_like(self.flat))
        for name in ("steps", "streak", "worst_streak"):
            self.register_buffer(name, torch.zeros(()))

    @classmethod
    def of(cls, config: LearnerConfig, net: nn.Module) -> Self:
        """The optimiser a config asks for, on a network's parameters."""
        return cls(
            net.parameters(),
            lr=config.lr,
            eps=config.adam_eps,
            clip=config.grad_clip,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )

    @property
    def flat(self) -> Tensor:
        """All parameters as one vector."""
        return self._flat.vector

    def step(self, loss: Tensor) -> Tensor:
        """Differentiate the loss, update the parameters; returns the norm before clipping."""
        return self.descend(loss, torch.autograd.grad(loss, self._flat.params))

    def descend(self, loss: Tensor, grads: Sequence[Tensor]) -> Tensor:
        """Update the parameters by the gradients of a loss; returns the norm before clipping."""
        grad = torch.cat([g.reshape(-1) for g in grads], out=self._grad)
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
            decoupled_weight_decay=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=self._eps,
            maximize=False,
        )
        torch.addcmul(lost, self.streak, lost, out=self.streak)
        torch.maximum(self.worst_streak, self.streak, out=self.worst_streak)
        return norm
