"""The rival critics against slow float64 readings of the specification, row by row."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridgerl.critics import CRITICS
from bridgerl.critics.base import Critic
from bridgerl.critics.dsac import DSAC, DSACConfig, Gaussian, gaussian_surrogate
from bridgerl.critics.iqn import IQN, IQNConfig
from bridgerl.critics.tqc import TQCConfig
from bridgerl.critics.vdrl import VDRL, VDRLConfig
from bridgerl.critics.vf import VF, VFConfig
from bridgerl.nn.trunk import joint
from bridgerl.ops.quantile import quantile_huber
from bridgerl.presets import PAPER_TASKS, resolve
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec

SPEC = EnvSpec("toy", 3, 2)
B, SEED = 6, 3
SMALL: dict[str, dict[str, Any]] = {
    "dsac": {"hidden": (8, 8)},
    "iqn": {"hidden": (8, 8), "merged": (7,), "n_target": 5, "n_online": 4, "n_actor": 3},
    "tqc": {"hidden": (8, 8), "n_atoms": 5, "drop": 0.2},
    "vf": {"hidden": (8, 8), "flow_steps": 4},
    "vdrl": {"hidden": (8, 8), "n_target": 4, "n_actor": 3, "n_embed": 6},
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("dsac", {}),
    ("dsac", {"td_bound": 1.5, "draw_clip": 0.4, "damping": 0.7}),
    ("iqn", {}),
    ("iqn", {"n_heads": 3, "kappa": 0.3, "n_online": 1}),
    ("iqn", {"heads": "mean", "n_heads": 3}),
    ("tqc", {}),
    ("tqc", {"n_heads": 5, "kappa": 0.3, "drop": 0.4}),
    ("tqc", {"n_heads": 1, "drop": 0.0}),
    ("vf", {}),
    ("vf", {"discounted_velocity": True}),
    ("vf", {"masked_velocity": True, "path_weight": 0.3, "velocity_weight": 2.0}),
    ("vf", {"bounded": False, "confidence": None, "n_heads": 3}),
    ("vf", {"confidence": 4.0, "flow_steps": 10, "n_heads": 1}),
    ("vf", {"z_scale": 3.0}),
    ("vf", {"heads": "min"}),
    ("vdrl", {}),
    ("vdrl", {"n_heads": 3, "z_scale": 7.0, "diffusion_steps": 6}),
    ("vdrl", {"selection": "head"}),
    ("vdrl", {"bounded": True, "z_scale": 0.5, "diffusion_steps": 6}),
]
Weights = dict[str, Tensor]


class Slow:
    """A critic's plain reading: float64 copies of the weights, one transition at a time."""

    def __init__(self, critic: Any, heads: Callable[[nn.Module], list[nn.Module]]) -> None:
        self.c = critic.config
        self.online = [_copies(net) for net in heads(critic.online)]
        self.target = [_copies(net) for net in heads(critic.target)]
        self.streams = Streams(SEED)
        self.low, self.high = -math.inf, math.inf

    def see(self, batch: Batch, boot: Bootstrap) -> None:
        """Returns lie between the extreme soft reward once and for ever; in units of z_scale."""
        if getattr(self.c, "bounded", False):
            zero = torch.zeros(()).double()
            soft = [float(back(zero)) / self.c.z_scale for _, _, back in _rows(batch, boot)]
            forever = 1 / (1 - float(batch.discount.max()))
            self.low = min(min(soft), forever * min(soft))
            self.high = max(max(soft), forever * max(soft))

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """The loss, with a graph to the online copies."""
        raise NotImplementedError

    def q(self, x: Tensor) -> Tensor:
        """The actor's value of rows [s, a]: (b,)."""
        raise NotImplementedError


