"""DBC's loss, gradient, value and metrics against a slow float64 reading of the specification."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bridgerl.critics.dbc import DBC, DBCConfig
from bridgerl.ops.quantile import draw_levels
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec

SPEC = EnvSpec("toy", 3, 2)
SMALL = DBCConfig(
    hidden=(8, 8), particle=(6,), n_target=5, n_online=4, n_actor=3, n_rank=3, drop=0.2, n_embed=4
)
B = 6
SEED = 3
CASES: list[dict[str, Any]] = [
    {"network": network, "bridge_input": place, **more}
    for network in ("mlp", "factored")
    for place in ("label", "self", "path")
    for more in (
        {},
        {"schedule": "cosine", "z_scale": 10.0, "stratified": True, "n_heads": 3},
        {"schedule": "linear", "shared_levels": True, "anchor_weight": 0.5, "kappa": 0.1},
    )
] + [
    {"reduction": "sum"},
    {"reduction": "sum", "shared_levels": True, "anchor_weight": 0.5},
    {"quantile_weight": 0.0, "anchor_weight": 1.0},
    {"bridge_steps": 1},
    {"bridge_steps": 1, "bridge_input": "path"},
    {"n_online": B, "shared_levels": True},
    {"n_online": 1},
]
Weights = dict[str, Tensor]


class Slow:
    """The same critic, one plain formula after the other, on float64 copies of the weights."""

    def __init__(self, critic: DBC) -> None:
        self.c = critic.config
        self.online = _copies(critic.online, self.c.n_heads)
        self.target = _copies(critic.target, self.c.n_heads)

    def xi(self, t: float) -> float:
        """By Simpson's rule for the integral of theta."""

        def theta(u: float) -> float:
            c = self.c
            shape = {"constant": None, "linear": u, "cosine": (1 - math.cos(math.pi * u)) / 2}
            rise = shape[c.schedule]
            return c.theta if rise is None else c.theta_min + (c.theta_max - c.theta_min) * rise

        def rest(a: float, n: int = 2000) -> float:
            h = (1 - a) / n
            inner = sum((4 if i % 2 else 2) * theta(a + i * h) for i in range(1, n))
            return (theta(a) + inner + theta(1.0)) * h / 3

        return math.sinh(rest(t)) / math.sinh(rest(0.0))

    def features(self, w: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the per-atom network knows of (s, a), and where its returns lie: (b, f), (b, 1)."""
        if self.c.network == "mlp":
            return x, torch.zeros(len(x), 1).double()
        for i in range(len(self.c.hidden)):
            x = torch.relu(_affine(w, f"trunk.{i}", x))
        return x, _affine(w, "from_features", x)[:, -1:]

    def deviation(self, w: Weights, x: Tensor, tau: Tensor, t: Tensor, u: Tensor) -> Tensor:
        """One network on all its inputs side by side, less the location: (b, k)."""
        c = self.c
        features, _ = self.features(w, x)

        def embed(name: str, v: Tensor) -> Tensor:
            waves = torch.stack([torch.cos(math.pi * i * v) for i in range(1, c.n_embed + 1)], -1)
            return torch.relu(_affine(w, f"{name}.project", waves))

        wide = (*u.shape, -1)
        inputs = [
            features[:, None].expand(wide),
            embed("embed_tau", tau),
            embed("embed_t", t).expand(wide),
            (u / c.z_scale)[..., None],
        ]
        sizes = c.hidden if c.network == "mlp" else c.particle
        width = sizes[0]
        blocks = [w[f"from_{k}.weight"][:width] for k in ("features", "tau", "t", "z")]
        bias = w["from_features.bias"][:width, 0]
        h = torch.relu(torch.cat(inputs, -1) @ torch.cat(blocks, 1).T + bias)
        for i in range(len(sizes)):
            h = _affine(w, f"rest.{i}", h)
            h = torch.relu(h) if i < len(sizes) - 1 else h
        return c.z_scale * h[..., 0]

    def walk(self, w: Weights, x: Tensor, tau: Tensor, steps: int) -> Tensor:
        """So many of the M steps from tau, as returns: (b, k). The endpoint predicted at (t, z) is
        m + deviation(z - (1 - xi(t)) m).
        """
        z, m = tau, self.c.bridge_steps
        _, location = self.features(w, x)
        for i in range(steps):
            t, now = torch.full((len(x), 1), i / m).double(), self.xi(i / m)
            end = location + self.deviation(w, x, tau, t, z - (1 - now) * location)
            z = z + (now - self.xi((i + 1) / m)) * (end - tau)
        return z

    def targets(self, batch: Batch, boot: Bootstrap, tau: list[Tensor]) -> Tensor:
        """Ascending y: (b, kept)."""
        x, m = torch.cat([batch.next_obs, boot.action], -1).double(), self.c.bridge_steps
        pairs = zip(self.target, tau, strict=True)
        atoms = torch.cat([self.walk(w, x, own, m) for w, own in pairs], 1)
        kept = atoms.shape[1] - round(self.c.drop * atoms.shape[1])
        z = atoms.sort(1).values[:, :kept] - boot.entropy_cost.double()[:, None]
        return batch.reward.double()[:, None] + batch.discount.double()[:, None] * z

    def loss(self, batch: Batch, boot: Bootstrap) -> tuple[Tensor, dict[str, float]]:
        """The loss, with a graph to the weights' copies, and the metrics."""
        c, streams = self.c, Streams(SEED)
        levels, times = streams("quantile_levels"), streams("bridge_time")
        m = c.bridge_steps
        with torch.no_grad():
            y = self.targets(batch, boot, self.pooled_levels(c.n_target, levels))
            tau = self.levels(c.n_online, levels)
            n = y.shape[1]
            index = [[min(max(math.ceil(u * n), 1), n) - 1 for u in row] for row in tau.tolist()]
            label = y.gather(1, torch.tensor(index))
            step = 0
            if c.bridge_input == "path":
                step = int(torch.randint(min(1, m - 1), m, (1,), generator=streams("bridge_step")))
                t = torch.full((B, 1), step / m).double()
            else:
                t = torch.rand((B, 1), generator=times).clamp(min=1e-3).double()
            share = torch.tensor([[self.xi(float(u))] for u in t])
        x = torch.cat([batch.obs, batch.action], -1).double()
        total = torch.zeros(()).double()
        zeros, leaks = [], []
        for w in self.online:
            _, location = self.features(w, x)
            at_zero = location + self.deviation(w, x, tau, torch.zeros(B, 1).double(), tau)
            goal = {"label": label, "self": at_zero.detach()}.get(c.bridge_input)
            place = self.walk(w, x, tau, step).detach()
            if goal is not None:
                place = share * tau + (1 - share) * goal
            # Where training stands is a constant of the regression.
            stand = (place - (1 - share) * location).detach()
            later = location + self.deviation(w, x, tau, t, stand)
            total = total + 0.5 * self.cost(at_zero, y, tau, label)
            total = total + 0.5 * self.cost(later, y, tau, label)
            zeros.append(at_zero.detach())
            leaks.append((later - (place - share * tau) / (1 - share)).abs().mean(1).detach())
        return total / c.n_heads, _metrics(torch.stack(zeros, 1), torch.stack(leaks, 1), t[:, 0], y)

    def cost(self, pred: Tensor, y: Tensor, tau: Tensor, label: Tensor) -> Tensor:
        """Quantile and anchor loss of one head at one time, pair by pair."""
        c, mean = self.c, self.c.reduction == "mean"
        u = y[:, None, :] - pred[..., None]
        quantile = (tau[..., None] - (u < 0).double()).abs() * _huber(u, c.kappa)
        anchor = _huber(pred - label, c.kappa)
        sums = [
            v.mean((-1, -2)) if mean else v.sum((-1, -2)) for v in (quantile, anchor[..., None])
        ]
        return (c.quantile_weight * sums[0] + c.anchor_weight * sums[1]).mean()

    def levels(self, k: int, generator: torch.Generator) -> Tensor:
        """The critic's draw, one row per transition."""
        rows = 1 if self.c.shared_levels else B
        tau = draw_levels((rows, k), generator, stratified=self.c.stratified)
        return tau.sort(-1).values.double().expand(B, -1)

    def pooled_levels(self, k: int, generator: torch.Generator) -> list[Tensor]:
        """Every head's own: strata go to the heads in turn, independent levels to all alike."""
        if not self.c.stratified:
            return [self.levels(k, generator)] * self.c.n_heads
        tau = self.levels(k * self.c.n_heads, generator)
        return [tau[:, h :: self.c.n_heads] for h in range(self.c.n_heads)]

    def mean(self, nets: list[Weights], x: Tensor, tau: list[Tensor]) -> Tensor:
        """The mean atom of some heads: (b,)."""
        steps = self.c.bridge_steps
        walks = [self.walk(w, x, own, steps) for w, own in zip(nets, tau, strict=True)]
        return torch.stack(walks, 1).mean((1, 2))


def _copies(net: nn.Module, n_heads: int) -> list[Weights]:
    """Every head's own weights."""
    params = list(net.named_parameters())
    return [{k: p[h].detach().double().requires_grad_() for k, p in params} for h in range(n_heads)]


def _affine(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"][:, 0]


def _huber(u: Tensor, kappa: float) -> Tensor:
    return torch.where(u.abs() <= kappa, u * u / 2, kappa * (u.abs() - kappa / 2))


def _metrics(zero: Tensor, leak: Tensor, t: Tensor, y: Tensor) -> dict[str, float]:
    """What the log should say; bins without a transition are left out."""
    found = {
        "q_zero": float(zero.mean()),
        "target": float(y.mean()),
        "target_spread": float(y.std(correction=0)),
    }
    rows = zero.reshape(-1, zero.shape[-1]).tolist()
    falls = [max(0.0, a - b) for row in rows for a, b in itertools.pairwise(row)]
    if falls:
        found["crossing_rate"] = sum(f > 0 for f in falls) / len(falls)
        found["crossing_depth"] = sum(falls) / len(falls)
    for i in range(5):
        mine = [row.mean() for row, u in zip(leak, t.tolist(), strict=True) if int(5 * u) == i]
        if mine and min(t) > 0:
            found[f"leak_t{i}"] = float(torch.stack(mine).mean())
    return {f"critic/{k}": v for k, v in found.items()}


def _critic(case: dict[str, Any]) -> DBC:
    """A critic whose atoms lie apart, and whose target is not its online network."""
    torch.manual_seed(1)
    critic = dataclasses.replace(SMALL, **case).build(SPEC, Streams(SEED))
    with torch.no_grad():
        critic.optimizer.flat.mul_(2.5)
        for p in critic.target.parameters():
            p.mul_(2.5).add_(0.2 * torch.randn(p.shape))
    return critic


def _batch() -> tuple[Batch, Bootstrap]:
    g = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g)

    discount = torch.tensor([0.9] * (B - 2) + [0.0] * 2)
    batch = Batch(draw(B, 3), draw(B, 2).tanh(), 3 * draw(B), discount, draw(B, 3))
    return batch, Bootstrap(draw(B, 2).tanh(), draw(B))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_gradient_and_metrics_equal_the_slow_reading(case: dict[str, Any]) -> None:
    critic, (batch, boot) = _critic(case), _batch()
    slow = Slow(critic)
    loss, metrics = critic.loss(batch, boot)
    expected, figures = slow.loss(batch, boot)
    torch.testing.assert_close(loss.double(), expected, rtol=2e-5, atol=1e-7)
    grads = torch.autograd.grad(loss, list(critic.online.parameters()))
    names = [k for k, _ in critic.online.named_parameters()]
    stacked = [[w[k] for w in slow.online] for k in names]
    wanted = torch.autograd.grad(expected, [p for row in stacked for p in row])
    flat, plain = (torch.cat([g.double().reshape(-1) for g in gs]) for gs in (grads, wanted))
    assert float((flat - plain).norm() / plain.norm()) < 1e-4
    for name, value in figures.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-3, abs=1e-4), name
    empty = {k for k in metrics if "leak" in k} - set(figures)
    assert all(torch.isnan(metrics[k]) for k in empty)


