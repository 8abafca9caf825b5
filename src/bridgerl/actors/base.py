"""What every actor is: a policy that acts, bootstraps critics, and maximises a Q function."""

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import ClassVar

import torch
from torch import Tensor, nn

from bridgerl.actors.settings import ActorConfig, TargetActorConfig
from bridgerl.nn.flat import Follower, GuardedAdam, Pinned
from bridgerl.nn.trunk import batch_norms, joint
from bridgerl.types import Batch, Bootstrap, Metrics, QFn


class Actor(Pinned, ABC):
    """A policy over actions in [-1, 1]. Authors write `act`, `bootstrap` and `loss`."""

    follows_gradient: ClassVar[bool] = True
    """Whether the loss differentiates q in the action; otherwise it only ranks actions by it."""

    def __init__(self, config: ActorConfig, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self._norms = batch_norms(net)
        self.optimizer = GuardedAdam.of(config, net)

    @abstractmethod
    def act(self, obs: Tensor, q: QFn, *, explore: bool, generator: torch.Generator) -> Tensor:
        """Actions in [-1, 1] for a batch of observations: (b, a)."""

    def begin_episode(self) -> None:
        """An episode of the training begins, in any of its environments."""

    @abstractmethod
    def bootstrap(self, next_obs: Tensor, target_q: QFn) -> Bootstrap:
        """The next action a critic's target is built on. Called without gradients."""

    @abstractmethod
    def loss(self, batch: Batch, q: QFn) -> tuple[Tensor, Metrics, *tuple[Tensor, ...]]:
        """The policy loss of one batch, what the log shows, and what `learn_beside` is to get."""

    def learn_beside(self, *lessons: Tensor) -> Metrics:
        """After the policy's step: let what else is learnt, e.g. a temperature, have its own."""
        return {}

    def update(self, batch: Batch, q: QFn) -> Metrics:
        """One gradient step on the policy; the critic behind q gets no gradient."""
        with joint(self._norms):
            loss, metrics, *lessons = self.loss(batch, q)
        norm = self.optimizer.step(loss)
        metrics |= {"actor/loss": loss.detach(), "actor/grad_norm": norm}
        return metrics | self.learn_beside(*lessons)


class TargetActor(Actor, ABC):
    """A policy with a slow copy that bootstraps."""

    def __init__(self, config: TargetActorConfig, net: nn.Module) -> None:
        super().__init__(config, net)
        self.target_net = deepcopy(net).requires_grad_(False)
        self.follower = Follower(self.target_net, net, self.optimizer, config.polyak)

    def update(self, batch: Batch, q: QFn) -> Metrics:
        """The policy step, then the target policy follows."""
        metrics = super().update(batch, q)
        self.follower.step()
        return metrics