class SlowDSAC(Slow):
    def law(self, w: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = _mlp(w, "", x, lambda h: h * (1 + torch.erf(h / math.sqrt(2))) / 2)
        return mean, torch.log(1 + torch.exp(raw))

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        c, total = self.c, 0.0
        draws = torch.randn(B, generator=self.streams("return_draws")).tolist()
        for draw, (x, after, back) in zip(draws, _rows(batch, boot), strict=True):
            with torch.no_grad():
                mean, sigma = self.law(self.target[0], after)
            y = float(back(mean + min(max(draw, -c.draw_clip), c.draw_clip) * sigma))
            mean, sigma = self.law(self.online[0], x)
            mu, s = mean.item(), sigma.item()
            bounded = mu + min(max(y - mu, -c.td_bound), c.td_bound)
            first = (y - mu) / (s**2 + c.damping)
            second = ((mu - bounded) ** 2 - s**2) / (s**3 + c.damping)
            total = total - (first * mean + second * sigma) / B
        return torch.as_tensor(total)

    def q(self, x: Tensor) -> Tensor:
        return torch.stack([self.law(self.online[0], row)[0] for row in x])


class SlowIQN(Slow):
    def z(self, w: Weights, x: Tensor, tau: float) -> Tensor:
        psi = torch.relu(_mlp(w, "features.", x, torch.relu))
        waves = [math.cos(math.pi * i * tau) for i in range(1, self.c.n_embed + 1)]
        phi = torch.relu(_linear(w, "embed.project", torch.tensor(waves).double()))
        return _mlp(w, "rest.", psi * phi, torch.relu)[0]

    def merged(self, nets: list[Weights], x: Tensor, tau: float) -> Tensor:
        return _merged(torch.stack([self.z(w, x, tau) for w in nets]), self.c.heads)

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        c, total = self.c, torch.zeros(()).double()
        levels = self.streams("quantile_levels")
        there = torch.rand((B, c.n_target), generator=levels).tolist()
        here = torch.rand((B, c.n_online), generator=levels).tolist()
        for row, (x, after, back) in enumerate(_rows(batch, boot)):
            y = [back(self.merged(self.target, after, tau)).detach() for tau in there[row]]
            for w in self.online:
                for tau in here[row]:
                    pred = self.z(w, x, tau)
                    costs = [_quantile_huber(goal - pred, tau, c.kappa) for goal in y]
                    total = total + sum(costs) / len(y) / B
        return total

    def q(self, x: Tensor) -> Tensor:
        tau = torch.rand((B, self.c.n_actor), generator=self.streams("actor_levels")).tolist()
        values = [[self.merged(self.online, x[i], u) for u in tau[i]] for i in range(B)]
        return torch.stack([torch.stack(row).mean() for row in values])


class SlowTQC(Slow):
    def __init__(self, critic: Critic, heads: Callable[[nn.Module], list[nn.Module]]) -> None:
        super().__init__(critic, heads)
        self.online, self.target = (
            [{k: _of_head(p, h) for k, p in w.items()} for h, w in enumerate(nets)]
            for nets in (self.online, self.target)
        )

    def atoms(self, nets: list[Weights], x: Tensor) -> list[Tensor]:
        return [_linear(w, "readout", torch.relu(_mlp(w, "trunk.", x, torch.relu))) for w in nets]

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        c, costs = self.c, []
        for x, after, back in _rows(batch, boot):
            pool = sorted(z.item() for atoms in self.atoms(self.target, after) for z in atoms)
            kept = pool[: len(pool) - round(c.drop * len(pool))]
            y = [back(torch.tensor(z).double()) for z in kept]
            for atoms in self.atoms(self.online, x):
                for i, pred in enumerate(atoms, start=1):
                    tau = (i - 0.5) / c.n_atoms
                    costs += [_quantile_huber(goal - pred, tau, c.kappa) for goal in y]
        return torch.stack(costs).mean()

    def q(self, x: Tensor) -> Tensor:
        return torch.stack([torch.cat(self.atoms(self.online, row)).mean() for row in x])


class SlowVF(Slow):
    """Flows carry returns divided by z_scale."""

    def v(self, w: Weights, z: Tensor, t: float, x: Tensor) -> Tensor:
        h = _linear(w, "first", torch.cat([z.reshape(1), torch.tensor([t]).double(), x]))
        for i in range(len(self.c.hidden)):
            h = torch.relu(h)
            h = (h - h.mean()) / torch.sqrt(((h - h.mean()) ** 2).mean() + 1e-6)
            h = h * w[f"rest.{3 * i + 1}.weight"] + w[f"rest.{3 * i + 1}.bias"]
            h = _linear(w, f"rest.{3 * i + 2}", h)
        return h[0]

    def solve(self, w: Weights, x: Tensor, eps: Tensor, end: float) -> tuple[Tensor, Tensor]:
        """Where the flow is at time `end`, and dz / deps by its own recursion."""
        z, slope, n = eps, torch.ones(()).double(), self.c.flow_steps
        for k in range(n):
            place = z.detach().requires_grad_()
            v = self.v(w, place, k * end / n, x)
            (dv,) = torch.autograd.grad(v, place)
            slope = slope + end / n * dv * slope
            z = (place + end / n * v).detach().clamp(self.low, self.high)
        return z, slope

    def confidence(self, x: Tensor, eps: Tensor) -> float:
        if self.c.confidence is None:
            return 1.0
        spreads = [abs(self.solve(w, x, eps, 1.0)[1].item()) for w in self.target]
        std = sum(spreads) / len(spreads)
        return 1 / (1 + math.exp(self.c.confidence / std)) + 0.5

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        c, total = self.c, torch.zeros(()).double()
        noise, times = self.streams("flow_noise"), self.streams("flow_time")
        draws = torch.randn((B, 1), generator=noise).double()
        t_all = torch.rand((B, 1), generator=times).double()
        fresh = torch.randn((B, 1), generator=noise).double()
        self.see(batch, boot)
        for i, (x, after, back) in enumerate(_rows(batch, boot)):
            eps, t = draws[i, 0], float(t_all[i])
            full, part = (
                _merged(
                    torch.stack([self.solve(w, after, eps, end)[0] for w in self.target]), c.heads
                )
                for end in (1.0, t)
            )
            velocities = torch.stack([self.v(w, part, t, after).detach() for w in self.target])
            goal = _merged(velocities, c.heads).item()
            if c.discounted_velocity:
                goal *= float(batch.discount[i])
            y, y_t = (back(c.z_scale * z) / c.z_scale for z in (full, part))
            path = sum(
                (self.v(w, t * y + (1 - t) * eps, t, x) - (y - eps)) ** 2 for w in self.online
            )
            follow = sum((self.v(w, y_t, t, x) - goal) ** 2 for w in self.online)
            if c.masked_velocity and batch.discount[i] == 0:
                follow = 0.0
            weight = self.confidence(x, fresh[i, 0])
            total = total + weight * (c.path_weight * path + c.velocity_weight * follow) / B
        return total

    def q(self, x: Tensor) -> Tensor:
        eps = torch.randn((B, 1), generator=self.streams("actor_noise")).double()[:, 0]
        rows = [
            _merged(torch.stack([e + self.v(w, e, 0.0, row) for w in self.online]), self.c.heads)
            for e, row in zip(eps, x, strict=True)
        ]
        return self.c.z_scale * torch.stack(rows).clamp(self.low, self.high)


class SlowVDRL(Slow):
    def eps(self, w: Weights, x: Tensor, k: int, condition: Tensor) -> Tensor:
        half = self.c.n_embed // 2
        angles = [k * math.exp(-j * math.log(10000) / (half - 1)) for j in range(half)]
        waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        temb = _mlp(w, "embed.mlp.", torch.tensor(waves).double(), _mish)
        h = _mish(_linear(w, "first", torch.cat([x.reshape(1), temb, condition])))
        return _mlp(w, "rest.", h, _mish)[0]

    def walk(self, w: Weights, condition: Tensor, noise: Tensor) -> Tensor:
        """One return from noise (T,)."""
        beta, bar = cosine_schedule(self.c.diffusion_steps)
        x = noise[0]
        for done, k in enumerate(reversed(range(self.c.diffusion_steps))):
            before = bar[k - 1] if k > 0 else 1.0
            x0 = x / bar[k] ** 0.5 - (1 / bar[k] - 1) ** 0.5 * self.eps(w, x, k, condition)
            x0 = x0.clamp(self.low, self.high)
            mean = beta[k] * before**0.5 / (1 - bar[k]) * x0
            mean = mean + (1 - before) * (1 - beta[k]) ** 0.5 / (1 - bar[k]) * x
            var = beta[k] * (1 - before) / (1 - bar[k])
            x = mean + var**0.5 * noise[done + 1] if k > 0 else mean
        return self.c.z_scale * x

    def returns(self, nets: list[Weights], condition: Tensor, noise: Tensor) -> Tensor:
        """Of noise (T, n), the same for all heads: (n,)."""
        draws = [torch.stack([self.walk(w, condition, e) for e in noise.T]) for w in nets]
        if nets is self.target and self.c.selection == "head":
            return min(draws, key=lambda z: z.mean().item())
        return torch.stack([torch.stack(zs).min() for zs in zip(*draws, strict=True)])

    def noise(self, name: str, n: int) -> Tensor:
        shape = (self.c.diffusion_steps, B, n, 1)
        return torch.randn(shape, generator=self.streams(name)).double()[..., 0]

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        c, total = self.c, torch.zeros(()).double()
        self.see(batch, boot)
        noise, g = self.noise("target_draws", c.n_target), self.streams("value_diffusion")
        k = torch.randint(c.diffusion_steps, (B, c.n_target), generator=g).tolist()
        eps = torch.randn((B, c.n_target, 1), generator=g).double()[..., 0]
        _, bar = cosine_schedule(c.diffusion_steps)
        for i, (x, after, back) in enumerate(_rows(batch, boot)):
            with torch.no_grad():
                y = back(self.returns(self.target, after, noise[:, i]))
            for j, goal in enumerate(y / c.z_scale):
                a = bar[k[i][j]]
                place = a**0.5 * goal + (1 - a) ** 0.5 * eps[i, j]
                for w in self.online:
                    error = eps[i, j] - self.eps(w, place, k[i][j], x)
                    total = total + error**2 / (B * c.n_target)
        return total

    def q(self, x: Tensor) -> Tensor:
        noise = self.noise("actor_draws", self.c.n_actor)
        return torch.stack([self.returns(self.online, x[i], noise[:, i]).mean() for i in range(B)])


def cosine_schedule(steps: int) -> tuple[list[float], list[float]]:
    """Betas, and alpha-bars of the clipped betas."""

    def f(k: int) -> float:
        return math.cos((k / steps + 0.008) / 1.008 * math.pi / 2) ** 2

    beta = [min(max(1 - f(k + 1) / f(k), 0.0), 0.999) for k in range(steps)]
    bar = [math.prod(1 - b for b in beta[: k + 1]) for k in range(steps)]
    return beta, bar


SLOW: dict[str, Callable[[Critic], Slow]] = {
    "dsac": lambda c: SlowDSAC(c, lambda net: [net]),
    "iqn": lambda c: SlowIQN(c, lambda net: list(net.children())),
    "tqc": lambda c: SlowTQC(c, lambda net: [net] * c.config.n_heads),  # pyright: ignore
    "vf": lambda c: SlowVF(c, lambda net: list(net.children())),
    "vdrl": lambda c: SlowVDRL(c, lambda net: list(net.children())),
}


@pytest.mark.parametrize(("name", "case"), CASES, ids=str)
@pytest.mark.parametrize("reward_scale", [3.0, 0.1])
def test_loss_and_gradient_equal_the_slow_reading(
    name: str, case: dict[str, Any], reward_scale: float
) -> None:
    critic, (batch, boot) = _critic(name, case), _batch(reward_scale)
    slow = SLOW[name](critic)
    critic.see(batch, boot)
    loss = critic.loss(batch, boot)
    expected = slow.loss(batch, boot)
    torch.testing.assert_close(loss.double(), expected, rtol=2e-5, atol=1e-6)
    grads = torch.autograd.grad(loss, list(critic.online.parameters()))
    if name == "tqc":
        grads = [g[h] for h in range(len(grads[0])) for g in grads]
    wanted = torch.autograd.grad(expected, [p for w in slow.online for p in w.values()])
    grads = [g.reshape(like.shape) for g, like in zip(grads, wanted, strict=True)]
    for ours, theirs in zip(grads, wanted, strict=True):
        assert float((ours - theirs).norm()) <= 1e-4 * float(theirs.norm()) + 1e-6


@pytest.mark.parametrize(("name", "case"), CASES, ids=str)
@pytest.mark.parametrize("reward_scale", [3.0, 0.1])
def test_value_and_its_slope_in_the_action_equal_the_slow_reading(
    name: str, case: dict[str, Any], reward_scale: float
) -> None:
    critic, (batch, boot) = _critic(name, case), _batch(reward_scale)
    slow = SLOW[name](critic)
    critic.see(batch, boot)
    slow.see(batch, boot)
    action = batch.action.clone().requires_grad_()
    q = critic.q(batch.obs, action)
    (slope,) = torch.autograd.grad(q.sum(), action)
    theirs = batch.action.double().requires_grad_()
    expected = slow.q(torch.cat([batch.obs.double(), theirs], -1))
    (wanted,) = torch.autograd.grad(expected.sum(), theirs)
    torch.testing.assert_close(q.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(CRITICS))
def test_terminal_transitions_learn_from_their_reward_alone(name: str) -> None:
    # As published, value flows follow the next state's velocity even there.
    case = {"masked_velocity": True} if name == "vf" else {}
    losses = []
    for other in (False, True):
        critic, (batch, boot) = _critic(name, case), _batch(1.0)
        batch = batch._replace(reward=torch.full((B,), 1.5), discount=torch.zeros(B))
        if other:
            batch = batch._replace(next_obs=9 * batch.next_obs)
            boot = Bootstrap(-boot.action, 50 + boot.entropy_cost)
        critic.see(batch, boot)
        losses.append(critic.loss(batch, boot).item())
        assert critic.diagnostics(batch, boot)["critic/target"].item() == 1.5
    assert losses[0] == losses[1]


def test_published_value_flows_follow_the_next_velocity_past_the_end() -> None:
    batch, boot = _batch(1.0)
    batch = batch._replace(discount=torch.zeros(B))
    moved = batch._replace(next_obs=9 * batch.next_obs)
    published = [_critic("vf", {}).loss(b, boot).item() for b in (batch, moved)]
    assert published[0] != published[1]
    case = {"discounted_velocity": True}
    discounted = [_critic("vf", case).loss(b, boot).item() for b in (batch, moved)]
    assert discounted[0] == discounted[1]


@pytest.mark.parametrize("name", list(CRITICS))
def test_defaults_are_the_papers(name: str) -> None:
    config: Any = CRITICS[name]()
    width = {"cdq": 512, "dsac": 256, "iqn": 256, "tqc": 512, "vf": 512, "vdrl": 256, "dbc": 512}
    depth = {"iqn": 2, "vf": 4}.get(name, 3)
    assert config.hidden == (width[name],) * depth
    assert (config.lr, config.grad_clip, config.polyak) == (3e-4, 1.0, 0.005)
    assert config.adam_eps == (1e-8 if name == "vdrl" else 1e-5)
    assert getattr(config, "n_heads", 1) == (1 if name == "dsac" else 2)
    special: dict[str, dict[str, Any]] = {
        "dsac": {"td_bound": 20, "damping": 0.1, "draw_clip": 3},
        "iqn": {"merged": (256,), "n_target": 32, "n_online": 32, "n_actor": 32, "n_embed": 64},
        "tqc": {"n_atoms": 25, "kappa": 1},
        "vf": {"flow_steps": 10, "path_weight": 1, "velocity_weight": 1, "confidence": 0.3}
        | {"z_scale": 1, "discounted_velocity": False, "masked_velocity": False},
        "vdrl": {"n_target": 10, "n_actor": 5, "n_embed": 16, "diffusion_steps": 20}
        | {"z_scale": 1, "bounded": False, "selection": "min"},
    }
    for field, value in special.get(name, {}).items():
        assert getattr(config, field) == value, field


@pytest.mark.parametrize("env", PAPER_TASKS)
def test_paper_preset_drops_the_tabulated_atoms(env: str) -> None:
    per_head = {"HalfCheetah-v5": (0, 0), "Hopper-v5": (5, 32), "Walker2d-v5": (2, 14)}
    for critic, d in zip(("tqc", "dbc"), per_head.get(env, (2, 12)), strict=True):
        config: Any = resolve(env, critic=critic, preset="paper").critic
        assert config.n_drop == 2 * d


@pytest.mark.parametrize("n_heads", [2, 5])
@pytest.mark.parametrize("n_drop", [0, 2, 5])
def test_tqc_loss_equals_sb3_contrib(n_heads: int, n_drop: int) -> None:
    theirs = pytest.importorskip("sb3_contrib.common.utils").quantile_huber_loss
    g = torch.Generator().manual_seed(n_heads)
    config = TQCConfig(n_heads=n_heads, drop=n_drop / 25)
    pred, target = (3 * torch.randn((32, n_heads, 25), generator=g).double() for _ in range(2))
    kept = target.flatten(1).sort().values[:, : 25 * n_heads - n_drop * n_heads]
    assert config.n_drop == n_drop * n_heads
    expected = theirs(pred, kept[:, None], sum_over_quantiles=False)
    tau = (torch.arange(25).double() + 0.5) / 25
    ours = quantile_huber(pred, kept, tau, config.kappa).mean()
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=0)

    case = {"n_heads": n_heads, "n_atoms": 25, "drop": n_drop / 25}
    critic, (batch, boot) = _critic("tqc", case), _batch(3.0)
    after = torch.cat([batch.next_obs, boot.action], -1)
    atoms = critic.target(after).flatten(1).sort().values[:, : (25 - n_drop) * n_heads]
    y = batch.reward[:, None] + batch.discount[:, None] * (atoms - boot.entropy_cost[:, None])
    pred = critic.online(torch.cat([batch.obs, batch.action], -1))
    expected = theirs(pred, y[:, None], sum_over_quantiles=False)
    torch.testing.assert_close(critic.loss(batch, boot), expected, rtol=1e-6, atol=0)


