"""Implicit quantile networks (Dabney et al. 2018) for continuous actions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bridgerl.critics.base import CriticConfig, QuantileCritic, summarise
from bridgerl.nn.embed import CosineEmbedding
from bridgerl.nn.heads import reader
from bridgerl.nn.mlp import MLP
from bridgerl.ops.levels import Levels, midpoint_levels
from bridgerl.ops.quantile import QuantileCost, quantile_huber
from bridgerl.ops.risk import levels, risk_at
from bridgerl.ops.targets import HeadRule, bellman, merge_heads
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics


@dataclass(frozen=True)
class IQNConfig(CriticConfig):
    """Implicit quantile network: the level is an input, met by a product with the features."""

    distributional = True

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the layers before the level comes in; none let it meet the inputs themselves."""
    merged: tuple[int, ...] = (256,)
    """Widths of the hidden layers after it."""
    n_heads: int = 2
    """Independent networks."""
    heads: HeadRule = "min"
    """How the networks' quantiles are merged: their minimum or their mean."""
    n_target: int = 32
    """Levels in the target."""
    n_online: int = 32
    """Levels in the loss."""
    n_actor: int = 32
    """Levels in the value the actor maximises."""
    n_rank: int = 32
    """Fixed levels in the value that ranks candidate actions."""
    n_embed: int = 64
    """Cosines in the embedding of a level."""
    stratified: bool = False
    """Draw one level per stratum instead of independent ones."""
    shared_levels: bool = False
    """Draw one set of levels per batch instead of one per transition."""
    kappa: float = 1.0
    """Width of the Huber parabola, in units of the return."""
    z_scale: float = 1.0
    """Returns are divided by this inside the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden", fewest=0)
        self.require_widths("merged")
        counts = ("n_heads", "n_target", "n_online", "n_actor", "n_rank", "n_embed")
        self.require_counts(*counts)
        self.require_positive("kappa", "z_scale")

    def build(self, spec: EnvSpec, streams: Streams) -> "IQN":
        return IQN(self, spec, streams)


class QuantileNet(nn.Module):
    """MLP(features(s, a) * emb(tau)): one head."""

    def __init__(self, config: IQNConfig, n_inputs: int) -> None:
        super().__init__()
        self.features, width = reader(n_inputs, config.hidden, config.trunk)
        self.embed = CosineEmbedding(config.n_embed, width)
        self.rest = MLP((width, *config.merged, 1))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Returns at the levels tau (b or 1, k) for inputs x (b, i): (b, k)."""
        return self.rest(self.features(x)[:, None] * self.embed(tau))[..., 0]


class IQN(QuantileCritic):
    """Z_tau(s, a) = min_h Z_h(s, a; tau), or their mean; levels are shared by the heads."""

    mean_particles = 64

    def __init__(self, config: IQNConfig, spec: EnvSpec, streams: Streams) -> None:
        n_inputs = spec.obs_dim + spec.action_dim
        nets = nn.ModuleList(QuantileNet(config, n_inputs) for _ in range(config.n_heads))
        super().__init__(config, nets)
        self.config, self.kappa = config, config.kappa
        self._levels = Levels(config.stratified, config.shared_levels)
        self._draws, self._actor_draws = streams("quantile_levels"), streams("actor_levels")

    def loss(self, batch: Batch, boot: Bootstrap, cost: QuantileCost = quantile_huber) -> Tensor:
        """Quantile-Huber loss: sum over heads and levels, mean over targets and transitions."""
        pred, y, tau = self._regression(batch, boot)
        return cost(pred, y, tau, self.kappa).sum() / len(y)

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Mean value, mean target and the targets' spread."""
        pred, y, _ = self._regression(batch, boot)
        return summarise(pred, y)

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of the return at random levels: (b,)."""
        tau = self._levels.draw(len(obs), self.config.n_actor, self._actor_draws)
        return self._returns(obs, action, tau, target=target).mean(1)

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of the return at midpoint levels, the same for every candidate: (b,)."""
        tau = midpoint_levels(self.config.n_rank)[None].to(obs)
        return self._returns(obs, action, tau, target=target).mean(1)

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of the return at random or fixed levels, placed where the measure looks: (b,)."""
        if fixed:
            tau = midpoint_levels(self.config.n_rank)[None].to(obs)
        else:
            tau = self._levels.draw(len(obs), self.config.n_actor, self._actor_draws)
        z = self._returns(obs, action, levels(measure, tau), target=target)
        return risk_at(measure, z)

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Z_tau(s, a): tau (b or 1, k) -> (b, k)."""
        return self._returns(obs, action, tau, target=target)

    def _regression(self, batch: Batch, boot: Bootstrap) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions (b, h, k), ascending targets (b, n), levels (b or 1, k)."""
        c, b = self.config, len(batch.reward)
        with torch.no_grad():
            tau = self._levels.draw(b, c.n_target, self._draws)
            atoms = self._returns(batch.next_obs, boot.action, tau, target=True)
            y = bellman(batch, boot, atoms.sort(-1).values)
            tau = self._levels.draw(b, c.n_online, self._draws)
        return self._of_heads(batch.obs, batch.action, tau, target=False), y, tau

    def _returns(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """The return at the levels tau (b or 1, k): (b, k)."""
        return merge_heads(self._of_heads(obs, action, tau, target=target), self.config.heads)

    def _of_heads(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Every head's return at the levels tau (b or 1, k): (b, h, k)."""
        x, scale = torch.cat([obs, action], -1), self.config.z_scale
        z = torch.stack([net(x, tau) for net in self._heads(target=target)], 1)
        return z if scale == 1 else scale * z
