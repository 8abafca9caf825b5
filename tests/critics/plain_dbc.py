"""DBC read plainly: all inputs side by side, every pair of atoms, one head after the other.

The oracle of the tests, and what the fast one is measured against at the paper's size.
"""

import itertools
import math

import torch
from torch import Tensor, nn

from bridgerl.critics.dbc import DBC
from bridgerl.ops.levels import draw_levels
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap

Weights = dict[str, Tensor]


class Plain:
    """The same critic, one plain formula after the other, on copies of the weights."""

    def __init__(self, critic: DBC, seed: int, dtype: torch.dtype = torch.float64) -> None:
        self.c, self.seed, self.dtype = critic.config, seed, dtype
        self.online = _copies(critic.online, self.c.n_heads, dtype)
        self.target = _copies(critic.target, self.c.n_heads, dtype)

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

    def endpoint(self, w: Weights, x: Tensor, tau: Tensor, t: Tensor, z: Tensor) -> Tensor:
        """One network on all its inputs side by side: (b, k)."""
        c = self.c

        def embed(name: str, v: Tensor) -> Tensor:
            inputs = [torch.cos(math.pi * i * v) for i in range(1, c.n_embed + 1)]
            if c.network == "factored" and name == "embed_tau":
                v = v.clamp(1e-5, 1 - 1e-5)
                inputs += [-torch.log(v) / 2, -torch.log(1 - v) / 2]
            return torch.relu(_affine(w, f"{name}.project", torch.stack(inputs, -1)))

        sizes, bias = c.hidden, "from_features.bias"
        if c.network == "factored":
            sizes, bias = c.particle, "from_tau.bias"
            for i in range(len(c.hidden)):
                x = torch.relu(_affine(w, f"trunk.layers.{i}", x))
        inputs = {
            "features": x[:, None].expand(*z.shape, -1),
            "tau": embed("embed_tau", tau)[..., : c.n_embed],
            "t": embed("embed_t", t).expand(*z.shape, -1),
            "z": (z / c.z_scale)[..., None],
        }
        if c.network == "factored":
            inputs["product"] = x[:, None] * embed("embed_tau", tau)[..., c.n_embed :]
        n = sizes[0]
        weight = torch.cat([w[f"from_{name}.weight"][:n] for name in inputs], 1)
        h = torch.relu(torch.cat(list(inputs.values()), -1) @ weight.T + w[bias][:n, 0])
        for i in range(len(sizes)):
            h = _affine(w, f"rest.{i}", h)
            h = torch.relu(h) if i < len(sizes) - 1 else h
        end = h[..., 0]
        if c.network == "factored":  # A row beside the network, of what does not move on the way.
            direct = [inputs[k] @ w[f"from_{k}.weight"][n] for k in ("features", "tau", "product")]
            end = end + sum(direct) + w[bias][n, 0]
        return c.z_scale * end

    def walk(self, w: Weights, x: Tensor, tau: Tensor, steps: int) -> Tensor:
        """So many of the M steps from tau: (b, k)."""
        z, m = tau, self.c.bridge_steps
        for i in range(steps):
            t = torch.full((len(x), 1), i / m).to(self.dtype)
            end = self.endpoint(w, x, tau, t, z)
            z = z + (self.xi(i / m) - self.xi((i + 1) / m)) * (end - tau)
        return z

    def targets(self, batch: Batch, boot: Bootstrap, tau: list[Tensor]) -> Tensor:
        """Ascending y: (b, kept)."""
        x, m = torch.cat([batch.next_obs, boot.action], -1).to(self.dtype), self.c.bridge_steps
        pairs = zip(self.target, tau, strict=True)
        atoms = torch.cat([self.walk(w, x, own, m) for w, own in pairs], 1)
        kept = atoms.shape[1] - round(self.c.drop * atoms.shape[1])
        z = atoms.sort(1).values[:, :kept] - boot.entropy_cost.to(self.dtype)[:, None]
        return batch.reward.to(self.dtype)[:, None] + batch.discount.to(self.dtype)[:, None] * z

    def loss(self, batch: Batch, boot: Bootstrap) -> tuple[Tensor, dict[str, float]]:
        """The loss, with a graph to the weights' copies, and the metrics."""
        c, streams, b = self.c, Streams(self.seed), len(batch.reward)
        levels, times = streams("quantile_levels"), streams("bridge_time")
        m = c.bridge_steps
        with torch.no_grad():
            y = self.targets(batch, boot, self.pooled_levels(b, c.n_target, levels))
            tau = self.levels(b, c.n_online, levels)
            n = y.shape[1]
            index = [[min(max(math.ceil(u * n), 1), n) - 1 for u in row] for row in tau.tolist()]
            label = y.gather(1, torch.tensor(index))
            step = 0
            if c.bridge_input == "path":
                step = int(torch.randint(min(1, m - 1), m, (1,), generator=streams("bridge_step")))
                t = torch.full((b, 1), step / m).to(self.dtype)
            else:
                t = torch.rand((b, 1), generator=times).clamp(min=1e-3).to(self.dtype)
            share = torch.tensor([[self.xi(float(u))] for u in t])
        x = torch.cat([batch.obs, batch.action], -1).to(self.dtype)
        total = torch.zeros(()).to(self.dtype)
        zeros, leaks = [], []
        for w in self.online:
            at_zero = self.endpoint(w, x, tau, torch.zeros(b, 1).to(self.dtype), tau)
            goal = {"label": label, "self": at_zero.detach()}.get(c.bridge_input)
            place = self.walk(w, x, tau, step).detach()
            if goal is not None:
                place = share * tau + (1 - share) * goal
            # Where training stands is a constant of the regression.
            later = self.endpoint(w, x, tau, t, place.detach())
            total = total + 0.5 * self.cost(at_zero, y, tau, label)
            total = total + 0.5 * self.cost(later, y, tau, label)
            zeros.append(at_zero.detach())
            leaks.append((later - (place - share * tau) / (1 - share)).abs().mean(1).detach())
        return total / c.n_heads, _metrics(torch.stack(zeros, 1), torch.stack(leaks, 1), t[:, 0], y)

    def cost(self, pred: Tensor, y: Tensor, tau: Tensor, label: Tensor) -> Tensor:
        """Quantile and anchor loss of one head at one time, pair by pair."""
        c, mean = self.c, self.c.reduction == "mean"
        u = y[:, None, :] - pred[..., None]
        quantile = (tau[..., None] - (u < 0).to(self.dtype)).abs() * _huber(u, c.kappa)
        anchor = _huber(pred - label, c.kappa)
        sums = [
            v.mean((-1, -2)) if mean else v.sum((-1, -2)) for v in (quantile, anchor[..., None])
        ]
        return (c.quantile_weight * sums[0] + c.anchor_weight * sums[1]).mean()

    def levels(self, b: int, k: int, generator: torch.Generator) -> Tensor:
        """The critic's draw, one row per transition."""
        rows = 1 if self.c.shared_levels else b
        tau = draw_levels((rows, k), generator, stratified=self.c.stratified)
        return tau.sort(-1).values.to(self.dtype).expand(b, -1)

    def pooled_levels(self, b: int, k: int, generator: torch.Generator) -> list[Tensor]:
        """Every head's own: strata dealt out in a drawn order, independent levels for all alike."""
        if not self.c.stratified:
            return [self.levels(b, k, generator)] * self.c.n_heads
        tau = self.levels(b, k * self.c.n_heads, generator)
        order = torch.rand(self.c.n_heads, generator=generator).argsort().tolist()
        return [tau[:, h :: self.c.n_heads] for h in order]

    def mean(self, nets: list[Weights], x: Tensor, tau: list[Tensor]) -> Tensor:
        """The mean atom of some heads: (b,)."""
        steps = self.c.bridge_steps
        walks = [self.walk(w, x, own, steps) for w, own in zip(nets, tau, strict=True)]
        return torch.stack(walks, 1).mean((1, 2))


def _copies(net: nn.Module, n_heads: int, dtype: torch.dtype) -> list[Weights]:
    """Every head's own weights."""
    params = [(k, p.detach().to(dtype)) for k, p in net.named_parameters()]
    return [{k: p[h].clone().requires_grad_() for k, p in params} for h in range(n_heads)]


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
