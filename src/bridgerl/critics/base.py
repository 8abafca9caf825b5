"""What every critic is: online and target networks, an optimiser, a loss and a value."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from bridgerl.critics.settings import CriticConfig
from bridgerl.nn.flat import GuardedAdam, flatten_, polyak_
from bridgerl.ops.quantile import midpoint_levels
from bridgerl.types import Batch, Bootstrap, Metrics

WIDE_KAPPA = 0.5
"""Share of the returns' standard deviation above which kappa is called too wide."""


class Critic(nn.Module, ABC):
    """A value with its own learning rule. Authors write `loss` and `q`."""

    measuring: bool = True
    """Whether somebody reads this update's figures; if not, a loss may leave out metrics and its
    own value: it need only have the right gradient."""

    def __init__(self, config: CriticConfig, online: nn.Module) -> None:
        super().__init__()
        self.online = online
        self.target = deepcopy(online).requires_grad_(False)
        self._target_flat = flatten_(self.target.parameters())
        self._polyak = config.polyak
        self.optimizer = GuardedAdam.of(config, online)

    @abstractmethod
    def loss(self, batch: Batch, boot: Bootstrap) -> tuple[Tensor, Metrics]:
        """The training loss of one batch, with a graph to the online weights."""

    @abstractmethod
    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The value an actor climbs: (b,), with a graph to the action."""

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The value that ranks candidate actions, (b,): equal inputs give equal values."""
        return self.q(obs, action, target=target)

    def quantiles(
        self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool = False
    ) -> Tensor:
        """Z_tau(s, a), tau in (0, 1), (b or 1, k) -> (b, k); without a law, a point mass."""
        with torch.no_grad():
            return self.q(obs, action, target=target)[:, None].expand(-1, tau.shape[-1])

    def particles(self, obs: Tensor, action: Tensor, n: int, *, target: bool = False) -> Tensor:
        """N equally likely returns, the quantiles at midpoint levels: (b, n)."""
        return self.quantiles(obs, action, midpoint_levels(n)[None], target=target)

    def advice(self, metrics: Mapping[str, float]) -> str | None:
        """What the latest metrics say against a setting, once learning has settled."""
        return None

    def _heads(self, *, target: bool) -> list[Any]:
        """The independent networks of a critic whose `online` is a list of them."""
        return list((self.target if target else self.online).children())

    def update(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """One gradient step on the online weights."""
        loss, metrics = self.loss(batch, boot)
        norm = self.optimizer.step(loss)
        return metrics | {"critic/loss": loss.detach(), "critic/grad_norm": norm}

    def track(self) -> None:
        """Move the target one Polyak step towards the online weights."""
        polyak_(self._target_flat, self.optimizer.flat, self._polyak)


def kappa_advice(kappa: float, spread: float) -> str | None:
    """What to say against a Huber width that is wide for returns of such a deviation."""
    if not 0 < WIDE_KAPPA * spread < kappa:
        return None
    return (
        f"--critic.kappa {kappa:g} is large against the spread {spread:.3g} of the returns and "
        f"smears their law; try --critic.kappa {0.05 * spread:.1g}, or scale the rewards up"
    )
