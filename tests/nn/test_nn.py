"""Network parts against slow oracles: Adam with clip and guard, Polyak, the tanh-Gaussian."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from bridgerl import resolve
from bridgerl.agent import build_agent
from bridgerl.nn.flat import Flat, GuardedAdam, polyak_
from bridgerl.nn.heads import Heads
from bridgerl.nn.mlp import MLP
from bridgerl.nn.squash import tanh_normal
from bridgerl.streams import Streams
from bridgerl.types import EnvSpec


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _loss(net: nn.Module, x: Tensor, scale: float = 1.0) -> Tensor:
    return scale * net(x).square().mean()


@pytest.mark.parametrize("clip", [None, 1e-3, 1e6])
def test_guarded_adam_equals_torch_adam_with_norm_clip(clip: float | None) -> None:
    torch.manual_seed(0)
    ours = MLP((5, 8, 3))
    theirs = copy.deepcopy(ours)
    guarded = GuardedAdam(ours.parameters(), lr=1e-2, eps=1e-5, clip=clip)
    plain = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for step in range(20):
        x = _draw(16, 5, seed=step)
        norm = guarded.step(_loss(ours, x))
        plain.zero_grad()
        _loss(theirs, x).backward()
        limit = math.inf if clip is None else clip
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), limit)
        torch.testing.assert_close(norm, expected)
        plain.step()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9), (0.0, 0.0)])
def test_guarded_adam_equals_torch_adamw(betas: tuple[float, float], weight_decay: float) -> None:
    torch.manual_seed(0)
    ours = MLP((5, 8, 3))
    theirs = copy.deepcopy(ours)
    guarded = GuardedAdam(
        ours.parameters(), lr=1e-2, eps=1e-5, betas=betas, weight_decay=weight_decay
    )
    settings = {"betas": betas, "weight_decay": weight_decay}
    plain = torch.optim.AdamW(theirs.parameters(), lr=1e-2, eps=1e-5, **settings)
    for step in range(20):
        x = _draw(16, 5, seed=step)
        guarded.step(_loss(ours, x))
        plain.zero_grad()
        _loss(theirs, x).backward()
        plain.step()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_weight_decay_shrinks_biases_and_weights_alike_where_the_gradient_is_zero() -> None:
    net = MLP((5, 8, 3))
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = GuardedAdam(net.parameters(), lr=1e-2, weight_decay=0.5)
    optimizer.step(_loss(net, _draw(16, 5), scale=0.0))
    for p, value in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), (1 - 1e-2 * 0.5) * value)


@pytest.mark.parametrize("pair", ["sac+cdq", "td3+dbc", "qvpo+vf"])
def test_actor_and_critic_learn_with_the_betas_and_decay_of_their_own_config(pair: str) -> None:
    config = resolve("toy", *pair.split("+"))
    actor = replace(config.actor, beta1=0.1, beta2=0.2, weight_decay=0.3)
    critic = replace(config.critic, beta1=0.4, beta2=0.5, weight_decay=0.6)
    agent = build_agent(actor, critic, EnvSpec("toy", 3, 2), Streams(0))
    found = {name: m for name, m in agent.named_modules() if isinstance(m, GuardedAdam)}
    settings = {name: (*m.betas, m.weight_decay) for name, m in found.items()}
    temperature = {"actor.temperature.optimizer": (0.9, 0.999, 0.0)} if pair[:3] == "sac" else {}
    wanted = {"actor.optimizer": (0.1, 0.2, 0.3), "critic.optimizer": (0.4, 0.5, 0.6)}
    assert settings == wanted | temperature


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_non_finite_update_changes_neither_weights_nor_moments(poison: float) -> None:
    net = MLP((5, 8, 3))
    optimizer = GuardedAdam(net.parameters(), lr=1e-2, clip=1.0, weight_decay=0.1)
    optimizer.step(_loss(net, _draw(16, 5)))
    before = {k: v.clone() for k, v in optimizer.state_dict().items()}
    weights = optimizer.flat.clone()
    optimizer.step(_loss(net, _draw(16, 5), scale=poison))
    assert torch.equal(optimizer.flat, weights)
    for name in ("exp_avg", "exp_avg_sq", "steps"):
        assert torch.equal(optimizer.state_dict()[name], before[name]), name


def test_worst_streak_counts_lost_updates_in_a_row() -> None:
    net = MLP((5, 8, 3))
    optimizer = GuardedAdam(net.parameters(), lr=1e-2)
    for bad in (1, 1, 0, 1, 0, 1, 1, 0):
        optimizer.step(_loss(net, _draw(16, 5), scale=math.nan if bad else 1.0))
    assert float(optimizer.worst_streak) == 2
    for _ in range(3):
        optimizer.step(_loss(net, _draw(16, 5), scale=math.nan))
    assert float(optimizer.worst_streak) == 3


def test_flat_vector_and_parameters_are_the_same_memory() -> None:
    net = Heads(2, (4, 8, 1))
    values = [p.clone() for p in net.parameters()]
    flat = Flat(net.parameters()).vector
    for p, value in zip(net.parameters(), values, strict=True):
        assert torch.equal(p, value)
    flat.zero_()
    assert all(not p.any() for p in net.parameters())
    assert not net(_draw(3, 4)).any()


@pytest.mark.parametrize("rate", [0.0, 0.005, 1.0])
def test_polyak_is_the_convex_combination(rate: float) -> None:
    target, online = _draw(9, seed=1), _draw(9, seed=2)
    expected = (1 - rate) * target + rate * online
    polyak_(target, online, rate)
    torch.testing.assert_close(target, expected)


def test_heads_are_independent_networks_on_one_input() -> None:
    heads = Heads(3, (4, 8, 2))
    x = _draw(7, 4)
    nets = [MLP((4, 8, 2)) for _ in range(3)]
    for h, net in enumerate(nets):
        for mine, theirs in zip(heads.parameters(), net.parameters(), strict=True):
            theirs.data = mine[h].detach().reshape(theirs.shape)
    expected = torch.stack([net(x) for net in nets], 1)
    torch.testing.assert_close(heads(x), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(heads(x, 2), expected[:, :2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("u", [-8.0, -2.0, 0.0, 0.3, 3.0, 8.0])
def test_tanh_normal_log_prob_is_the_change_of_variables(u: float) -> None:
    """log N(u) - log(1 - tanh(u)^2), in float64 with 1 - tanh^2 = 4 / (e^u + e^-u)^2."""
    mean, log_std = 0.4, -0.7
    noise = (u - mean) / math.exp(log_std)
    args = (torch.tensor([[mean]]), torch.tensor([[log_std]]), torch.tensor([[noise]]))
    action, log_prob = tanh_normal(*args)
    log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    expected = log_normal - math.log(4.0) + 2 * math.log(math.exp(u) + math.exp(-u))
    assert float(action) == pytest.approx(math.tanh(u), rel=1e-6, abs=1e-7)
    assert float(log_prob) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_tanh_normal_gradient_stays_finite_where_actions_saturate() -> None:
    mean = torch.tensor([[8.0, -50.0]], requires_grad=True)
    _, log_prob = tanh_normal(mean, torch.zeros(1, 2), torch.ones(1, 2))
    log_prob.sum().backward()
    assert mean.grad is not None
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(mean.grad).all()
