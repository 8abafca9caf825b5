"""The Diffusion Bridge Critic: a return's inverse CDF as a bridge from level tau to Z_tau.

A network predicts the bridge's end from where it stands; M steps with exact weights walk there.
Training: a quantile loss at t = 0 and at a random t, plus a small anchor to the sample quantile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bridgerl.bridge.sampler import sample, step_weights, uniform_times
from bridgerl.bridge.schedule import Constant, Cosine, Linear, Schedule, xi
from bridgerl.critics.base import Critic, CriticConfig, kappa_advice
from bridgerl.nn.endpoint import Context, EndpointNet
from bridgerl.ops.quantile import (
    draw_levels,
    huber,
    midpoint_levels,
    quantile_huber_sorted,
    sample_quantile,
)
from bridgerl.ops.targets import bellman, drop_top
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics

T_BINS = 5
CACHED = 2**18
"""Numbers of one layer that cross the bridge together without a graph: 1 MB, a core's cache."""


@dataclass(frozen=True)
class DBCConfig(CriticConfig):
    """Diffusion Bridge Critic: walks from a quantile level to a return quantile."""

    network: Literal["mlp", "factored"] = "mlp"
    """The paper's MLP per atom, or a trunk per transition with a small network per atom."""
    hidden: tuple[int, ...] = (512, 512, 512)
    """Widths of the MLP, or of the trunk of the factored network."""
    particle: tuple[int, ...] = (64, 64)
    """Widths of the factored network's part per atom."""
    n_heads: int = 2
    """Independent networks."""
    n_target: int = 128
    """Atoms per head in the target."""
    n_online: int = 64
    """Atoms per head in the loss."""
    n_actor: int = 64
    """Atoms per head in the value the actor climbs."""
    actor_steps: int | None = None
    """Most steps of the walk behind the value the actor climbs; None, or under `path`, all M."""
    n_rank: int = 8
    """Atoms per head, at fixed levels, in the value that ranks candidate actions."""
    drop: float = 12 / 128
    """Share of the pooled target atoms to drop from the top: the paper's for its tasks, the median
    of them for others."""
    bridge_steps: int = 5
    """Steps M from level to return."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the bridge's drift rate changes over its time."""
    theta: float = 1.0
    """Drift rate of the constant schedule."""
    theta_min: float = 0.1
    """Drift rate at the start of the other schedules."""
    theta_max: float = 5.0
    """Drift rate at the end of the other schedules."""
    bridge_input: Literal["label", "self", "path"] = "label"
    """Where training stands at t > 0: on the way to the label as printed, to the network's own
    prediction, or on the sampler's own path."""
    quantile_weight: float = 1.0
    """Weight of the quantile loss; 0, with an anchor weight of 1, leaves the anchor alone."""
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
        """Refuse settings that cannot be built or cannot learn."""
        super().__post_init__()
        for name in ("hidden", "particle"):
            self.require_widths(name)
        self.require_counts("n_heads", "n_target", "n_online", "n_actor", "n_rank")
        self.require_counts("bridge_steps", "n_embed")
        if self.actor_steps is not None:
            self.require_counts("actor_steps")
        self.require_positive("kappa", "z_scale", "theta", "theta_min", "theta_max")
        for name in ("quantile_weight", "anchor_weight"):
            ok = 0 <= getattr(self, name) < float("inf")
            self.require(ok, name, "must be finite and not negative")
        some = self.quantile_weight + self.anchor_weight > 0
        self.require(some, "anchor_weight", "and quantile-weight cannot both be 0")
        rising = self.theta_min <= self.theta_max
        self.require(rising, "theta_max", f"must be at least theta-min {self.theta_min}")
        self.require(0 <= self.drop < 1, "drop", "must be in [0, 1)")
        pooled = self.n_heads * self.n_target
        self.require(self.n_drop < pooled, "drop", f"leaves none of {pooled} target atoms")

    @property
    def n_drop(self) -> int:
        """Target atoms to drop, of those of all heads."""
        return round(self.drop * self.n_heads * self.n_target)

    @property
    def climb_steps(self) -> int:
        """Steps of the actor's walk. On `path` only the M steps' own times are trained."""
        if self.actor_steps is None or self.bridge_input == "path":
            return self.bridge_steps
        return min(self.actor_steps, self.bridge_steps)

    def build(self, spec: EnvSpec, streams: Streams) -> "DBC":
        """Make the critic for a task."""
        return DBC(self, spec, streams)

    def build_schedule(self) -> Schedule:
        """The drift rate over bridge time."""
        if self.schedule == "constant":
            return Constant(self.theta)
        kind = Linear if self.schedule == "linear" else Cosine
        return kind(self.theta_min, self.theta_max)

    def build_net(self, spec: EnvSpec) -> EndpointNet:
        """All heads."""
        factored = self.network == "factored"
        return EndpointNet(
            self.n_heads,
            spec.obs_dim + spec.action_dim,
            self.particle if factored else self.hidden,
            trunk=self.hidden if factored else (),
            n_embed=self.n_embed,
            z_scale=self.z_scale,
        )