def test_dsac_surrogate_has_the_slope_of_the_gaussian_likelihood() -> None:
    g = torch.Generator().manual_seed(0)
    y, mean, std = (torch.randn(50, generator=g).double() for _ in range(3))
    y = 4 * y
    mean, std = mean.requires_grad_(), std.exp().requires_grad_()
    likelihood = torch.log(std) + (y - mean) ** 2 / (2 * std**2)
    surrogate = gaussian_surrogate(Gaussian(mean, std), y, bound=1e9, damping=0.0)
    ours, theirs = (torch.autograd.grad(f.sum(), (mean, std)) for f in (surrogate, likelihood))
    torch.testing.assert_close(ours, theirs)


def test_dsac_mean_learns_from_the_target_and_deviation_from_the_bounded_one() -> None:
    mean = torch.zeros(4, requires_grad=True)
    std = torch.full((4,), 2.0, requires_grad=True)
    y = torch.tensor([20.0, 50.0, -20.0, -50.0])
    loss = gaussian_surrogate(Gaussian(mean, std), y, bound=20.0, damping=0.1).sum()
    to_mean, to_std = torch.autograd.grad(loss, (mean, std))
    torch.testing.assert_close(to_mean, -y / 4.1)
    torch.testing.assert_close(to_std, torch.full((4,), -(20.0**2 - 4) / 8.1))


