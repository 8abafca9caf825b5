"""What every actor is: a policy that acts, bootstraps critics, and climbs a Q function."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bridgerl.nn.flat import AdamConfig, GuardedAdam
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics, QFn


@dataclass(frozen=True)
class ActorConfig(AdamConfig, ABC):
    """Settings that every actor has."""

    section: ClassVar[str] = "actor"

    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the policy's hidden layers."""
    delay: int = 1
    """Critic updates per actor update."""

    def __post_init__(self) -> None:
        """Refuse settings that no actor can train with."""
        super().__post_init__()
        self.require_widths("hidden")
        self.require(self.delay >= 1, "delay", "must be at least 1")

    @abstractmethod
    def build(self, spec: EnvSpec, streams: Streams) -> "Actor":
        """Make the actor for a task."""


class Actor(nn.Module, ABC):
    """A policy over actions in [-1, 1]. Authors write `act`, `bootstrap` and `loss`."""

    climbs: ClassVar[bool] = True
    """Whether the loss differentiates q in the action; otherwise it only ranks actions by it."""

    def __init__(self, config: ActorConfig, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.optimizer = GuardedAdam.of(config, net)

    @abstractmethod
    def act(self, obs: Tensor, q: QFn, *, explore: bool, generator: torch.Generator) -> Tensor:
        """Actions in [-1, 1] for a batch of observations: (b, a)."""

    @abstractmethod
    def bootstrap(self, next_obs: Tensor, target_q: QFn) -> Bootstrap:
        """The next action a critic's target is built on. Called without gradients."""

    @abstractmethod
    def loss(self, batch: Batch, q: QFn) -> tuple[Tensor, Metrics]:
        """The policy loss of one batch."""

    def update(self, batch: Batch, q: QFn) -> Metrics:
        """One gradient step on the policy; the critic behind q gets no gradient."""
        loss, metrics = self.loss(batch, q)
        norm = self.optimizer.step(loss)
        return metrics | {"actor/loss": loss.detach(), "actor/grad_norm": norm}