class Walk(NamedTuple):
    """Where the steps over the bridge begin, (M,), and their weights."""

    times: Tensor
    weights: list[float]

    @classmethod
    def of(cls, schedule: Schedule, n_steps: int) -> "Walk":
        """Equal steps from level to return."""
        times = uniform_times(n_steps)
        return cls(times[:-1].float(), step_weights(schedule, times).tolist())

    def first(self, n: int) -> "Walk":
        """The first so many steps."""
        return Walk(self.times[:n], self.weights[:n])


class DBC(Critic):
    """Z_tau(s, a) is where the bridge that starts at tau ends."""

    def __init__(self, config: DBCConfig, spec: EnvSpec, streams: Streams) -> None:
        super().__init__(config, config.build_net(spec))
        self.config = config
        self._schedule = config.build_schedule()
        self._walk = Walk.of(self._schedule, config.bridge_steps)
        self._actor_walk = Walk.of(self._schedule, config.climb_steps)
        self._device = self._walk.times.device
        self._levels = streams("quantile_levels")
        self._bridge_times = streams("bridge_time")
        self._bridge_steps = streams("bridge_step", "cpu")  # Decides on the host how far to walk.
        self._actor_levels = streams("actor_levels")

    def loss(self, batch: Batch, boot: Bootstrap) -> tuple[Tensor, Metrics]:
        """Mean over t = 0 and a random t of quantile loss + anchor_weight * anchor loss."""
        c, b, net = self.config, len(batch.reward), self._net(target=False)
        with torch.no_grad():
            tau = self._draw_pooled(b, c.n_target, self._levels)
            atoms = self._atoms(batch.next_obs, boot.action, tau, target=True)
            y = bellman(batch, boot, drop_top(atoms, c.n_drop))
            tau = self._draw(b, c.n_online, self._levels)
            label = sample_quantile(y, tau)
            step, t = self._draw_time(b)
            share = xi(self._schedule, t)
            start = self._start(_columns(tau), b)

        context = net.begin(torch.cat([batch.obs, batch.action], -1), _columns(tau))
        at = net.at(torch.cat([self._walk.times[:1], t]))
        at_zero = net(context, at[..., :1], start)
        with torch.no_grad():
            if c.bridge_input == "path":
                place = _cross(net, context, start, self._walk.first(step))
            else:
                goal = label.t() - context.location if c.bridge_input == "label" else at_zero
                place = torch.lerp(goal, start, share)
        at_t = net(context, at[..., 1:], place)
        # Both times side by side: (b, 2 h, k), the first h at t = 0.
        both = torch.cat([context.location + at_zero, context.location + at_t])
        pred = both.permute(2, 0, 1).contiguous()
        quantile, anchor = self._terms(pred, y, tau, label)
        loss = (c.quantile_weight * quantile + c.anchor_weight * anchor).mean()
        if not self.measuring:
            return loss, {}
        with torch.no_grad():
            # What an inverse interpolation would answer; a small residual means the label leaks.
            readable = (place - share * start) / (1 - share)
            leak = (at_t - readable).abs().mean((0, 1))
            metrics = {"critic/q_zero": pred[:, : c.n_heads].mean()}
            metrics |= {"critic/target": y.mean(), "critic/target_spread": y.std(correction=0)}
            for name, term in (("quantile", quantile), ("anchor", anchor)):
                metrics[f"critic/{name}_loss"] = term[:, : c.n_heads].mean()
                metrics[f"critic/{name}_loss_t"] = term[:, c.n_heads :].mean()
            return loss, metrics | _crossing(at_zero) | _by_time(leak, t)

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of all heads' atoms at random levels, with a graph through every step: (b,)."""
        tau = self._draw_pooled(len(obs), self.config.n_actor, self._actor_levels)
        return self._atoms(obs, action, tau, self._actor_walk, target=target).mean((1, 2))

    @torch.no_grad()
    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of all heads' atoms at midpoint levels, the same for every candidate: (b,)."""
        tau = midpoint_levels(self.config.n_rank)[None].to(obs)
        return self._atoms(obs, action, _columns(tau), target=target).mean((1, 2))

    def quantiles(
        self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool = False
    ) -> Tensor:
        """Z_tau(s, a), averaged over heads: tau (b or 1, k) -> (b, k)."""
        with torch.no_grad():
            return self._atoms(obs, action, _columns(tau.to(obs)), target=target).mean(1)

    def advice(self, metrics: Mapping[str, float]) -> str | None:
        """Within kappa the loss is quadratic: a law no wider than that gets expectiles."""
        return kappa_advice(self.config.kappa, metrics["critic/target_spread"])

    def _net(self, *, target: bool) -> EndpointNet:
        net = self.target if target else self.online
        assert isinstance(net, EndpointNet)
        return net

    def _atoms(
        self,
        obs: Tensor,
        action: Tensor,
        tau: Tensor,
        walk: "Walk | None" = None,
        *,
        target: bool = False,
    ) -> Tensor:
        """Walk levels (h or 1, k, b or 1) over the bridge, by default in M steps: (b, h, k)."""
        net, walk, x = self._net(target=target), walk or self._walk, torch.cat([obs, action], -1)
        b = len(x)
        rows = b if torch.is_grad_enabled() else self._cached_rows(tau.shape[1], x.device)
        parts = []
        for i in range(0, max(b, 1), rows):
            own = tau if tau.shape[2] == 1 else tau[..., i : i + rows]
            context = net.begin(x[i : i + rows], own)
            start = self._start(own, len(x[i : i + rows]))
            parts.append(context.location + _cross(net, context, start, walk))
        return (torch.cat(parts, 2) if len(parts) > 1 else parts[0]).permute(2, 0, 1)

    def _cached_rows(self, k: int, device: torch.device) -> int:
        """Transitions whose activations stay in a CPU's cache while they cross without a graph."""
        c = self.config
        width = max(c.hidden if c.network == "mlp" else c.particle)
        return max(1, CACHED // (c.n_heads * width * k)) if device.type == "cpu" else 2**31

    def _start(self, tau: Tensor, b: int) -> Tensor:
        """Every head's atoms at their levels: tau (h or 1, k, b or 1) -> (h, k, b)."""
        return tau.expand(self.config.n_heads, -1, b).contiguous()

    def _draw(self, b: int, k: int, generator: torch.Generator) -> Tensor:
        """Ascending levels, (b, k) or (1, k)."""
        shape = (1 if self.config.shared_levels else b, k)
        device, stratified = str(self._device), self.config.stratified
        tau = draw_levels(shape, generator, stratified=stratified, device=device)
        return tau if self.config.stratified else tau.sort(-1).values

    def _draw_pooled(self, b: int, k: int, generator: torch.Generator) -> Tensor:
        """Levels of atoms that all heads pool: (h or 1, k, b or 1).

        Strata are dealt out to the heads, so that h heads of k atoms cover h k of them; who begins
        is drawn, or the first head would always get the lower ones. Independent levels are shared,
        as in the paper.
        """
        if not self.config.stratified:
            return _columns(self._draw(b, k, generator))
        h = self.config.n_heads
        tau = self._draw(b, h * k, generator).view(-1, k, h)
        order = torch.rand(h, generator=generator, device=self._device).argsort()
        return tau[..., order].permute(2, 1, 0)

    def _draw_time(self, b: int) -> tuple[int, Tensor]:
        """When the second loss looks: a step of the walk, or t uniform in (0, 1), (b,)."""
        if self.config.bridge_input != "path":
            t = torch.rand((b,), generator=self._bridge_times, device=self._device)
            return 0, t.clamp_(min=1e-3)
        last = self.config.bridge_steps - 1
        # Step 0 is where the first loss looks; a walk of one step has no other.
        step = int(torch.randint(min(1, last), last + 1, (1,), generator=self._bridge_steps))
        return step, self._walk.times[step].expand(b)

    def _terms(self, pred: Tensor, y: Tensor, tau: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Quantile and anchor loss of every prediction (b, 2 h, k)."""
        c = self.config
        quantile = quantile_huber_sorted(pred, y, tau, c.kappa, value=self.measuring)
        anchor = huber(pred, label[:, None], c.kappa)
        if c.reduction == "sum":
            n_atoms, n_targets = pred.shape[2], y.shape[1]
            return n_atoms * n_targets * quantile, n_atoms * anchor
        return quantile, anchor


def _cross(net: EndpointNet, context: Context, start: Tensor, walk: Walk) -> Tensor:
    """Atoms (h, k, b) after a walk from their levels, relative to the location."""
    at = net.at(walk.times)
    return sample(lambda z, i: net(context, at[..., i : i + 1], z), start, walk.weights)


def _columns(tau: Tensor) -> Tensor:
    """Levels (b or 1, k) as all heads' columns (1, k, b or 1)."""
    return tau.t()[None]


def _crossing(atoms: Tensor) -> Metrics:
    """How often, and how deep, neighbouring quantiles (h, k, b) at ascending levels cross."""
    if atoms.shape[1] < 2:
        return {}
    fall = (-atoms.diff(dim=1)).clamp_(min=0)
    return {"critic/crossing_rate": (fall > 0).float().mean(), "critic/crossing_depth": fall.mean()}


def _by_time(residual: Tensor, t: Tensor) -> Metrics:
    """Mean residual (b,) in equal bins of bridge time; NaN, logged as null, in an empty one."""
    index = (t * T_BINS).long().clamp_(max=T_BINS - 1)
    total = residual.new_zeros(T_BINS).index_add_(0, index, residual)
    count = residual.new_zeros(T_BINS).index_add_(0, index, torch.ones_like(residual))
    means = total / count
    return {f"critic/leak_t{i}": means[i] for i in range(T_BINS)}
