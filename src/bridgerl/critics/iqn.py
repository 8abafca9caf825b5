"""Implicit quantile networks (Dabney et al. 2018) for continuous actions."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bridgerl.critics.base import Critic, CriticConfig, kappa_advice
from bridgerl.nn.endpoint import CosineEmbedding
from bridgerl.nn.mlp import MLP
from bridgerl.ops.quantile import draw_levels, midpoint_levels, quantile_huber_sorted
from bridgerl.ops.targets import bellman
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics


@dataclass(frozen=True)
class IQNConfig(CriticConfig):
    """Implicit quantile network: the level is an input, met by a product with the features."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the layers before the level comes in."""
    merged: tuple[int, ...] = (256,)
    """Widths of the hidden layers after it."""
    n_heads: int = 2
    """Independent networks; the return is their minimum, level by level."""
    n_target: int = 32
    """Levels in the target."""
    n_online: int = 32
    """Levels in the loss."""
    n_actor: int = 32
    """Levels in the value the actor climbs."""
    n_rank: int = 8
    """Fixed levels in the value that ranks candidate actions."""
    n_embed: int = 64
    """Cosines in the embedding of a level."""
    stratified: bool = False
    """Draw one level per stratum instead of independent ones."""
    shared_levels: bool = False
    """Draw one set of levels per batch instead of one per transition."""
    kappa: float = 1.0
    """Width of the Huber parabola, in units of the return."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot be built."""
        super().__post_init__()
        self.require_widths("hidden")
        self.require_widths("merged")
        counts = ("n_heads", "n_target", "n_online", "n_actor", "n_rank", "n_embed")
        self.require_counts(*counts)
        self.require_positive("kappa")

    def build(self, spec: EnvSpec, streams: Streams) -> "IQN":
        """Make the critic for a task."""
        return IQN(self, spec, streams)


class QuantileNet(nn.Module):
    """MLP(features(s, a) * emb(tau)): one head."""

    def __init__(self, config: IQNConfig, n_inputs: int) -> None:
        super().__init__()
        width = config.hidden[-1]
        self.features = MLP((n_inputs, *config.hidden))
        self.embed = CosineEmbedding(config.n_embed, width)
        self.rest = MLP((width, *config.merged, 1))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Returns at the levels tau (b or 1, k) for inputs x (b, i): (b, k)."""
        features = torch.relu_(self.features(x))
        return self.rest(features[:, None] * self.embed(tau))[..., 0]


class IQN(Critic):
    """Z_tau(s, a) = min_h Z_h(s, a; tau), levels shared by the heads."""

    def __init__(self, config: IQNConfig, spec: EnvSpec, streams: Streams) -> None:
        n_inputs = spec.obs_dim + spec.action_dim
        nets = nn.ModuleList(QuantileNet(config, n_inputs) for _ in range(config.n_heads))
        super().__init__(config, nets)
        self.config = config
        self._levels, self._actor_levels = streams("quantile_levels"), streams("actor_levels")

    def loss(self, batch: Batch, boot: Bootstrap) -> tuple[Tensor, Metrics]:
        """Quantile-Huber loss: sum over heads and levels, mean over targets and transitions."""
        c, b = self.config, len(batch.reward)
        with torch.no_grad():
            tau = self._draw(batch.obs, c.n_target, self._levels)
            atoms = self._returns(batch.next_obs, boot.action, tau, target=True).amin(1)
            y = bellman(batch, boot, atoms.sort(-1).values)
            tau = self._draw(batch.obs, c.n_online, self._levels)
        pred = self._returns(batch.obs, batch.action, tau)
        terms = quantile_huber_sorted(pred, y, tau, c.kappa, value=self.measuring)
        loss = terms.sum() / b
        return loss, {
            "critic/q": pred.detach().mean(),
            "critic/target": y.mean(),
            "critic/target_spread": y.std(correction=0),
        }

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of the return at random levels: (b,)."""
        tau = self._draw(obs, self.config.n_actor, self._actor_levels)
        return self._returns(obs, action, tau, target=target).amin(1).mean(1)

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of the return at midpoint levels, the same for every candidate: (b,)."""
        tau = midpoint_levels(self.config.n_rank)[None].to(obs)
        return self._returns(obs, action, tau, target=target).amin(1).mean(1)

    def quantiles(
        self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool = False
    ) -> Tensor:
        """min_h Z_h(s, a; tau): tau (b or 1, k) -> (b, k)."""
        with torch.no_grad():
            return self._returns(obs, action, tau.to(obs), target=target).amin(1)

    def advice(self, metrics: Mapping[str, float]) -> str | None:
        """Within kappa the loss is quadratic: a law no wider than that gets expectiles."""
        return kappa_advice(self.config.kappa, metrics["critic/target_spread"])

    def _returns(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool = False) -> Tensor:
        """Every head's return at the levels tau (b or 1, k): (b, h, k)."""
        x = torch.cat([obs, action], -1)
        return torch.stack([net(x, tau) for net in self._heads(target=target)], 1)

    def _draw(self, like: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Levels, (b, k) or (1, k)."""
        shape = (1 if self.config.shared_levels else len(like), k)
        stratified, device = self.config.stratified, str(like.device)
        return draw_levels(shape, generator, stratified=stratified, device=device)
