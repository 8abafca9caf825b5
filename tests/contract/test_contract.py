"""The contract over both registries, and what SAC, TD3 and CDQ promise beyond it."""

import copy
import dataclasses
import pickle

import pytest
import torch
from torch import Tensor

from bridgerl.actors.sac import AutoTemperature
from bridgerl.actors.td3 import TD3
from bridgerl.agent import Agent, build_agent
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.testing import *  # noqa: F403 - the suite as a plugin's author would import it
from bridgerl.testing import SPEC, make_agent, make_batch, make_boot


def _policy(agent: Agent, obs: Tensor) -> Tensor:
    with torch.no_grad():
        return agent.actor.net(obs)


def test_sac_plays_the_mean_and_explores_with_the_policys_spread() -> None:
    agent = make_agent("sac", "cdq")
    obs = make_batch(20_000).obs[:1].expand(20_000, 3)
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
    agent = make_agent("td3", "cdq")
    obs = make_batch(20_000).obs
    policy = _policy(agent, obs).tanh()
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        played = agent.actor.act(obs, agent.critic.q, explore=False, generator=draws)
        explored = agent.actor.act(obs, agent.critic.q, explore=True, generator=draws)
    assert torch.equal(played, policy)
    assert (explored - policy).std().item() == pytest.approx(0.1, rel=0.03)


def test_td3_bootstraps_from_its_target_policy_with_clipped_noise() -> None:
    agent, batch = make_agent("td3", "cdq"), make_batch(20_000)
    assert isinstance(agent.actor, TD3)
    with torch.no_grad():
        agent.actor.follower.flat.mul_(0.5)
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
        full, quarter = (a.actor.bootstrap(make_batch().next_obs, a.critic.q) for a in agents)
    assert torch.equal(full.action, quarter.action)
    torch.testing.assert_close(0.25 * full.entropy_cost, quarter.entropy_cost)


def test_td3_moves_policy_and_its_target_every_second_time_only() -> None:
    config = resolve("toy", "td3", "cdq", "lite")
    actor = dataclasses.replace(config.actor, polyak=0.25)
    agent, batch = build_agent(actor, config.critic, SPEC, Streams(0)), make_batch()
    assert isinstance(agent.actor, TD3)
    policy, target = agent.actor.optimizer.flat, agent.actor.follower.flat
    for update in range(1, 5):
        before, target_before = policy.clone(), target.clone()
        agent.update(batch)
        moved = update % 2 == 0
        assert torch.equal(before, policy) != moved
        expected = 0.75 * target_before + 0.25 * policy if moved else target_before
        torch.testing.assert_close(target, expected)


def test_cdq_target_is_the_smaller_head_and_actor_q_can_be_the_first() -> None:
    batch = make_batch()
    smallest = make_agent("sac", "cdq").critic
    first = make_agent("sac", "cdq", actor_q="first").critic
    x = torch.cat([batch.obs, batch.action], -1)
    heads = smallest.online(x).squeeze(-1)
    assert torch.equal(smallest.q(batch.obs, batch.action), heads.min(-1).values)
    assert torch.equal(first.q(batch.obs, batch.action), heads[:, 0])
    boot = make_boot()
    next_q = (
        smallest.target(torch.cat([batch.next_obs, boot.action], -1)).squeeze(-1).min(-1).values
    )
    y = batch.reward + batch.discount * next_q
    expected = sum((heads[:, h] - y).square().mean() for h in range(2))
    for critic in (smallest, first):
        torch.testing.assert_close(critic.loss(batch, boot), expected)


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
    agent.update(make_batch())
    assert agent.update(make_batch())["actor/temperature"] == 1.0


def test_a_pickled_agent_goes_on_learning() -> None:
    """As when a process sends one to another; files of ours hold no pickles."""
    agent = make_agent("sac", "dbc")
    agent.update(make_batch(8))
    sent = pickle.loads(pickle.dumps(agent))  # noqa: S301
    for each in (agent, sent):
        each.update(make_batch(8))
    theirs = sent.state_dict()
    assert all(torch.equal(v, theirs[k]) for k, v in agent.state_dict().items())


def test_the_copy_of_a_compiled_agent_learns_by_losses_of_its_own() -> None:
    agent = make_agent("sac", "dbc")
    agent.compile_losses(backend="eager")
    other, before = copy.deepcopy(agent), agent.critic.optimizer.flat.clone()
    other.update(make_batch(8))
    assert torch.equal(before, agent.critic.optimizer.flat)
    agent.update(make_batch(8))
    assert torch.equal(agent.critic.optimizer.flat, other.critic.optimizer.flat)


def test_what_is_drawn_while_streams_are_kept_never_happened() -> None:
    streams = Streams(0)
    with streams.kept():
        first, late = torch.rand(3, generator=streams("early")), streams("late")
        inside = torch.rand(3, generator=late)
    assert torch.equal(first, torch.rand(3, generator=streams("early")))
    assert torch.equal(inside, torch.rand(3, generator=late))