@pytest.mark.parametrize(("bound", "expected"), [(20.0, 5.0), (5.0, 3.59)])
def test_dsac_finds_the_deviation_of_gaussian_rewards(bound: float, expected: float) -> None:
    # The fixed point is E[clip(y - mean)^2]: 0.516 of the variance when cut at one deviation.
    critic = _critic("dsac", {"td_bound": bound, "lr": 1e-2, "hidden": (8,)})
    assert isinstance(critic, DSAC)
    g, still, zero = torch.Generator().manual_seed(0), torch.zeros(512, 3), torch.zeros(512)
    stds = []
    for update in range(1200):
        critic.optimizer.lr = 1e-2 if update < 600 else 1e-3
        reward = 2 + 5 * torch.randn(512, generator=g)
        batch = Batch(still, torch.zeros(512, 2), reward, zero, still)
        boot = Bootstrap(torch.zeros(512, 2), zero)
        stds.append(critic.diagnostics(batch, boot)["critic/std"].item())
        critic.update(batch, boot)
    assert sum(stds[-200:]) / 200 == pytest.approx(expected, rel=0.03)
    assert critic.q(still[:1], still[:1, :2]).item() == pytest.approx(2.0, abs=0.3)


def test_value_flows_bound_returns_by_the_soft_rewards_seen_so_far() -> None:
    critic, (batch, boot) = _critic("vf", {}), _batch(1.0)
    assert isinstance(critic, VF)
    assert [float(b) for b in critic.bounds.limits()] == [-math.inf, math.inf]
    reward = torch.tensor([1.0, 2.0, 3.0, 1.0, 1.0, 1.0])
    boot = boot._replace(entropy_cost=torch.tensor([0.0, 0.0, -1.0, 0.0, 5.0, 5.0]))
    critic.update(batch._replace(reward=reward), boot)  # The last two rows are terminal.
    assert [float(b) for b in critic.bounds.limits()] == pytest.approx([1.0, 39.0], rel=1e-5)
    critic.update(batch._replace(reward=-reward), boot)
    assert [float(b) for b in critic.bounds.limits()] == pytest.approx([-21.0, 39.0], rel=1e-5)


