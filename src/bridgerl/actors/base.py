"""What every actor is: a policy that acts, bootstraps critics, and climbs a Q function."""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bridgerl.nn.flat import AdamConfig, GuardedAdam, flatten_, polyak_
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


@dataclass(frozen=True)
class TargetActorConfig(ActorConfig, ABC):
    """Settings of actors with a target policy."""

    polyak: float = 0.005
    """Rate at which the target policy follows, at actor updates."""

    def __post_init__(self) -> None:
        """Refuse a rate out of range."""
        super().__post_init__()
        self.require(0 < self.polyak <= 1, "polyak", "must be in (0, 1]")


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


class TargetActor(Actor, ABC):
    """A policy with a slow copy that bootstraps."""

    def __init__(self, config: TargetActorConfig, net: nn.Module) -> None:
        super().__init__(config, net)
        self.target_net = deepcopy(net).requires_grad_(False)
        self._target_flat = flatten_(self.target_net.parameters())
        self._polyak = config.polyak

    def update(self, batch: Batch, q: QFn) -> Metrics:
        """The policy step, then the target policy follows."""
        metrics = super().update(batch, q)
        polyak_(self._target_flat, self.optimizer.flat, self._polyak)
        return metrics
