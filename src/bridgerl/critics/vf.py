"""Value flows: a velocity field carries Gaussian noise to the return, backed up as a whole.

Two losses: the straight path to a bootstrapped return, and the next state's velocity moved by
the Bellman map. As published the second is not discounted; see `discounted_velocity`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bridgerl.critics.base import CriticConfig
from bridgerl.critics.bounds import BoundedCritic, ReturnBounds
from bridgerl.nn.heads import reader
from bridgerl.ops.levels import draw_levels, midpoint_levels
from bridgerl.ops.risk import levels, risk_at
from bridgerl.ops.targets import HeadRule, bellman, merge_heads
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics

LAYER_NORM_EPS = 1e-6
TINY_LEVEL = 1e-9
"""Levels are kept so far from 0 and 1, where normal quantiles are infinite."""


@dataclass(frozen=True)
class VFConfig(CriticConfig):
    """Value flows: flow matching along the Bellman backup."""

    trunk_widths = "features"
    distributional = True

    features: tuple[int, ...] = ()
    """Widths of a trunk that reads (s, a) before the velocity field; none by default."""
    hidden: tuple[int, ...] = (512, 512, 512, 512)
    """Widths of the hidden layers."""
    n_heads: int = 2
    """Independent velocity fields."""
    heads: HeadRule = "mean"
    """What targets and values take of the fields' returns and velocities."""
    flow_steps: int = 10
    """Euler steps from noise to return."""
    path_weight: float = 1.0
    """Weight of the straight-path loss (BCFM), which holds the value."""
    velocity_weight: float = 1.0
    """Weight of the next state's velocity (DCFM)."""
    discounted_velocity: bool = False
    """Discount the next state's velocity, as the Bellman map does; the authors' code does not."""
    masked_velocity: bool = False
    """Leave terminal transitions out of the velocity loss; the authors' code does not."""
    confidence: float | None = 0.3
    """Transitions whose return varies more count more, by the weight
    sigmoid(-confidence * z-scale / std) + 1/2; a larger confidence asks for more spread. None: all
    count 1."""
    bounded: bool = True
    """Keep returns within what the rewards seen so far allow."""
    z_scale: float = 1.0
    """Returns are divided by this inside the flow, so that noise of size 1 is not lost in them."""
    n_risk: int = 16
    """Levels behind a measure of risk."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden")
        self.require_counts("n_heads", "flow_steps", "n_risk")
        self.require_positive("path_weight", "z_scale")
        self.require_not_negative("velocity_weight")
        ok = self.confidence is None or 0 < self.confidence < float("inf")
        self.require(ok, "confidence", "must be positive and finite, or None")

    def build(self, spec: EnvSpec, streams: Streams) -> "VF":
        return VF(self, spec, streams)


class Velocity(nn.Module):
    """An MLP on [z, t, s, a], layer norm after each activation, its first layer split by input.

    With a trunk, features of (s, a) stand in their place.
    """

    def __init__(self, config: VFConfig, n_inputs: int) -> None:
        super().__init__()
        hidden = config.hidden
        trunk, n_features = reader(n_inputs, config.features, config.trunk)
        self.first = nn.Linear(2 + n_features, hidden[0])
        layers: list[nn.Module] = []
        for a, b in pairwise((*hidden, 1)):
            layers += [nn.ReLU(), nn.LayerNorm(a, LAYER_NORM_EPS), nn.Linear(a, b)]
        self.rest = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        self.trunk = trunk  # After the loop, as a trunk starts in its own way.

    def begin(self, x: Tensor) -> Tensor:
        """The first layer's share of x (b, i): (b, 1, width)."""
        return torch.addmm(self.first.bias, self.trunk(x), self.first.weight[:, 2:].t())[:, None]

    def forward(self, base: Tensor, t: Tensor, z: Tensor) -> Tensor:
        """Velocities of z (b, n) at times t (b or 1, n or 1): (b, n)."""
        w_z, w_t = self.first.weight[:, 0], self.first.weight[:, 1]
        return self.rest(base + z[..., None] * w_z + t[..., None] * w_t)[..., 0]


class Terms(NamedTuple):
    """Losses of every transition and their weight, (b,); target and next return, (b, 1)."""

    path: Tensor
    velocity: Tensor
    confidence: Tensor
    y: Tensor
    z: Tensor