RATIOS = {1 / 3: (102.6, 102.9), 1.0: (105.2, 106.1), 3.0: (107.6, 110.6)}
"""Velocity over path weight: the specification's return and value at t = 0, truth 100."""


@pytest.mark.parametrize("ratio", RATIOS)
def test_published_value_flows_overestimate_a_self_loop_as_the_specification_says(
    ratio: float,
) -> None:
    assert _self_loop(ratio, discounted=False) == pytest.approx(RATIOS[ratio], abs=0.06)
    assert _self_loop(ratio, discounted=True) == pytest.approx((100.0, 100.0), abs=1e-3)
    assert _self_loop(0.0, discounted=False) == pytest.approx((100.0, 100.0), abs=1e-3)


@pytest.mark.parametrize(
    ("name", "case"),
    [("vdrl", {}), ("vdrl", {"selection": "head"}), ("vdrl", {"bounded": True}), ("vf", {})],
)
def test_returns_scale_with_rewards_and_z_scale(name: str, case: dict[str, Any]) -> None:
    (batch, boot), factor = _batch(3.0), 4.0
    critics = [_critic(name, case | {"z_scale": s}) for s in (2.0, 2 * factor)]
    grown = batch._replace(reward=factor * batch.reward)
    grown_boot = boot._replace(entropy_cost=factor * boot.entropy_cost)
    critics[0].see(batch, boot)
    critics[1].see(grown, grown_boot)
    loss, grown_loss = critics[0].loss(batch, boot), critics[1].loss(grown, grown_boot)
    torch.testing.assert_close(loss, grown_loss, rtol=1e-5, atol=1e-6)
    q, grown_q = (critic.q(batch.obs, batch.action) for critic in critics)
    torch.testing.assert_close(factor * q, grown_q, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("ratio", "tolerance"), [(0.0, 0.02), (1.0, 0.03)])
