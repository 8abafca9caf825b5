"""What every critic is: online and target networks, an optimiser, a loss and a value."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bridgerl.critics.settings import CriticConfig as CriticConfig
from bridgerl.errors import UserError
from bridgerl.nn.flat import Follower, GuardedAdam, Pinned
from bridgerl.nn.trunk import batch_norms, joint, mated
from bridgerl.ops.levels import Numbers, as_levels, midpoint_levels
from bridgerl.ops.quantile import QuantileCost, quantile_huber, quantile_surrogate
from bridgerl.ops.risk import levels, risk_at
from bridgerl.settings.measures import Measure, parse
from bridgerl.types import Batch, Bootstrap, Metrics

WIDE_KAPPA = 0.5
"""Share of the deviation of one state's return above which kappa is called too wide."""
CERTAIN = 0.02
"""Share of its size below which a return varies too little for its distribution to matter."""
RISK_LEVELS = 32
"""Midpoint levels behind a measure of risk, where a critic has no rule of its own."""


class Critic(Pinned, ABC):
    """A value with its own learning rule. Authors write `loss` and `q`."""

    mean_particles: ClassVar[int | None] = None
    """Particles whose mean is the critic's mean return; None where `q_rank` is that mean."""

    def __init__(self, config: CriticConfig, online: nn.Module) -> None:
        super().__init__()
        self.online = online
        self.target = deepcopy(online).requires_grad_(False)
        self._norms = batch_norms(self.online), batch_norms(self.target)
        self._distributional = config.distributional
        self.optimizer = GuardedAdam.of(config, online)
        self.follower = Follower(self.target, self.online, self.optimizer, config.polyak)

    @abstractmethod
    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """The training loss of one batch, with a graph to the online weights."""

    @abstractmethod
    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The value an actor maximises: (b,), with a graph to the action."""

    def objective(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """What an update differentiates: the loss, or a cheaper form with the same gradient."""
        return self.loss(batch, boot)

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """What the log shows beside the loss when a line is written; the agent detaches it."""
        return {}

    def see(self, batch: Batch, boot: Bootstrap) -> None:
        """Take note of a batch before it is learnt from, e.g. of the range of its rewards."""
        return

    def rescale(self, ratio: float) -> None:
        """Rewards come so many times as large from now on: let what `see` noted follow."""
        return

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The value that ranks candidate actions, (b,): equal inputs give equal values."""
        return self.q(obs, action, target=target)

    @torch.no_grad()
    def mean(self, obs: Tensor, action: Tensor) -> Tensor:
        """The mean return for whoever asks, (b,): what ranks may be cheaper and less exact."""
        if self.mean_particles is None:
            return self.q_rank(obs, action)
        return self.particles(obs, action, self.mean_particles).mean(1)

    def risk(
        self,
        obs: Tensor,
        action: Tensor,
        measure: Measure | str,
        *,
        fixed: bool = False,
        target: bool = False,
    ) -> Tensor:
        """A measure of the return's risk: (b,), with a graph to the action.

        With `fixed` nothing is drawn: equal inputs give equal values.
        """
        return self._risk(obs, action, parse(measure), fixed=fixed, target=target)

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of the quantiles at fixed levels, or of a point value, whose only measure is the mean."""
        if self._distributional and type(self)._quantiles is not Critic._quantiles:
            tau = levels(measure, midpoint_levels(RISK_LEVELS)[None].to(obs))
            return risk_at(measure, self._quantiles(obs, action, tau, target=target))
        if measure.is_mean:
            drawn = type(self).q_rank is not Critic.q_rank  # Then `q` is not the same twice.
            return (self.q_rank if fixed and drawn else self.q)(obs, action, target=target)
        hint = "take dbc, say, or give yours `_quantiles` and its config `distributional = True`"
        what = f"{type(self).__name__} knows no distribution, so it has no {measure}"
        raise UserError(f"{what}; {hint}")

    def quantiles(
        self,
        obs: Tensor,
        action: Tensor,
        tau: Numbers,
        *,
        target: bool = False,
        graph: bool = False,
    ) -> Tensor:
        """Z_tau(s, a) at levels tau in (0, 1), a number, (k,) or (b or 1, k): (b, k).

        With `graph` it can be differentiated: by observations, actions, levels where the critic
        reads them, and the online weights.
        """
        require_pairs(obs, action)
        with torch.set_grad_enabled(graph):
            return self._quantiles(obs, action, as_levels(tau, obs), target=target)

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Z_tau(s, a) with a graph, at checked levels; a point value is a point mass."""
        return self.q(obs, action, target=target)[:, None].expand(-1, tau.shape[-1])

    def particles(self, obs: Tensor, action: Tensor, n: int, *, target: bool = False) -> Tensor:
        """N equally likely returns, the quantiles at midpoint levels: (b, n)."""
        return self.quantiles(obs, action, midpoint_levels(n)[None], target=target)

    def advice(self, metrics: Mapping[str, float]) -> str | None:
        """What the latest metrics say against a setting, once learning has settled."""
        return None

    def _net(self, *, target: bool) -> Any:
        return self.target if target else self.online

    def _heads(self, *, target: bool) -> list[Any]:
        """The independent networks of a critic whose `online` is a list of them."""
        return list(self._net(target=target).children())

    def update(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """One gradient step on the online weights."""
        require_rows(batch, boot)
        self.see(batch, boot)
        with self.joint(batch, boot):
            objective = self.objective(batch, boot)
        return {"critic/grad_norm": self.optimizer.step(objective)}

    @contextmanager
    def joint(self, batch: Batch, boot: Bootstrap) -> Iterator[None]:
        """In this block batch norms see (s, a) and (s', a') together, online and in the target."""
        if not self._norms[0]:
            yield
            return
        now = torch.cat([batch.obs, batch.action], -1)
        after = torch.cat([batch.next_obs, boot.action], -1)
        with joint(self._norms[0], after), joint(self._norms[1], now):
            yield

    def mated(self, mate: Tensor) -> AbstractContextManager[None]:
        """Inside `joint`, where the target looks at (s, a) itself, whose mate is (s', a')."""
        return mated(self._norms[1], mate)

    def update_target(self) -> None:
        """Move the target one Polyak step towards the online weights."""
        self.follower.step()


class QuantileCritic(Critic, ABC):
    """A critic that learns by quantile regression; `kappa` is its Huber width."""

    kappa: float

    @abstractmethod
    def loss(self, batch: Batch, boot: Bootstrap, cost: QuantileCost = quantile_huber) -> Tensor:
        """The loss; another `cost` is a form of the quantile loss with the same gradient.

        Hand it targets in ascending order, as `drop_top` gives them or `sort`: it may rely on it.
        """

    def objective(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """The loss by slopes alone: most of its value's work is spared."""
        return self.loss(batch, boot, quantile_surrogate)

    def advice(self, metrics: Mapping[str, float]) -> str | None:
        """Within kappa the loss is quadratic: returns that vary no more get expectiles.

        A critic that logs no `critic/spread` and `critic/target` gets no advice.
        """
        if not {"critic/spread", "critic/target"} <= metrics.keys():
            return None
        kappa, spread, size = self.kappa, metrics["critic/spread"], abs(metrics["critic/target"])
        if not CERTAIN * size < spread < kappa / WIDE_KAPPA:
            return None
        return (
            f"--critic.kappa {kappa:g} is large against the spread {spread:.3g} of one state's "
            f"return and smears its distribution; try --critic.kappa {0.05 * spread:.1g}, or scale "
            "the rewards up (--train.return-unit, if they are normalised)"
        )


def require_rows(batch: Batch, boot: Bootstrap) -> None:
    """Refuse numbers of shape (b, 1) or the like: they would broadcast to (b, b) in silence."""
    rows = batch.obs.shape[:1]
    numbers = {"reward": batch.reward, "discount": batch.discount}
    numbers |= {"entropy_cost": boot.entropy_cost}
    for name, found in numbers.items():
        if found.shape != rows:
            raise UserError(f"{name} must be of shape {tuple(rows)}, got {tuple(found.shape)}")
    vectors = {"next_obs": (batch.next_obs, batch.obs), "bootstrap": (boot.action, batch.action)}
    for name, (found, like) in vectors.items():
        if found.shape != like.shape:
            shapes = f"{tuple(like.shape)}, got {tuple(found.shape)}"
            raise UserError(f"{name} must be of shape {shapes}")


def require_pairs(obs: Tensor, action: Tensor) -> None:
    """Refuse what are no observations (b, o) and actions (b, a)."""
    if not (obs.dim() == action.dim() == 2 and len(obs) == len(action)):
        wanted = "observations must be of shape (b, o) and actions of shape (b, a)"
        raise UserError(f"{wanted}, got {tuple(obs.shape)} and {tuple(action.shape)}")


def summarise(pred: Tensor, y: Tensor) -> Metrics:
    """What quantile critics log of predictions and targets."""
    return {
        "critic/q": pred.mean(),
        "critic/target": y.mean(),
        "critic/target_spread": y.std(correction=0),
        "critic/spread": spread_of(pred),
    }


def spread_of(atoms: Tensor) -> Tensor:
    """Deviation of a state's learned return (b, h, k), its root mean square over states: 0-d."""
    return atoms.detach().var(-1, correction=0).mean().sqrt()