def test_an_update_nobody_reads_has_the_same_gradient() -> None:
    batch, boot = _batch()
    grads = []
    for measuring in (True, False):
        critic = _critic({"bridge_input": "self"})
        critic.measuring = measuring
        loss, metrics = critic.loss(batch, boot)
        assert bool(metrics) == measuring
        grads.append(torch.autograd.grad(loss, list(critic.online.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize(
    "case",
    [{}, {"network": "factored", "z_scale": 7.0, "n_heads": 3}, {"stratified": True}],
    ids=str,
)
def test_values_and_their_slope_equal_the_slow_reading(case: dict[str, Any]) -> None:
    critic, (batch, _) = _critic({"schedule": "linear"} | case), _batch()
    slow = Slow(critic)
    action = batch.action.clone().requires_grad_()
    q = critic.q(batch.obs, action)
    (slope,) = torch.autograd.grad(q.sum(), action)
    theirs = batch.action.double().requires_grad_()
    x = torch.cat([batch.obs.double(), theirs], -1)
    tau = slow.pooled_levels(critic.config.n_actor, Streams(SEED)("actor_levels"))
    expected = slow.mean(slow.online, x, tau)
    (wanted,) = torch.autograd.grad(expected.sum(), theirs)
    torch.testing.assert_close(q.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-3, atol=1e-4)
    fixed = torch.tensor([[1 / 6, 1 / 2, 5 / 6]]).double().expand(B, -1)
    for target, nets in ((False, slow.online), (True, slow.target)):
        rank = critic.q_rank(batch.obs, batch.action, target=target).double()
        mean = slow.mean(nets, x, [fixed] * len(nets)).detach()
        torch.testing.assert_close(rank, mean, rtol=1e-4, atol=1e-5)
        heads = torch.stack([slow.walk(w, x, fixed, 5) for w in nets]).mean(0)
        particles = critic.particles(batch.obs, batch.action, 3, target=target)
        torch.testing.assert_close(particles.double(), heads.detach(), rtol=1e-4, atol=1e-5)
