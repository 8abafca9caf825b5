"""QVPO against slow float64 readings of the specification."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bridgerl.actors.qvpo import QVPO, QVPOConfig
from bridgerl.agent import Agent, build_agent
from bridgerl.critics import CRITICS
from bridgerl.critics.cdq import CDQConfig
from bridgerl.nn.denoiser import Denoiser, StepEmbedding
from bridgerl.nn.diffusion import Diffusion, cosine_betas
from bridgerl.streams import Streams
from bridgerl.types import Batch, EnvSpec

SPEC = EnvSpec("toy", 3, 2)
B, SEED, STEPS = 4, 3, 20
SMALL = QVPOConfig(hidden=(8, 8), n_embed=6, n_train=5, n_uniform=3, n_explore=2, n_play=6)
BETAS = """
0.00799 0.02008 0.03225 0.04468 0.05752 0.07096 0.08521 0.10055 0.11730 0.13592
0.15700 0.18136 0.21021 0.24537 0.28973 0.34814 0.42943 0.55102 0.74848 0.999
"""
Weights = dict[str, Tensor]


def test_schedule_is_the_specified_table() -> None:
    betas = [float(word) for word in BETAS.split()]
    assert cosine_betas(STEPS).tolist() == pytest.approx(betas, abs=5.1e-6)
    last = Diffusion(STEPS).signal[-1].double() ** 2
    assert last.item() == pytest.approx(6.06e-6, rel=1e-3)


def test_noised_data_of_unit_variance_keep_it() -> None:
    diffusion, g = Diffusion(STEPS), torch.Generator().manual_seed(0)
    x0 = math.sqrt(12) * (torch.rand((20_000, 1), generator=g) - 0.5)
    for k in range(STEPS):
        eps = torch.randn(x0.shape, generator=g)
        x = diffusion.diffuse(x0, eps, torch.full((20_000,), k))
        assert x.var().item() == pytest.approx(1.0, abs=0.04)
    total = diffusion.signal.double() ** 2 + diffusion.noise.double() ** 2
    torch.testing.assert_close(total, torch.ones(STEPS).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("limit", [1.0, math.inf])
@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_denoising_takes_the_specified_steps(limit: float, ratio: float) -> None:
    noise = torch.randn((STEPS, 7, 2), generator=torch.Generator().manual_seed(1))

    def predict(x: Tensor, k: int) -> Tensor:
        return torch.tanh(x - k / 10)

    limits = None if limit == math.inf else (-limit, limit)
    ours = Diffusion(STEPS).denoise(predict, noise, limits=limits, noise_ratio=ratio)
    expected = _denoise(predict, noise.double(), limit, ratio)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4)
    assert limit < math.inf or float(expected.abs().max()) > 2  # Nothing clamps such a walk.


def test_steps_are_embedded_by_the_specified_waves() -> None:
    net = Denoiser(2, 3, (8,), StepEmbedding(STEPS, 32, 256))
    for t in range(STEPS):
        angles = [t * math.exp(-j * math.log(10000) / 15) for j in range(16)]
        waves = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        assert net.embed.waves[t].tolist() == pytest.approx(waves, abs=1e-5)


def test_network_has_the_specified_shape_and_start() -> None:
    torch.manual_seed(0)
    actor = QVPOConfig().build(SPEC, Streams(0))
    layers = [m for m in actor.net.modules() if isinstance(m, nn.Linear)]
    shapes = [(32, 256), (256, 32), (2 + 32 + 3, 256), (256, 256), (256, 256), (256, 2)]
    assert [(m.in_features, m.out_features) for m in layers] == shapes
    for layer in layers:
        std = 0.5 / math.sqrt(layer.in_features)
        n = layer.weight.numel()
        assert layer.weight.std().item() == pytest.approx(std, rel=4 / math.sqrt(2 * n))
        assert n < 5000 or layer.weight.abs().max().item() > 3 * std  # Not truncated.
        assert not layer.bias.any()


def test_defaults_are_the_papers() -> None:
    c = QVPOConfig()
    assert (c.lr, c.adam_eps, c.grad_clip, c.polyak, c.delay) == (1e-4, 1e-5, 2.0, 0.005, 1)
    assert (c.n_explore, c.n_target, c.n_play, c.n_train, c.n_uniform) == (4, 4, 32, 64, 10)
    assert (c.diffusion_steps, c.n_embed, c.noise_ratio) == (20, 32, 1.0)
    assert (c.hidden, c.entropy, c.entropy_end) == ((256,) * 3, 0.02, 0.002)


@pytest.mark.parametrize("case", [{}, {"n_uniform": 0}, {"entropy": 0.7, "noise_ratio": 0.5}])
def test_loss_and_gradient_equal_the_slow_reading(case: dict[str, Any]) -> None:
    actor, batch, c = _actor(case), _batch(), dataclasses.replace(SMALL, **case)
    loss, metrics = actor.loss(batch, _value)
    streams, w = Streams(SEED), _copies(actor.net)
    candidates = _actions(w, batch.obs, c.n_train, streams("policy_noise"), ratio=c.noise_ratio)
    g = streams("policy_diffusion")
    uniform = 2 * torch.rand((B, c.n_uniform, 2), generator=g).double() - 1
    k = torch.randint(STEPS, (B, 1 + c.n_uniform), generator=g).tolist()
    eps = torch.randn((B, 1 + c.n_uniform, 2), generator=g).double()
    _, bar = _schedule()
    total, advantages = torch.zeros(()).double(), []
    for i, s in enumerate(batch.obs.double()):
        values = [_value(s[None], a[None]).item() for a in candidates[i]]
        best = candidates[i][values.index(max(values))]
        advantages.append(max(values) - sum(values) / len(values))
        rows = [(best, advantages[-1])] + [(u, c.entropy * advantages[-1]) for u in uniform[i]]
        for j, (action, weight) in enumerate(rows):
            a = bar[k[i][j]]
            x = a**0.5 * action + (1 - a) ** 0.5 * eps[i, j]
            total = total + weight * ((_eps(w, x, k[i][j], s) - eps[i, j]) ** 2).sum()
    expected = total / (B * (1 + c.n_uniform) * 2)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-7)
    assert metrics["actor/advantage"].item() == pytest.approx(sum(advantages) / B, rel=1e-4)
    ours = torch.autograd.grad(loss, list(actor.net.parameters()))
    theirs = torch.autograd.grad(expected, list(w.values()))
    for mine, other in zip(ours, theirs, strict=True):
        assert float((mine - other).norm()) <= 1e-3 * float(other.norm())


def test_uniform_actions_carry_the_weight_of_their_own_state() -> None:
    # A state of no advantage teaches nothing, neither by its best action nor by uniform ones.
    actor, batch = _actor({"entropy": 5.0}), _batch()
    flat = torch.tensor([True, False, False, True]).repeat_interleave(SMALL.n_train)
    steep = lambda obs, action: torch.where(flat, 1.0, _value(obs, action))  # noqa: E731
    obs = batch.obs.clone().requires_grad_()
    loss, _ = actor.loss(batch._replace(obs=obs), steep)
    (grad,) = torch.autograd.grad(loss, obs)
    assert grad.any(1).tolist() == [False, True, True, False]


@pytest.mark.parametrize("start", [0.02, 0.001, 0.5])
def test_entropy_weight_falls_to_its_floor(start: float) -> None:
    actor = _actor({"entropy": start, "entropy_updates": 100})
    for step in range(0, 131, 10):
        actor.n_updates.fill_(step)
        expected = min(start, max(0.002, start * (1 - step / 100)))
        weight = actor.loss(_batch(), _value)[1]["actor/entropy_weight"]
        assert weight.item() == pytest.approx(expected, rel=1e-5)


def test_entropy_weight_is_refreshed_after_every_update() -> None:
    actor = _actor({"entropy_updates": 10})
    weights = [actor.update(_batch(), _value)["actor/entropy_weight"].item() for _ in range(3)]
    assert weights == pytest.approx([0.02, 0.018, 0.016])


@pytest.mark.parametrize(("explore", "n"), [(True, 2), (False, 6)])
def test_acting_returns_the_best_candidate_of_the_online_policy(explore: bool, n: int) -> None:
    actor, obs = _actor({}), _batch().obs
    action = actor.act(obs, _value, explore=explore, generator=torch.Generator().manual_seed(8))
    w, g = _copies(actor.net), torch.Generator().manual_seed(8)
    torch.testing.assert_close(
        action.double(), _best(w, obs, n, g, shared=not explore), rtol=1e-3, atol=1e-4
    )


def test_bootstrap_takes_the_best_candidate_of_the_target_policy() -> None:
    actor, obs = _actor({}), _batch().next_obs
    with torch.no_grad():
        boot = actor.bootstrap(obs, _value)
    g = Streams(SEED)("target_noise")
    best = _best(_copies(actor.target_net), obs, SMALL.n_target, g)
    torch.testing.assert_close(boot.action.double(), best, rtol=1e-3, atol=1e-4)
    assert not boot.entropy_cost.any()


def test_actions_stay_within_bounds() -> None:
    actor, obs = _actor({"n_play": 64}), 100 * torch.randn(50, 3)
    with torch.no_grad():
        actor.optimizer.flat.mul_(20)
    for n in range(3):
        g = torch.Generator().manual_seed(n)
        assert actor.act(obs, _value, explore=False, generator=g).abs().max() <= 1


def test_target_policy_follows_every_update() -> None:
    actor, batch = _actor({"polyak": 0.25}), _batch()
    for _ in range(3):
        before = actor.follower.flat.clone()
        actor.update(batch, _value)
        followed = 0.75 * before + 0.25 * actor.optimizer.flat
        torch.testing.assert_close(actor.follower.flat, followed)
        held = torch.cat([p.reshape(-1) for p in actor.target_net.parameters()])
        assert torch.equal(held, actor.follower.flat)


@pytest.mark.parametrize("name", list(CRITICS))
def test_candidates_are_ranked_by_common_random_numbers(name: str) -> None:
    critic = _agent(name).critic
    batch = _batch()
    order = torch.tensor([3, 1, 0, 2, 1, 3, 3, 0])
    for target in (False, True):
        plain = critic.q_rank(batch.obs, batch.action, target=target)
        mixed = critic.q_rank(batch.obs[order], batch.action[order], target=target)
        torch.testing.assert_close(mixed, plain[order], rtol=1e-4, atol=1e-5)
        alone = critic.q_rank(batch.obs[2:3], batch.action[2:3], target=target)
        torch.testing.assert_close(alone, plain[2:3], rtol=1e-4, atol=1e-5)
        assert plain.unique().numel() == B


@pytest.mark.parametrize("name", list(CRITICS))
def test_no_gradient_reaches_the_critic(name: str) -> None:
    agent, batch = _agent(name), _batch()
    loss, _ = agent.actor.loss(batch, agent.critic.q_rank)
    grads = torch.autograd.grad(loss, list(agent.critic.online.parameters()), allow_unused=True)
    assert all(g is None for g in grads)
    before = agent.critic.optimizer.flat.clone()
    agent.actor.update(batch, agent.critic.q_rank)
    assert torch.equal(before, agent.critic.optimizer.flat)


def test_agent_bootstraps_under_the_target_critic_and_trains_under_the_online_one() -> None:
    agent, batch = _agent("cdq"), _batch()
    calls: list[bool] = []
    rank = agent.critic.q_rank

    def spy(obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        calls.append(target)
        return rank(obs, action, target=target)

    agent.critic.q_rank = spy
    spied = Agent(agent.actor, agent.critic, Streams(0), actor_every=1, target_every=1)
    spied.update(batch)
    assert calls == [True, False]
    for explore in (True, False):
        spied.act(batch.obs[0].numpy(), explore=explore, generator=torch.Generator())
    assert calls == [True, False, False, False]


def _agent(critic: str) -> Agent:
    config = dataclasses.replace(CRITICS[critic](), hidden=(8, 8))
    agent = build_agent(SMALL, config, SPEC, Streams(SEED))
    with torch.no_grad():
        for p in agent.critic.target.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(2)))
    return agent


def _actor(case: dict[str, Any]) -> QVPO:
    """An actor whose weights matter, and whose target is not its online network."""
    actor = build_agent(
        dataclasses.replace(SMALL, **case), CDQConfig(hidden=(4,)), SPEC, Streams(SEED)
    ).actor
    assert isinstance(actor, QVPO)
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for flat in (actor.optimizer.flat, actor.follower.flat):
            flat.mul_(2).add_(0.2 * torch.randn(flat.shape, generator=g))
    return actor


def _batch() -> Batch:
    g = torch.Generator().manual_seed(5)
    shapes = [(B, 3), (B, 2), (B,), (B,), (B, 3)]
    obs, action, reward, _, after = (torch.randn(s, generator=g) for s in shapes)
    return Batch(obs, action.tanh(), reward, torch.full((B,), 0.9), after)


def _value(obs: Tensor, action: Tensor) -> Tensor:
    """Any smooth value of state and action: (b,)."""
    return 5 * torch.sin(3 * action[:, 0] + obs[:, 0]) - 2 * action[:, 1] * obs[:, 1]


def _schedule() -> tuple[list[float], list[float]]:
    """Betas, and alpha-bars of the clipped betas."""
    f = [math.cos((k / STEPS + 0.008) / 1.008 * math.pi / 2) ** 2 for k in range(STEPS + 1)]
    beta = [min(max(1 - f[k + 1] / f[k], 0.0), 0.999) for k in range(STEPS)]
    return beta, [math.prod(1 - b for b in beta[: k + 1]) for k in range(STEPS)]


def _denoise(predict: Any, noise: Tensor, limit: float, ratio: float) -> Tensor:
    """The reverse walk of one or more points from noise (T, ...)."""
    beta, bar = _schedule()
    x = noise[0]
    for t in range(STEPS - 1, -1, -1):
        before = bar[t - 1] if t > 0 else 1.0
        x0 = x / math.sqrt(bar[t]) - math.sqrt(1 / bar[t] - 1) * predict(x, t)
        x0 = torch.clamp(x0, -limit, limit)
        x = (
            beta[t] * math.sqrt(before) / (1 - bar[t]) * x0
            + (1 - before) * math.sqrt(1 - beta[t]) / (1 - bar[t]) * x
        )
        if t > 0:
            std = math.sqrt(beta[t] * (1 - before) / (1 - bar[t]))
            x = x + ratio * std * noise[STEPS - t]
    return x


def _eps(w: Weights, x: Tensor, k: int, s: Tensor) -> Tensor:
    """The network on one point x (a,), step by step."""
    half = SMALL.n_embed // 2
    angles = [k * math.exp(-j * math.log(10000) / (half - 1)) for j in range(half)]
    waves = torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles]).double()
    temb = _linear(w, "embed.mlp.layers.1", _mish(_linear(w, "embed.mlp.layers.0", waves)))
    h = _mish(_linear(w, "first", torch.cat([x, temb, s])))
    return _linear(w, "rest.layers.1", _mish(_linear(w, "rest.layers.0", h)))


def _actions(
    w: Weights,
    obs: Tensor,
    n: int,
    generator: torch.Generator,
    *,
    ratio: float = 1.0,
    shared: bool = False,
) -> list[list[Tensor]]:
    """N actions per state."""
    rows = 1 if shared else len(obs)
    noise = torch.randn((STEPS, rows, n, 2), generator=generator).double()
    noise = noise.expand(-1, len(obs), -1, -1)
    with torch.no_grad():
        return [
            [
                _denoise(lambda x, k, s=s: _eps(w, x, k, s), noise[:, i, j], 1.0, ratio)
                for j in range(n)
            ]
            for i, s in enumerate(obs.double())
        ]


def _best(
    w: Weights, obs: Tensor, n: int, generator: torch.Generator, *, shared: bool = False
) -> Tensor:
    states = obs.double()
    candidates = _actions(w, obs, n, generator, shared=shared)
    best = [
        max(mine, key=lambda a, s=s: _value(s[None], a[None]).item())
        for s, mine in zip(states, candidates, strict=True)
    ]
    return torch.stack(best)


def _copies(net: nn.Module) -> Weights:
    return {k: p.detach().double().requires_grad_() for k, p in net.named_parameters()}


def _linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def _mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.log(1 + torch.exp(x)))
