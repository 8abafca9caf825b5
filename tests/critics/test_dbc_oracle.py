"""DBC's loss, gradient, value and metrics against a slow float64 reading of the specification."""

import dataclasses
import math
import statistics
import time
from typing import Any

import pytest
import torch
from plain_dbc import Plain
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bridgerl.bench.ours import gemm_peak
from bridgerl.critics.dbc import DBC, DBCConfig
from bridgerl.streams import Streams
from bridgerl.training.process import tuned_process
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


def _critic(case: dict[str, Any], streams: Streams | None = None) -> DBC:
    """A critic whose atoms lie apart, and whose target is not its online network."""
    torch.manual_seed(1)
    critic = dataclasses.replace(SMALL, **case).build(SPEC, streams or Streams(SEED))
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
    slow = Plain(critic, SEED)
    streams = Streams(SEED)
    critic = _critic(case, streams)
    with streams.kept():
        metrics = critic.diagnostics(batch, boot)
    loss = critic.loss(batch, boot)
    expected, figures = slow.loss(batch, boot)
    torch.testing.assert_close(loss.double(), expected, rtol=2e-5, atol=1e-7)
    grads = torch.autograd.grad(loss, list(critic.online.parameters()))
    names = [k for k, _ in critic.online.named_parameters()]
    stacked = [[w[k] for w in slow.online] for k in names]
    wanted = torch.autograd.grad(expected, [p for row in stacked for p in row])
    flat, plain = (torch.cat([g.double().reshape(-1) for g in gs]) for gs in (grads, wanted))
    assert float((flat - plain).norm() / plain.norm()) < 1e-4
    for name, value in figures.items():
        assert metrics[name].item() == pytest.approx(value, rel=1e-3, abs=1e-4), name
    assert {k for k in metrics if "leak" in k} <= set(figures)  # What has no rows is not logged.


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_an_update_differentiates_has_the_gradient_of_the_slow_reading(
    case: dict[str, Any],
) -> None:
    critic, (batch, boot) = _critic(case), _batch()
    slow = Plain(critic, SEED)
    grads = torch.autograd.grad(critic.objective(batch, boot), list(critic.online.parameters()))
    names = [k for k, _ in critic.online.named_parameters()]
    stacked = [w[k] for k in names for w in slow.online]
    wanted = torch.autograd.grad(slow.loss(batch, boot)[0], stacked)
    flat, plain = (torch.cat([g.double().reshape(-1) for g in gs]) for gs in (grads, wanted))
    assert float((flat - plain).norm() / plain.norm()) < 1e-4


@pytest.mark.parametrize(
    "case",
    [{}, {"network": "factored", "z_scale": 7.0, "n_heads": 3}, {"stratified": True}],
    ids=str,
)
def test_values_and_their_slope_equal_the_slow_reading(case: dict[str, Any]) -> None:
    critic, (batch, _) = _critic({"schedule": "linear"} | case), _batch()
    slow = Plain(critic, SEED)
    action = batch.action.clone().requires_grad_()
    q = critic.q(batch.obs, action)
    (slope,) = torch.autograd.grad(q.sum(), action)
    theirs = batch.action.double().requires_grad_()
    x = torch.cat([batch.obs.double(), theirs], -1)
    tau = slow.pooled_levels(B, critic.config.n_actor, Streams(SEED)("actor_levels"))
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


@pytest.mark.slow
def test_the_papers_size_is_near_the_time_of_its_matrix_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Minutes, one thread; -s shows the figures. The plain one gets the closed form of xi."""
    rest = math.sinh(1.0)
    monkeypatch.setattr(Plain, "xi", lambda self, t: math.sinh(1 - t) / rest)
    spec, b = EnvSpec("HalfCheetah-v5", 17, 6), 256
    critic = DBCConfig().build(spec, Streams(0))
    g = torch.Generator().manual_seed(0)
    obs, next_obs = (torch.randn(b, 17, generator=g) for _ in range(2))
    action, next_action = (torch.randn(b, 6, generator=g).tanh() for _ in range(2))
    batch = Batch(obs, action, torch.randn(b, generator=g), torch.full((b,), 0.99), next_obs)
    boot = Bootstrap(next_action, torch.zeros(b))
    plain = Plain(critic, 0, torch.float32)
    weights = [w for head in plain.online for w in head.values()]

    def slow() -> None:
        loss, _ = plain.loss(batch, boot)
        torch.autograd.grad(loss, weights)

    def fast() -> None:
        torch.autograd.grad(critic.objective(batch, boot), list(critic.online.parameters()))

    with tuned_process(1), FlopCounterMode(display=False) as counter:
        fast()
    with tuned_process(1):
        spent = {name: [] for name in ("slow", "fast")}
        for _ in range(3):
            for name, call in (("slow", slow), ("fast", fast)):
                started = time.perf_counter()
                call()
                spent[name].append(time.perf_counter() - started)
        peak = gemm_peak()
    ratio = statistics.median(a / b for a, b in zip(spent["slow"], spent["fast"], strict=True))
    floor = counter.get_total_flops() / 1e9 / peak
    over = statistics.median(spent["fast"]) / floor
    print(
        f"\nplain {spent['slow']}, fast {spent['fast']}: {ratio:.2f}x; GEMM floor {floor:.2f} s, "
        f"{over:.2f} of it at {peak:.0f} GFLOP/s"
    )
    assert over < 1.4
    assert ratio > 1.1
