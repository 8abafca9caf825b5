"""Distributional soft actor-critic, first version (Duan et al. 2021): a Gaussian return."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bridgerl.critics.base import Critic, CriticConfig
from bridgerl.nn.heads import network
from bridgerl.ops.risk import risk_of_gaussian
from bridgerl.ops.targets import bellman
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics


@dataclass(frozen=True)
class DSACConfig(CriticConfig):
    """DSAC-v1: one network gives the mean and the deviation of a Gaussian return."""

    distributional = True

    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers; none make it a linear map."""
    draw_clip: float = 3.0
    """Bound of the standard normal draw behind a target."""
    td_bound: float = 20.0
    """Bound of the error that the deviation learns from; it also bounds the deviation."""
    damping: float = 0.1
    """Added to the denominators of both gradients; moves step sizes, not the solution."""
    z_scale: float = 1.0
    """Means of returns are divided by this inside the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden", fewest=0)
        self.require_positive("draw_clip", "td_bound", "z_scale")
        self.require_not_negative("damping")

    def build(self, spec: EnvSpec, streams: Streams) -> "DSAC":
        return DSAC(self, spec, streams)


class Gaussian(NamedTuple):
    """A return's mean and standard deviation, (b,) each."""

    mean: Tensor
    std: Tensor


class DSAC(Critic):
    """Z(s, a) = N(mean, std^2), fitted to one clipped draw of the next state's return."""

    def __init__(self, config: DSACConfig, spec: EnvSpec, streams: Streams) -> None:
        sizes = (spec.obs_dim + spec.action_dim, *config.hidden, 2)
        super().__init__(config, network(sizes, config.trunk, activation=F.gelu))
        self.config = config
        self._draws = streams("return_draws")

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """The surrogate of `gaussian_surrogate` against y = r + discount (z' - entropy cost)."""
        c, y = self.config, self._target(batch, boot)
        now = self._gaussian(batch.obs, batch.action)
        return gaussian_surrogate(now, y, bound=c.td_bound, damping=c.damping).mean()

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Means of value, deviation and target."""
        now, y = self._gaussian(batch.obs, batch.action), self._target(batch, boot)
        return {
            "critic/q": now.mean.mean(),
            "critic/std": now.std.mean(),
            "critic/target": y.mean(),
        }

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The mean: (b,)."""
        return self._gaussian(obs, action, target=target).mean

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of the Gaussian, by its formula: (b,)."""
        return risk_of_gaussian(measure, *self._gaussian(obs, action, target=target))

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Mean + std * normal quantile: tau (b or 1, k) -> (b, k)."""
        z = self._gaussian(obs, action, target=target)
        return z.mean[:, None] + z.std[:, None] * torch.special.ndtri(tau)

    @torch.no_grad()
    def _target(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """One draw of the next state's return, clipped and backed up: (b,)."""
        after = self._gaussian(batch.next_obs, boot.action, target=True)
        clip = self.config.draw_clip
        draw = torch.randn(after.mean.shape, generator=self._draws, device=after.mean.device)
        z = torch.addcmul(after.mean, draw.clamp_(-clip, clip), after.std)
        return bellman(batch, boot, z[:, None])[:, 0]

    def _gaussian(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Gaussian:
        mean, raw = self._net(target=target)(torch.cat([obs, action], -1)).unbind(-1)
        scale = self.config.z_scale  # The deviation has a bound of its own.
        return Gaussian(mean if scale == 1 else scale * mean, F.softplus(raw))


def gaussian_surrogate(now: Gaussian, y: Tensor, *, bound: float, damping: float) -> Tensor:
    """A loss per row whose gradient is the Gaussian likelihood's, its denominators damped.

    The mean learns from y, the deviation from y within `bound` of the mean: (b,).
    """
    mean, std = now.mean.detach(), now.std.detach()
    error = y - mean
    near = error.clamp(-bound, bound)
    to_mean = error / (std.square() + damping)
    to_std = (near.square() - std.square()) / (std.pow(3) + damping)
    return -to_mean * now.mean - to_std * now.std