class VF(BoundedCritic):
    """Z(s, a) is where the flow dz/dt = v(z, t, s, a) carries N(0, 1) from t = 0 to 1."""

    mean_particles = 64

    def __init__(self, config: VFConfig, spec: EnvSpec, streams: Streams) -> None:
        n_inputs = spec.obs_dim + spec.action_dim
        nets = nn.ModuleList(Velocity(config, n_inputs) for _ in range(config.n_heads))
        super().__init__(config, nets)
        self.config = config
        self.bounds, self.bounded = ReturnBounds(), config.bounded
        self._noise, self._times = streams("flow_noise"), streams("flow_time")
        self._actor_noise = streams("actor_noise")

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Mean of confidence * sum over heads of (path_weight path + velocity_weight velocity)."""
        c, terms = self.config, self._terms(batch, boot)
        cost = c.path_weight * terms.path + c.velocity_weight * terms.velocity
        return (terms.confidence * cost).mean()

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Both losses, the target, its weight, and how often returns meet their bounds."""
        terms, (low, high) = self._terms(batch, boot), self._limits()
        return {
            "critic/path_loss": terms.path.mean(),
            "critic/velocity_loss": terms.velocity.mean(),
            "critic/target": self.config.z_scale * terms.y.mean(),
            "critic/confidence": terms.confidence.mean(),
            "critic/clipped": ((terms.z <= low) | (terms.z >= high)).float().mean(),
        }

    def _terms(self, batch: Batch, boot: Bootstrap) -> Terms:
        """Both losses of every transition, and what they rest on."""
        c, b = self.config, len(batch.reward)
        with torch.no_grad():
            eps = self._normal(b, self._noise)
            t = torch.rand((b, 1), generator=self._times, device=eps.device)
            # One solve to the end and one to time t, from the same noise.
            ends = torch.cat([torch.ones_like(t), t], 1)
            after = torch.cat([batch.next_obs, boot.action], -1)
            z = self._merged(self._flow(after, eps.expand(-1, 2), ends, target=True))
            velocity = self._merged(self._velocities(after, t, z[:, 1:], target=True))
            if c.discounted_velocity:
                velocity = batch.discount[:, None] * velocity
            y, y_t = (bellman(batch, boot, c.z_scale * z) / c.z_scale).split(1, 1)
        x = torch.cat([batch.obs, batch.action], -1)
        # Both losses look at the same heads: two points per transition.
        points = torch.cat([torch.lerp(eps, y, t), y_t], 1)
        v = self._velocities(x, t, points, target=False)
        path = (v[..., :1] - (y - eps)[:, None]).square().sum((1, 2))
        follow = (v[..., 1:] - velocity[:, None]).square().sum((1, 2))
        if c.masked_velocity:
            follow = follow * (batch.discount > 0)
        return Terms(path, follow, self._confidence(x, after), y, z[:, :1])

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """One step from random noise to the end, eps + v(eps, 0): (b,)."""
        return self._one_step(obs, action, self._normal(len(obs), self._actor_noise), target)

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The same from eps = 0 for every candidate: (b,)."""
        return self._one_step(obs, action, obs.new_zeros(obs.shape[0], 1), target)

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of the flow's whole way from random or fixed noise: (b,)."""
        n = self.config.n_risk
        if fixed:
            u = midpoint_levels(n)[None].to(obs)
        else:
            u = draw_levels((len(obs), n), self._actor_noise, stratified=True)
        tau = levels(measure, u.double()).clamp(TINY_LEVEL, 1 - TINY_LEVEL)
        return risk_at(measure, self._quantiles(obs, action, tau, target=target))

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Where the flow carries the normal quantiles, as it keeps order: (b, k)."""
        x = torch.cat([obs, action], -1)
        eps = torch.special.ndtri(tau).to(obs).expand(x.shape[0], -1)
        z = self._flow(x, eps, torch.ones_like(eps[:1, :1]), target=target)
        return self.config.z_scale * self._merged(z)

    def _one_step(self, obs: Tensor, action: Tensor, eps: Tensor, target: bool) -> Tensor:
        x = torch.cat([obs, action], -1)
        v = self._velocities(x, eps.new_zeros(1, 1), eps, target=target)
        z = torch.clamp(self._merged(eps[:, None] + v)[:, 0], *self._limits())
        return self.config.z_scale * z

    def _merged(self, z: Tensor) -> Tensor:
        return merge_heads(z, self.config.heads)

    def _velocities(self, x: Tensor, t: Tensor, z: Tensor, *, target: bool) -> Tensor:
        """Every head's velocity of z (b, n): (b, h, n)."""
        return torch.stack([net(net.begin(x), t, z) for net in self._heads(target=target)], 1)

    def _flow(self, x: Tensor, eps: Tensor, ends: Tensor, *, target: bool) -> Tensor:
        """Every head's Euler solve from noise (b, n) at 0 to the times `ends`: (b, h, n)."""
        heads = self._heads(target=target)
        return torch.stack([self._solve(net, net.begin(x), eps, ends) for net in heads], 1)

    def _solve(self, net: Velocity, base: Any, eps: Tensor, ends: Tensor) -> Tensor:
        z, dt = eps, ends / self.config.flow_steps
        limits = self._limits()
        for k in range(self.config.flow_steps):
            z = z + dt * net(base, k * dt, z)
            # The sensitivity of the solve is that of its steps: bounding hides none of it.
            z = z + (torch.clamp(z, *limits) - z).detach()
        return z

    def _confidence(self, x: Tensor, mate: Tensor) -> Tensor:
        """sigmoid(-temperature / std) + 1/2, std = |dz_1 / deps| of the target flow: (b,).

        Batch norms see x together with its mate (s', a'), as everywhere.
        """
        if self.config.confidence is None:
            return x.new_ones(len(x))
        eps = self._normal(len(x), self._noise)
        spreads = []
        for net in self._heads(target=True):
            start = eps.clone().requires_grad_()
            with torch.no_grad(), self.mated(mate):
                base = net.begin(x)
            with torch.enable_grad():
                end = self._solve(net, base, start, torch.ones_like(eps[:1]))
            spreads.append(torch.autograd.grad(end.sum(), start)[0].abs())
        std = torch.cat(spreads, 1).mean(1)
        return torch.sigmoid(-self.config.confidence / std) + 0.5

    def _normal(self, b: int, generator: torch.Generator) -> Tensor:
        """Standard normal noise: (b, 1)."""
        device = self.bounds.discount.device
        return torch.randn((b, 1), generator=generator, device=device)

    def _limits(self) -> tuple[Tensor, Tensor]:
        """What returns / z_scale are kept within, 0-d."""
        low, high = self.bounds.limits()
        return low / self.config.z_scale, high / self.config.z_scale
