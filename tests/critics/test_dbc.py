"""The Diffusion Bridge Critic: its network, its walk, its losses, its refusals."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from bridgerl.critics.dbc import DBC, DBCConfig
from bridgerl.errors import UserError
from bridgerl.nn.endpoint import Context
from bridgerl.ops.levels import Levels
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec

SPEC = EnvSpec("toy", 3, 2)
SMALL = DBCConfig(hidden=(16, 16), particle=(8,), n_target=12, n_online=8, n_actor=6, drop=0.0)


def _dbc(**changes: Any) -> DBC:
    torch.manual_seed(0)
    return dataclasses.replace(SMALL, **changes).build(SPEC, Streams(0))


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _batch(n: int = 32) -> tuple[Batch, Bootstrap]:
    obs, action, next_obs = _draw(n, 3), _draw(n, 2, seed=1).tanh(), _draw(n, 3, seed=2)
    batch = Batch(obs, action, _draw(n, seed=3), torch.full((n,), 0.9), next_obs)
    return batch, Bootstrap(_draw(n, 2, seed=4).tanh(), torch.zeros(n))


@pytest.mark.parametrize("network", ["mlp", "factored"])
def test_one_step_is_the_prediction_at_the_level_itself(network: str) -> None:
    critic = _dbc(network=network, bridge_steps=1)
    batch, _ = _batch(4)
    tau = torch.rand(4, 5)
    net = critic._net(target=False)
    context = net.begin(torch.cat([batch.obs, batch.action], -1), tau[:, None])
    assert torch.equal(context.start, tau[:, None].expand(-1, 2, -1))
    heads = net(context, net.at(torch.zeros(1)), context.start)
    torch.testing.assert_close(critic.quantiles(batch.obs, batch.action, tau), heads.mean(1))


def test_q_back_propagates_through_every_step_to_the_action() -> None:
    """Against finite differences in the action, levels held fixed."""
    critic = _dbc(bridge_steps=5)
    batch, _ = _batch(4)
    tau = torch.rand(4, 1, 6)

    def mean(action: Tensor) -> Tensor:
        return critic._atoms(batch.obs, action, tau, target=False).mean((1, 2))

    action = batch.action.clone().requires_grad_()
    (slope,) = torch.autograd.grad(mean(action).sum(), action)
    step = 1e-2
    for i in range(2):
        nudge = torch.zeros(2)
        nudge[i] = step
        ends = [mean(batch.action + s * nudge) for s in (-1, 1)]
        difference = (ends[1] - ends[0]) / (2 * step)
        torch.testing.assert_close(slope[:, i], difference.detach(), rtol=0.05, atol=2e-3)


def test_particles_are_ascending_levels_and_draw_nothing() -> None:
    streams = Streams(0)
    critic = SMALL.build(SPEC, streams)
    batch, _ = _batch(4)
    states = streams.state()
    midpoints = (torch.arange(8) + 0.5)[None] / 8
    particles = critic.particles(batch.obs, batch.action, 8)
    assert torch.equal(particles, critic.quantiles(batch.obs, batch.action, midpoints))
    assert all(torch.equal(states[k], v) for k, v in streams.state().items())


@pytest.mark.parametrize("bridge_input", ["label", "self", "path"])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_every_kind_of_training_lowers_its_loss(
    bridge_input: str, steps: int, schedule: str
) -> None:
    critic = _dbc(bridge_input=bridge_input, bridge_steps=steps, schedule=schedule, lr=3e-3)
    batch, boot = _batch()
    losses = []
    for _ in range(60):
        losses.append(critic.loss(batch, boot).item())
        critic.update(batch, boot)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_sum_reduction_is_the_mean_times_the_counts() -> None:
    batch, boot = _batch()
    mean = _dbc().diagnostics(batch, boot)
    total = _dbc(reduction="sum").diagnostics(batch, boot)
    pairs = SMALL.n_online * SMALL.n_target * SMALL.n_heads
    torch.testing.assert_close(total["critic/quantile_loss"], pairs * mean["critic/quantile_loss"])
    expected = SMALL.n_online * mean["critic/anchor_loss"]
    torch.testing.assert_close(total["critic/anchor_loss"], expected)


def test_dropping_lowers_the_target() -> None:
    batch, boot = _batch()
    kept = [_dbc(drop=d).diagnostics(batch, boot)["critic/target"] for d in (0.0, 0.25, 0.5)]
    assert kept[0] > kept[1] > kept[2]


def test_a_two_point_return_is_learnt_with_both_its_points() -> None:
    critic = _dbc(
        network="factored", bridge_input="self", stratified=True, shared_levels=True, lr=3e-3
    )
    draws = torch.Generator().manual_seed(0)
    one, boot = torch.ones(64, 1), Bootstrap(torch.ones(64, 2), torch.zeros(64))
    for _ in range(1500):
        reward = 200.0 * (torch.rand(64, generator=draws) < 0.5).float() - 100.0
        obs = one.expand(-1, 3)
        critic.update(Batch(obs, boot.action, reward, 0 * reward, obs), boot)
    particles = critic.particles(torch.ones(1, 3), torch.ones(1, 2), 100)[0]
    truth = torch.cat([torch.full((50,), -100.0), torch.full((50,), 100.0)])
    assert (particles.sort().values - truth).abs().mean() < 12


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bridge_steps", 0),
        ("anchor_weight", -0.1),
        ("anchor_weight", float("nan")),
        ("drop", 1.0),
        ("drop", 0.99),
        ("kappa", 0.0),
        ("theta", 0.0),
        ("theta_min", -1.0),
        ("theta_max", 0.01),
        ("n_embed", 0),
        ("particle", ()),
        ("hidden", (0,)),
        ("z_scale", float("inf")),
    ],
)
def test_settings_that_cannot_learn_are_refused(field: str, value: object) -> None:
    flag = f"critic.{field.replace('_', '-')}"
    with pytest.raises(UserError, match=flag):
        dataclasses.replace(SMALL, **{field: value})


def test_ranking_repeats_and_draws_nothing() -> None:
    critic, (batch, _) = _dbc(n_rank=5), _batch()
    before = critic._actor_draws.get_state()
    first, again = (critic.q_rank(batch.obs, batch.action) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(before, critic._actor_draws.get_state())
    tau = torch.tensor([[0.1, 0.3, 0.5, 0.7, 0.9]])
    torch.testing.assert_close(first, critic.quantiles(batch.obs, batch.action, tau).mean(1))


def test_quantiles_of_the_target_are_the_targets() -> None:
    critic, (batch, boot) = _dbc(), _batch()
    before = critic.particles(batch.obs, batch.action, 7, target=True)
    critic.update(batch, boot)
    assert torch.equal(before, critic.particles(batch.obs, batch.action, 7, target=True))
    assert not torch.equal(before, critic.particles(batch.obs, batch.action, 7))


@pytest.mark.parametrize(
    ("spread", "size", "warned"),
    [
        (1.9, 5.0, True),
        (1.9, -90.0, True),
        (1.9, 100.0, False),  # All but certain.
        (2.1, 5.0, False),
        (0.0, 0.0, False),
        (float("nan"), 5.0, False),
    ],
)
def test_a_kappa_wide_against_the_returns_is_advised_against(
    spread: float, size: float, warned: bool
) -> None:
    advice = _dbc(kappa=1.0).advice({"critic/spread": spread, "critic/target": size})
    assert (advice is not None) == warned
    if advice is not None:
        assert "--critic.kappa 1 is large" in advice


def test_drop_counts_are_the_papers_and_other_tasks_get_their_median() -> None:
    counts = {"Ant": 12, "HalfCheetah": 0, "Hopper": 32, "Humanoid": 12, "Walker2d": 14, "Own": 12}
    for task, count in counts.items():
        config = resolve(f"{task}-v5", critic="dbc", preset="paper").critic
        assert isinstance(config, DBCConfig)
        assert (config.n_drop, config.n_heads, config.n_target) == (2 * count, 2, 128)


def test_a_share_is_dropped_of_all_heads_together() -> None:
    lite = resolve("Ant-v5", critic="dbc", preset="lite").critic
    assert isinstance(lite, DBCConfig)
    assert (lite.n_drop, lite.n_heads * lite.n_target) == (2, 24)  # 12 / 128 of 24, rounded once.


@pytest.mark.parametrize("shared", [True, False])
def test_crossing_in_parts_is_crossing_at_once(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, boot = _batch(8)
    at_once = _dbc(shared_levels=shared)
    in_parts = _dbc(shared_levels=shared)
    expected = at_once.loss(batch, boot)
    monkeypatch.setattr("bridgerl.nn.endpoint.CACHED", 2 * 16 * 8 * 3)
    seen = []
    contexts = in_parts._net(target=True).contexts

    def watched(x: Tensor, tau: Tensor) -> Iterator[Context]:
        for context in contexts(x, tau):
            seen.append(len(context.start))
            yield context

    monkeypatch.setattr(in_parts.target, "contexts", watched)
    loss = in_parts.loss(batch, boot)
    assert len(seen) > 1
    assert sum(seen) == 8
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)


def test_dealt_strata_cover_more_levels_and_favour_no_head() -> None:
    levels, draws = Levels(stratified=True, shared=True), torch.Generator().manual_seed(0)
    tau = torch.stack([levels.pooled(4, 2, 8, draws)[0] for _ in range(4000)])
    strata = (16 * tau).long().flatten(1).sort(1).values
    assert torch.equal(strata, torch.arange(16).expand(4000, -1))
    assert (tau.mean((0, 2)) - 0.5).abs().max() < 0.002  # Each head's levels are uniform.


@pytest.mark.parametrize(
    ("changes", "steps"),
    [({}, 2), ({"actor_steps": None}, 5), ({"bridge_steps": 1}, 1), ({"bridge_input": "path"}, 5)],
    ids=str,
)
def test_the_actor_walks_few_steps_where_they_are_trained(
    changes: dict[str, Any], steps: int
) -> None:
    config = dataclasses.replace(SMALL, actor_steps=2, bridge_steps=5)
    assert dataclasses.replace(config, **changes).actor_walk_steps == steps


def test_an_empty_batch_has_no_values() -> None:
    nothing = torch.zeros(0, 3), torch.zeros(0, 2)
    assert _dbc().q_rank(*nothing).shape == (0,)
