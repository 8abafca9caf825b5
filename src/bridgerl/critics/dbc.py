"""The critic of "Distributional Reinforcement Learning with Diffusion Bridge Critics".

Equations and algorithms are numbered as there. A network predicts the end Z_tau of a bridge from
level tau; M steps with exact weights walk there.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bridgerl.bridge.schedule import ScheduleName, make_schedule, xi
from bridgerl.bridge.walk import Rule, Walk, draw_times, sample
from bridgerl.critics.base import CriticConfig, QuantileCritic
from bridgerl.critics.diagnostics import describe_fit
from bridgerl.nn.endpoint import Context, EndpointNet
from bridgerl.nn.trunk import make_trunk
from bridgerl.ops.levels import Levels, midpoint_levels
from bridgerl.ops.quantile import QuantileCost, huber, quantile_huber, sample_quantile
from bridgerl.ops.risk import levels, risk_at
from bridgerl.ops.targets import bellman, drop_top
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics


@dataclass(frozen=True)
class DBCConfig(CriticConfig):
    """Diffusion Bridge Critic: walks from a quantile level to a return quantile."""

    distributional = True

    network: Literal["mlp", "factored"] = "mlp"
    """The paper's MLP per atom, or a trunk per transition with a small network per atom."""
    hidden: tuple[int, ...] = (512, 512, 512)
    """Widths of the MLP, or of the trunk of the factored network, which may have none."""
    particle: tuple[int, ...] = (64, 64)
    """Widths of the factored network's part per atom."""
    n_heads: int = 2
    """Independent networks."""
    n_target: int = 128
    """Atoms per head in the target."""
    n_online: int = 64
    """Atoms per head in the loss."""
    n_actor: int = 64
    """Atoms per head in the value the actor maximises."""
    actor_steps: int | None = None
    """Bridge steps in the value that the actor maximises; fewer are cheaper. None: bridge-steps.
    Ignored with bridge-input path."""
    n_rank: int = 64
    """Atoms per head, at fixed levels, in the value that ranks candidate actions."""
    drop: float = 12 / 128
    """Share of the pooled target atoms to drop from the top: the median of the paper's tasks."""
    bridge_steps: int = 5
    """Steps M from level to return."""
    rule: Rule = "exact"
    """Weights of the steps: exact integrals, or Euler's with the speed at the left or right end."""
    schedule: ScheduleName = "constant"
    """How the bridge's drift rate changes over its time."""
    theta: float = 1.0
    """Drift rate of the constant schedule."""
    theta_min: float = 0.1
    """Drift rate at the start of the other schedules."""
    theta_max: float = 5.0
    """Drift rate at the end of the other schedules."""
    bridge_input: Literal["label", "self", "path"] = "label"
    """What the network sees at t > 0 in training. label: a point between level and sampled target
    (the paper). self: between level and its own prediction at t = 0. path: a point of its own
    walk."""
    quantile_weight: float = 1.0
    """Weight of the quantile loss. 0 trains on the anchor loss only."""
    anchor_weight: float = 0.01
    """Weight w of the anchor loss."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over atoms and targets; `sum` is the paper's equation read literally."""
    kappa: float = 1.0
    """Width of the Huber parabola, in units of the return."""
    stratified: bool = False
    """Draw one level per stratum instead of independent ones."""
    shared_levels: bool = False
    """Draw one set of levels per batch instead of one per transition."""
    n_embed: int = 32
    """Cosines in the embeddings of level and time."""
    z_scale: float = 1.0
    """Returns are divided by this inside the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden", fewest=0 if self.network == "factored" else 1)
        self.require_widths("particle")
        ok = self.trunk == "plain" or self.network == "factored"
        self.require(ok, "trunk", "needs --critic.network factored")
        self.require_counts("n_heads", "n_target", "n_online", "n_actor", "n_rank")
        self.require_counts("bridge_steps", "actor_steps", "n_embed")
        self.require_positive("kappa", "z_scale", "theta", "theta_min", "theta_max")
        self.require_not_negative("quantile_weight", "anchor_weight")
        some = self.quantile_weight + self.anchor_weight > 0
        self.require(some, "anchor_weight", "and quantile-weight cannot both be 0")
        self.require(self.theta_min <= self.theta_max, "theta_max", "must not be below theta-min")
        self.require(0 <= self.drop < 1, "drop", "must be in [0, 1)")
        pooled = self.n_heads * self.n_target
        self.require(self.n_drop < pooled, "drop", f"leaves none of {pooled} target atoms")

    @property
    def n_drop(self) -> int:
        """Target atoms to drop, of those of all heads."""
        return round(self.drop * self.n_heads * self.n_target)

    @property
    def actor_walk_steps(self) -> int:
        """Steps of the walk for the actor. On `path` only the M steps' own times are trained."""
        most = None if self.bridge_input == "path" else self.actor_steps
        return min(most or self.bridge_steps, self.bridge_steps)

    def build(self, spec: EnvSpec, streams: Streams) -> "DBC":
        return DBC(self, spec, streams)