def test_trained_value_flows_settle_where_the_numeric_solution_says(
    ratio: float, tolerance: float
) -> None:
    # The numeric family needs rewards small against the noise, hence z_scale; truth is 10.
    changes = {"hidden": (32, 32), "n_heads": 1, "z_scale": 5.0, "velocity_weight": ratio}
    steady = {"bounded": False, "confidence": None, "polyak": 0.2, "grad_clip": None}
    torch.manual_seed(0)
    critic = VFConfig(**changes, **steady).build(SPEC, Streams(SEED))
    b, found = 256, []
    obs, action, zero = torch.zeros(b, 3), torch.zeros(b, 2), torch.zeros(b)
    batch = Batch(obs, action, torch.ones(b), torch.full((b,), 0.9), obs)
    for update in range(1000):
        critic.optimizer.lr = 1e-2 if update < 400 else 3e-3 if update < 700 else 1e-3
        critic.update(batch, Bootstrap(action, zero))
        critic.update_target()
        if update >= 700 and update % 20 == 0:
            with torch.no_grad():
                ends = critic.particles(obs[:1], action[:1], 200).mean().item()
                found.append((ends, critic.q(obs, action).mean().item()))
    mean = np.mean(found, axis=0)
    assert mean == pytest.approx(_self_loop(ratio, discounted=False, gamma=0.9), rel=tolerance)


