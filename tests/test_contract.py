"""What every actor, critic and pair must do; a new one is tested by being registered."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from bridgerl.actors import ACTORS
from bridgerl.actors.sac import AutoTemperature
from bridgerl.actors.td3 import TD3
from bridgerl.agent import Agent, build_agent
from bridgerl.critics import CRITICS
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec

SPEC = EnvSpec("toy", 3, 2)
PAIRS = [(actor, critic) for actor in ACTORS for critic in CRITICS]


def _agent(actor: str, critic: str, seed: int = 0, **critic_values: Any) -> Agent:
    config = resolve("toy", actor, critic, "lite")
    critic_config = dataclasses.replace(config.critic, **critic_values)
    return build_agent(config.actor, critic_config, SPEC, Streams(seed))


def _batch(n: int = 64, seed: int = 0, discount: float = 0.99) -> Batch:
    g = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn(n, 3, generator=g), torch.randn(n, 3, generator=g)
    action = torch.rand(n, 2, generator=g) * 2 - 1
    return Batch(obs, action, torch.randn(n, generator=g), torch.full((n,), discount), next_obs)


def _boot(n: int = 64) -> Bootstrap:
    g = torch.Generator().manual_seed(9)
    return Bootstrap(torch.rand(n, 2, generator=g) * 2 - 1, torch.zeros(n))


@pytest.mark.parametrize("name", CRITICS)
def test_q_is_one_number_per_row_and_differentiable_in_the_action(name: str) -> None:
    critic, batch = _agent("sac", name).critic, _batch()
    action = batch.action.clone().requires_grad_()
    q = critic.q(batch.obs, action)
    assert q.shape == (64,)
    (gradient,) = torch.autograd.grad(q.sum(), action)
    assert gradient.abs().sum(-1).gt(0).all()


@pytest.mark.parametrize("name", CRITICS)
def test_ranking_gives_equal_candidates_equal_values(name: str) -> None:
    critic, batch = _agent("sac", name).critic, _batch()
    critic.update(batch, _boot())
    for target in (False, True):
        first, again = (critic.q_rank(batch.obs, batch.action, target=target) for _ in range(2))
        assert first.shape == (64,)
        assert torch.equal(first, again)
    online = critic.q_rank(batch.obs, batch.action)
    assert not torch.equal(online, critic.q_rank(batch.obs, batch.action, target=True))


@pytest.mark.parametrize("name", CRITICS)
def test_critic_loss_reaches_every_online_and_no_target_weight(name: str) -> None:
    critic = _agent("sac", name).critic
    loss, _ = critic.loss(_batch(), _boot())
    assert torch.isfinite(loss)
    loss.backward()
    for key, weight in critic.online.named_parameters():
        assert weight.grad is not None, key
        assert weight.grad.any(), key
    assert all(p.grad is None and not p.requires_grad for p in critic.target.parameters())


@pytest.mark.parametrize("name", CRITICS)
def test_target_starts_equal_and_follows_by_polyak(name: str) -> None:
    critic = _agent("sac", name, polyak=0.25).critic
    online, target = list(critic.online.parameters()), list(critic.target.parameters())
    assert all(torch.equal(a, b) for a, b in zip(online, target, strict=True))
    before = [p.clone() for p in target]
    critic.update(_batch(), _boot())
    assert all(torch.equal(a, b) for a, b in zip(before, target, strict=True))
    critic.track()
    for old, new, goal in zip(before, target, online, strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * goal)


@pytest.mark.parametrize("name", CRITICS)
def test_terminal_transitions_ignore_what_comes_after(name: str) -> None:
    batch, boot = _batch(discount=0.0), _boot()
    other = Bootstrap(-boot.action, boot.entropy_cost + 100)
    losses = [
        _agent("sac", name).critic.loss(b, o)[0]
        for b, o in ((batch, boot), (batch._replace(next_obs=batch.next_obs + 5), other))
    ]
    assert torch.equal(losses[0], losses[1])


@pytest.mark.parametrize("name", CRITICS)
def test_entropy_cost_lowers_the_learnt_value(name: str) -> None:
    def learnt(cost: float) -> Tensor:
        critic, batch = _agent("sac", name, lr=3e-3).critic, _batch()
        boot = _boot()._replace(entropy_cost=torch.full((64,), cost))
        for _ in range(60):
            critic.update(batch, boot)
        return critic.q(batch.obs, batch.action).mean()

    assert learnt(5.0) < learnt(0.0) - 1.0


@pytest.mark.parametrize("name", CRITICS)
def test_particles_are_samples_around_q(name: str) -> None:
    critic, batch = _agent("sac", name).critic, _batch()
    particles = critic.particles(batch.obs, batch.action, 16)
    assert particles.shape == (64, 16)
    assert torch.isfinite(particles).all()


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize(("discount", "value"), [(0.9, 10.0), (0.0, 1.0)])
def test_a_self_loop_with_reward_one_is_worth_the_geometric_sum(
    name: str, discount: float, value: float
) -> None:
    critic = _agent("sac", name, lr=3e-3, polyak=0.05).critic
    one = torch.ones(32)
    batch = Batch(torch.ones(32, 3), torch.ones(32, 2), one, discount * one, torch.ones(32, 3))
    boot = Bootstrap(batch.action, torch.zeros(32))
    for _ in range(1500):
        critic.update(batch, boot)
        critic.track()
    q = critic.q(batch.obs, batch.action).mean()
    assert q.item() == pytest.approx(value, rel=0.03)


@pytest.mark.parametrize("name", ACTORS)
@pytest.mark.parametrize("explore", [True, False])
def test_actions_stay_in_range_and_repeat_with_their_generator(name: str, explore: bool) -> None:
    agent = _agent(name, "cdq")
    obs = _batch(512).obs * 10
    draws = [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)]
    with torch.no_grad():
        a, b, c = (
            agent.actor.act(obs, agent.critic.q, explore=explore, generator=g) for g in draws
        )
    assert a.shape == (512, 2)
    assert a.abs().max() <= 1
    assert torch.equal(a, b)
    # A policy that draws while it plays must draw from the generator it is given.
    assert not explore or not torch.equal(a, c)


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_playing_touches_no_training_randomness(actor: str, critic: str) -> None:
    streams = Streams(0)
    config = resolve("toy", actor, critic, "lite")
    agent = build_agent(config.actor, config.critic, SPEC, streams)
    agent.update(_batch())
    before = streams.state()
    everywhere = torch.get_rng_state()
    for explore in (True, False):
        agent.act(_batch().obs[0].numpy(), explore=explore, generator=torch.Generator())
    agent.critic.particles(_batch().obs, _batch().action, 4)
    assert all(torch.equal(before[k], v) for k, v in streams.state().items())
    assert torch.equal(everywhere, torch.get_rng_state())


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_training_draws_from_named_streams_alone(actor: str, critic: str) -> None:
    agent = _agent(actor, critic)
    everywhere = torch.get_rng_state()
    agent.update(_batch())
    agent.update(_batch())
    assert torch.equal(everywhere, torch.get_rng_state())


@pytest.mark.parametrize("critic", CRITICS)
def test_a_critic_starts_the_same_under_every_actor(critic: str) -> None:
    first, *others = (_agent(actor, critic).critic.optimizer.flat for actor in ACTORS)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_bootstrap_values_come_from_the_target_network(actor: str, critic: str) -> None:
    agent, batch = _agent(actor, critic), _batch()
    with torch.no_grad():
        agent.critic._target_flat.zero_()  # A network without weights values everything at 0.
        assert agent._target_q(batch.obs, batch.action).abs().max() < 1e-6
        assert agent.critic.q(batch.obs, batch.action).abs().min() > 0


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_an_agent_refuses_to_be_copied_or_moved_apart_from_its_flat_weights(
    actor: str, critic: str
) -> None:
    agent = _agent(actor, critic)
    with pytest.raises(TypeError, match="load_state_dict"):
        copy.deepcopy(agent)
    with pytest.raises(TypeError, match="built with"):
        agent.double()


@pytest.mark.parametrize("name", ACTORS)
def test_bootstrap_is_a_legal_action_with_a_cost_per_row(name: str) -> None:
    agent = _agent(name, "cdq")
    with torch.no_grad():
        boot = agent.actor.bootstrap(_batch().next_obs, agent.critic.q)
    assert boot.action.shape == (64, 2)
    assert boot.action.abs().max() <= 1
    assert boot.entropy_cost.shape == (64,)


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_actor_update_moves_the_policy_and_leaves_the_critic_alone(actor: str, critic: str) -> None:
    agent, batch = _agent(actor, critic), _batch()
    policy = agent.actor.optimizer.flat.clone()
    value = {k: v.clone() for k, v in agent.critic.state_dict().items()}
    agent.actor.update(batch, agent.critic.q)
    assert not torch.equal(policy, agent.actor.optimizer.flat)
    for key, tensor in agent.critic.state_dict().items():
        assert torch.equal(tensor, value[key]), key
    assert all(p.grad is None for p in agent.critic.parameters())


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_actor_climbs_a_known_value(actor: str, critic: str) -> None:
    """A bandit whose value is -|a - 0.5|^2 pulls the policy's action to 0.5."""
    agent, batch = _agent(actor, critic), _batch(256)

    def known(obs: Tensor, action: Tensor) -> Tensor:
        return -50 * (action - 0.5).square().sum(-1)

    for _ in range(600):
        agent.actor.update(batch, known)
    action = agent.actor.act(batch.obs, known, explore=False, generator=torch.Generator())
    assert (action - 0.5).abs().mean() < 0.1


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_equal_seeds_learn_equal_bits_and_other_seeds_do_not(actor: str, critic: str) -> None:
    states = []
    for seed in (0, 0, 1):
        agent = _agent(actor, critic, seed)
        for step in range(5):
            agent.update(_batch(seed=step))
        states.append(agent.state_dict())
    weights = [k for k in states[0] if "net" in k]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert not any(torch.equal(states[0][k], states[2][k]) for k in weights)


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_learning_goes_on_bit_for_bit_from_a_saved_state(actor: str, critic: str) -> None:
    streams = Streams(0)
    config = resolve("toy", actor, critic, "lite")
    agent = build_agent(config.actor, config.critic, SPEC, streams)
    for step in range(7):
        agent.update(_batch(seed=step))
    saved = {k: v.clone() for k, v in agent.state_dict().items()}
    draws = {k: v.clone() for k, v in streams.state().items()}

    later = Streams(123)
    other = build_agent(config.actor, config.critic, SPEC, later)
    other.load_state_dict(saved)
    later.load(draws)
    for step in range(7, 14):
        agent.update(_batch(seed=step))
        other.update(_batch(seed=step))
    assert agent.updates == other.updates == 14
    for key, tensor in agent.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[key]), key