class Fit(NamedTuple):
    """One batch of a bridge's regressions."""

    pred: Tensor
    """Predicted endpoints at t = 0 and at t, side by side: (b, 2 h, k)."""
    y: Tensor
    """Targets, ascending: (b, n)."""
    tau: Tensor
    """Levels, ascending: (b or 1, k)."""
    t: Tensor
    """Bridge times: (b,)."""
    share: Tensor
    """Weight xi(t) of the start: (b, 1, 1)."""
    places: tuple[Tensor, Tensor]
    """Positions at times 0 and t: (b, h, k) each."""
    ends: tuple[Tensor, Tensor]
    """Endpoints predicted from there: (b, h, k) each."""

    @property
    def label(self) -> Tensor:
        """Sample quantiles of the targets (Eq. 10): (b, k)."""
        return sample_quantile(self.y, self.tau)


class DBC(QuantileCritic):
    """Z_tau(s, a) is where the bridge that starts at tau ends."""

    mean_particles = 64

    def __init__(self, config: DBCConfig, spec: EnvSpec, streams: Streams) -> None:
        c, n_inputs, trunk = config, spec.obs_dim + spec.action_dim, None
        n_features, hidden = n_inputs, c.hidden
        if c.network == "factored":
            trunk = make_trunk(c.trunk, c.n_heads, (n_inputs, *c.hidden))
            n_features, hidden = (n_inputs, *c.hidden)[-1], c.particle
        how = {"n_embed": c.n_embed, "z_scale": c.z_scale}
        super().__init__(config, EndpointNet(c.n_heads, n_features, hidden, trunk, **how))
        self.config, self.kappa = config, config.kappa
        self._schedule = make_schedule(c.schedule, c.theta, c.theta_min, c.theta_max)
        self._walk = Walk.of(self._schedule, c.bridge_steps, c.rule)
        self._actor_walk = Walk.of(self._schedule, c.actor_walk_steps, c.rule)
        self._levels = Levels(c.stratified, c.shared_levels)
        self._draws, self._actor_draws = streams("quantile_levels"), streams("actor_levels")
        self._times, self._steps = streams("bridge_time"), streams("bridge_step", "cpu")

    def loss(self, batch: Batch, boot: Bootstrap, cost: QuantileCost = quantile_huber) -> Tensor:
        """Mean over t = 0 and a random t of quantile loss + anchor_weight * anchor loss."""
        c, fit = self.config, self._fit(batch, boot)
        total = weigh(c.quantile_weight, self._quantile_loss(fit, cost))
        if c.anchor_weight > 0:
            total = total + weigh(c.anchor_weight, self._anchor_loss(fit))
        return total.mean()  # Eq. 12

    def _quantile_loss(self, fit: Fit, cost: QuantileCost) -> Tensor:
        """Of every prediction (Eq. 8): (b, 2 h, k)."""
        n = fit.pred.shape[2] * fit.y.shape[1] if self.config.reduction == "sum" else 1
        return weigh(n, cost(fit.pred, fit.y, fit.tau, self.kappa))

    def _anchor_loss(self, fit: Fit) -> Tensor:
        """Of every prediction (Eq. 11): (b, 2 h, k)."""
        n = fit.pred.shape[2] if self.config.reduction == "sum" else 1
        return weigh(n, huber(fit.pred, fit.label[:, None], self.kappa))

    def _fit(self, batch: Batch, boot: Bootstrap) -> Fit:
        """Targets, and predictions at t = 0 and at a random t (Alg. 1)."""
        c, b, net = self.config, len(batch.reward), self._net(target=False)
        with torch.no_grad():
            tau = self._levels.pooled(b, c.n_heads, c.n_target, self._draws)
            atoms = self._atoms(batch.next_obs, boot.action, tau, target=True)
            y = bellman(batch, boot, drop_top(atoms, c.n_drop))  # Eq. 7
            tau = self._levels.ascending(b, c.n_online, self._draws)
            if c.bridge_input == "path":
                prefix, t = self._walk.draw_prefix(b, self._steps)
            else:
                prefix, t = None, draw_times(b, self._times)
            share = xi(self._schedule, t)[:, None, None]
        context = net.begin(torch.cat([batch.obs, batch.action], -1), tau[:, None])
        at = net.at(torch.cat([self._walk.times[:1], t]))
        end_0 = net(context, at[..., :1], context.start)  # Eq. 6 from z_0 = tau
        with torch.no_grad():
            goal = sample_quantile(y, tau)[:, None] if c.bridge_input == "label" else end_0
            z_t = torch.lerp(goal, context.start, share)  # Eq. 5
            if prefix is not None:
                z_t = _cross(net, context, prefix)
        end_t = net(context, at[..., 1:], z_t)  # Eq. 6
        pred = torch.cat([end_0, end_t], 1)
        return Fit(pred, y, tau, t, share, (context.start, z_t), (end_0, end_t))

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Both losses by time, targets, crossing quantiles, and whether labels leak."""
        fit = self._fit(batch, boot)
        return describe_fit(fit, self._quantile_loss(fit, quantile_huber), self._anchor_loss(fit))

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of all heads' atoms at random levels, with a graph through every step: (b,)."""
        h, k = self.config.n_heads, self.config.n_actor
        tau = self._levels.pooled(len(obs), h, k, self._actor_draws)
        return self._atoms(obs, action, tau, self._actor_walk, target=target).mean((1, 2))

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of all heads' atoms at midpoint levels, the same for every candidate: (b,)."""
        tau = midpoint_levels(self.config.n_rank)[None, None].to(obs)
        return self._atoms(obs, action, tau, target=target).mean((1, 2))

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of atoms at random or fixed levels, placed where the measure looks: (b,)."""
        c = self.config
        if fixed:
            tau, walk = midpoint_levels(c.n_rank)[None, None].to(obs), self._walk
        else:
            tau = self._levels.pooled(len(obs), c.n_heads, c.n_actor, self._actor_draws)
            walk = self._actor_walk
        atoms = self._atoms(obs, action, levels(measure, tau), walk, target=target)
        return risk_at(measure, atoms.flatten(1))

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Z_tau(s, a), averaged over heads: tau (b or 1, k) -> (b, k)."""
        return self._atoms(obs, action, tau[:, None], target=target).mean(1)

    def _atoms(
        self, obs: Tensor, action: Tensor, tau: Tensor, walk: Walk | None = None, *, target: bool
    ) -> Tensor:
        """Levels (b or 1, h or 1, k) walked over the bridge, by default in M steps: (b, h, k)."""
        net, walk = self._net(target=target), walk or self._walk
        contexts = net.contexts(torch.cat([obs, action], -1), tau)
        parts = [_cross(net, context, walk).permute(1, 2, 0) for context in contexts]
        return torch.cat(parts, 2).permute(2, 0, 1)


def weigh(weight: float, loss: Tensor) -> Tensor:
    """A weight of 1 costs nothing, neither now nor in the gradient."""
    return loss if weight == 1 else weight * loss


def _cross(net: EndpointNet, context: Context, walk: Walk) -> Tensor:
    """Atoms (b, h, k) after a walk from their levels (Alg. 2)."""
    at = net.at(walk.times)
    return sample(lambda z, i: net(context, at[..., i : i + 1], z), context.start, walk.weights)