def test_value_flows_weigh_a_batch_by_norms_of_the_pairs_they_were_learnt_with() -> None:
    batch, boot = _batch(1.0)
    now = torch.cat([batch.obs, batch.action], -1)
    after = torch.cat([batch.next_obs, boot.action], -1)

    def weights(mate: Tensor | None) -> Tensor:
        critic = _critic("vf", {"trunk": "batchnorm", "features": (8,)})
        assert isinstance(critic, VF)
        pairs = critic.joint(batch, boot) if mate is None else joint(critic._norms[1], mate)
        with pairs:
            before = critic._norms[1][0].mate
            found = critic._confidence(now, after)
            assert critic._norms[1][0].mate is before
        return found

    assert torch.equal(weights(None), weights(after))


def test_vdrl_heads_share_their_noise_so_equal_heads_are_one() -> None:
    critic, (batch, _) = _critic("vdrl", {}), _batch(1.0)
    assert isinstance(critic, VDRL)
    first, second = critic.online.children()
    second.load_state_dict(first.state_dict())
    single = _critic("vdrl", {"n_heads": 1})
    next(iter(single.online.children())).load_state_dict(first.state_dict())
    torch.testing.assert_close(*(c.q(batch.obs, batch.action) for c in (critic, single)))


def test_value_flow_networks_start_as_published() -> None:
    critic = VFConfig(hidden=(64, 64)).build(SPEC, Streams(0))
    for net in critic.online.children():
        linears = [m for m in net.modules() if isinstance(m, nn.Linear)]
        assert [(m.in_features, m.out_features) for m in linears] == [(7, 64), (64, 64), (64, 1)]
        for m in linears:
            reach = math.sqrt(6 / (m.in_features + m.out_features))
            assert 0.9 * reach < m.weight.abs().max().item() <= reach
            assert not m.bias.any()


@pytest.mark.parametrize("name", ["iqn", "vf", "vdrl"])
def test_the_actors_value_is_drawn_afresh_every_time(name: str) -> None:
    critic, (batch, _) = _critic(name, {}), _batch(1.0)
    first, second = (critic.q(batch.obs, batch.action) for _ in range(2))
    assert (first != second).all()