def _policy(agent: Agent, obs: Tensor) -> Tensor:
    with torch.no_grad():
        return agent.actor.net(obs)


def test_sac_plays_the_mean_and_explores_with_the_policys_spread() -> None:
    agent = _agent("sac", "cdq")
    obs = _batch(20_000).obs[:1].expand(20_000, 3)
    mean, log_std = _policy(agent, obs).chunk(2, -1)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        played = agent.actor.act(obs, agent.critic.q, explore=False, generator=draws)
        explored = agent.actor.act(obs, agent.critic.q, explore=True, generator=draws)
    assert torch.equal(played, mean.tanh())
    spread = torch.atanh(explored.clamp(-1 + 1e-6, 1 - 1e-6)) - mean
    torch.testing.assert_close(spread.std(0), log_std[0].exp(), rtol=0.03, atol=0)
    assert spread.mean(0).abs().max() < 0.03


def test_td3_plays_its_policy_and_explores_with_small_noise() -> None:
    agent = _agent("td3", "cdq")
    obs = _batch(20_000).obs
    policy = _policy(agent, obs).tanh()
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        played = agent.actor.act(obs, agent.critic.q, explore=False, generator=draws)
        explored = agent.actor.act(obs, agent.critic.q, explore=True, generator=draws)
    assert torch.equal(played, policy)
    assert (explored - policy).std().item() == pytest.approx(0.1, rel=0.03)


def test_td3_bootstraps_from_its_target_policy_with_clipped_noise() -> None:
    agent, batch = _agent("td3", "cdq"), _batch(20_000)
    assert isinstance(agent.actor, TD3)
    with torch.no_grad():
        agent.actor._target_flat.mul_(0.5)
        boot = agent.actor.bootstrap(batch.next_obs, agent.critic.q)
        noise = boot.action - agent.actor.target_net(batch.next_obs).tanh()
    assert noise.abs().max().item() == pytest.approx(0.5, abs=1e-6)
    assert noise.std().item() == pytest.approx(0.2, rel=0.05)
    assert not boot.entropy_cost.any()


def test_sac_bootstraps_with_the_price_of_its_log_probability() -> None:
    config = resolve("toy", "sac", "cdq", "lite")
    agents = [
        build_agent(
            dataclasses.replace(config.actor, temperature=t), config.critic, SPEC, Streams(0)
        )
        for t in (1.0, 0.25)
    ]
    with torch.no_grad():
        full, quarter = (a.actor.bootstrap(_batch().next_obs, a.critic.q) for a in agents)
    assert torch.equal(full.action, quarter.action)
    torch.testing.assert_close(0.25 * full.entropy_cost, quarter.entropy_cost)


def test_td3_moves_policy_and_its_target_every_second_time_only() -> None:
    config = resolve("toy", "td3", "cdq", "lite")
    actor = dataclasses.replace(config.actor, polyak=0.25)
    agent, batch = build_agent(actor, config.critic, SPEC, Streams(0)), _batch()
    assert isinstance(agent.actor, TD3)
    policy, target = agent.actor.optimizer.flat, agent.actor._target_flat
    for update in range(1, 5):
        before, target_before = policy.clone(), target.clone()
        agent.update(batch)
        moved = update % 2 == 0
        assert torch.equal(before, policy) != moved
        expected = 0.75 * target_before + 0.25 * policy if moved else target_before
        torch.testing.assert_close(target, expected)