def test_iqn_and_vdrl_networks_have_the_specified_shapes() -> None:
    iqn, vdrl = IQNConfig().build(SPEC, Streams(0)), VDRLConfig().build(SPEC, Streams(0))
    expected: list[tuple[nn.Module, list[tuple[int, int]]]] = [
        (iqn, [(5, 256), (256, 256), (64, 256), (256, 256), (256, 1)]),
        (vdrl, [(16, 32), (32, 16), (22, 256), (256, 256), (256, 256), (256, 1)]),
        (DSACConfig().build(SPEC, Streams(0)), [(5, 256), (256, 256), (256, 256), (256, 2)]),
    ]
    for critic, shapes in expected:
        assert isinstance(critic, IQN | VDRL | DSAC)
        linears = [m for m in critic.online.modules() if isinstance(m, nn.Linear)]
        heads = 1 if isinstance(critic, DSAC) else 2
        assert [(m.in_features, m.out_features) for m in linears] == shapes * heads


def _self_loop(ratio: float, *, discounted: bool, gamma: float = 0.99) -> tuple[float, float]:
    """Return and value at t = 0 of flows v = (c(t) - z) / (1 - t), c on a grid; reward 1."""
    t = np.linspace(0, 0.9, 181)
    c = np.full_like(t, 1 / (1 - gamma))
    for _ in range(20_000):
        z = np.zeros_like(t)  # The mean of ten Euler steps from noise to each time.
        for k in range(10):
            z += t / 10 * (np.interp(k * t / 10, t, c) - z) / (1 - k * t / 10)
        y = 1 + gamma * c[-1]  # The last Euler step, from t = 0.9, ends at c.
        follow = 1 + gamma * c if discounted else 1 + c - (1 - gamma) * z
        new = (y + ratio * follow) / (1 + ratio)
        if np.abs(new - c).max() < 1e-9:
            break
        c = new
    return float(c[-1]), float(c[0])


def _critic(name: str, case: dict[str, Any]) -> Critic:
    """A small critic whose heads lie apart, and whose target is not its online network."""
    torch.manual_seed(1)
    config = dataclasses.replace(
        CRITICS[name](), **({"hidden": (8, 8)} | SMALL.get(name, {}) | case)
    )
    critic = config.build(SPEC, Streams(SEED))
    with torch.no_grad():
        critic.optimizer.flat.mul_(1.5)
        for p in critic.target.parameters():
            p.mul_(1.5).add_(0.2 * torch.randn(p.shape))
    return critic


def _batch(reward_scale: float) -> tuple[Batch, Bootstrap]:
    g = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g)

    discount = torch.tensor([0.9] * (B - 2) + [0.0] * 2)
    batch = Batch(draw(B, 3), draw(B, 2).tanh(), reward_scale * draw(B), discount, draw(B, 3))
    return batch, Bootstrap(draw(B, 2).tanh(), reward_scale / 3 * draw(B))


def _rows(
    batch: Batch, boot: Bootstrap
) -> Iterator[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]:
    """Of each transition: [s, a], [s', a'], and the map from next returns to targets."""
    for i in range(len(batch.reward)):
        r, discount = float(batch.reward[i]), float(batch.discount[i])
        cost = float(boot.entropy_cost[i])

        def back(z: Tensor, r: float = r, d: float = discount, e: float = cost) -> Tensor:
            return r + d * (z - e)

        x = torch.cat([batch.obs[i], batch.action[i]]).double()
        yield x, torch.cat([batch.next_obs[i], boot.action[i]]).double(), back


def _copies(net: nn.Module) -> Weights:
    return {k: p.detach().double().requires_grad_() for k, p in net.named_parameters()}


def _of_head(p: Tensor, h: int) -> Tensor:
    """One head's weight (out, in) or bias (out,) of a batched layer."""
    own = p.detach()[h]
    return (own.squeeze(1) if own.shape[1] == 1 else own).clone().requires_grad_()


def _linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def _mlp(w: Weights, prefix: str, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    n = sum(name.startswith(f"{prefix}layers.") for name in w) // 2
    for i in range(n):
        x = _linear(w, f"{prefix}layers.{i}", x if i == 0 else activation(x))
    return x


def _merged(of_heads: Tensor, rule: str) -> Tensor:
    return of_heads.mean() if rule == "mean" else of_heads.min()


def _mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x)))


def _quantile_huber(u: Tensor, tau: float, kappa: float) -> Tensor:
    size = abs(u)
    huber = u * u / 2 if size <= kappa else kappa * (size - kappa / 2)
    return abs(tau - (1.0 if u < 0 else 0.0)) * huber