def test_cdq_target_is_the_smaller_head_and_actor_q_can_be_the_first() -> None:
    batch = _batch()
    smallest = _agent("sac", "cdq").critic
    first = _agent("sac", "cdq", actor_q="first").critic
    x = torch.cat([batch.obs, batch.action], -1)
    heads = smallest.online(x).squeeze(-1)
    assert torch.equal(smallest.q(batch.obs, batch.action), heads.min(-1).values)
    assert torch.equal(first.q(batch.obs, batch.action), heads[:, 0])
    boot = _boot()
    next_q = (
        smallest.target(torch.cat([batch.next_obs, boot.action], -1)).squeeze(-1).min(-1).values
    )
    y = batch.reward + batch.discount * next_q
    expected = sum((heads[:, h] - y).square().mean() for h in range(2))
    for critic in (smallest, first):
        torch.testing.assert_close(critic.loss(batch, boot)[0], expected)


def test_sac_temperature_moves_towards_the_target_entropy() -> None:
    start = 1.0
    temperature = AutoTemperature(start, lr=3e-4, target_entropy=-2.0)
    temperature.update(torch.tensor(-10.0))  # Entropy 10 is far above the target.
    assert temperature.value < start
    for _ in range(5):
        temperature.update(torch.tensor(10.0))
    assert temperature.value > start


def test_a_fixed_temperature_stays() -> None:
    config = resolve("toy", "sac", "cdq", "lite")
    actor = dataclasses.replace(config.actor, temperature_lr=None)
    agent = build_agent(actor, config.critic, SPEC, Streams(0))
    agent.update(_batch())
    assert agent.update(_batch())["actor/temperature"] == 1.0
