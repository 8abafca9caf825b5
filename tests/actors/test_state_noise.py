"""SAC with held, state-dependent noise: when it changes, what it is, and that it comes back."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from bridgerl.actors.sac import SACConfig, StateSAC
from bridgerl.agent import Agent, build_agent
from bridgerl.critics.cdq import CDQConfig
from bridgerl.errors import UserError
from bridgerl.runs.tensors import pack, unpack
from bridgerl.streams import Streams
from bridgerl.testing import SPEC, learn, make_batch, snapshot

SMALL: dict[str, Any] = {"hidden": (8, 8), "sde": True}


def make(streams: Streams | None = None, **changes: Any) -> Agent:
    config = SACConfig(**(SMALL | changes))
    return build_agent(config, CDQConfig(hidden=(8,)), SPEC, streams or Streams(0))


def explore(agent: Agent, obs: Tensor, generator: torch.Generator) -> Tensor:
    return agent.actions(obs, explore=True, generator=generator)


def test_noise_is_held_for_so_many_steps_and_draws_once() -> None:
    agent, draws, obs = make(sde_sample_every=3), torch.Generator().manual_seed(0), torch.ones(1, 3)
    actions = [explore(agent, obs, draws)[0, 0].item() for _ in range(9)]
    assert [actions[i : i + 3].count(actions[i]) for i in (0, 3, 6)] == [3, 3, 3]
    assert len(set(actions)) == 3
    before = draws.get_state()
    held = make(sde_sample_every=None)
    first = explore(held, obs, draws)
    assert not torch.equal(before, draws.get_state())
    before = draws.get_state()
    assert all(torch.equal(first, explore(held, obs, draws)) for _ in range(100))
    assert torch.equal(before, draws.get_state())


def test_without_a_number_of_steps_noise_is_held_for_an_episode() -> None:
    agent, obs, draws = make(sde_sample_every=None), make_batch(2).obs, torch.Generator()
    first = explore(agent, obs, draws)
    assert all(torch.equal(first, explore(agent, obs, draws)) for _ in range(100))
    agent.begin_episode(obs[0].numpy())
    assert not torch.equal(first, explore(agent, obs, draws))
    counted = make(sde_sample_every=50)
    first = explore(counted, obs, draws)
    counted.begin_episode(obs[0].numpy())
    assert torch.equal(first, explore(counted, obs, draws))


def test_playing_needs_no_noise_of_the_training() -> None:
    state = make().state_dict()
    left_out = state.keys() - make().played(state).keys()
    assert sum("held" in name for name in left_out) == 2


def test_explored_actions_spread_as_the_policy_says_and_rows_apart() -> None:
    agent, obs = make(sde_log_std=-1.0), make_batch(1).obs.expand(20_000, 3)
    actor = agent.actor
    assert isinstance(actor, StateSAC)
    with torch.no_grad():
        mean, log_std = actor.net(obs[:1])
        spread = torch.atanh(explore(agent, obs, torch.Generator().manual_seed(0))) - mean
    torch.testing.assert_close(spread.std(0), log_std[0].exp(), rtol=0.03, atol=0)
    assert (spread.mean(0).abs() < 0.03 * log_std[0].exp()).all()


def test_playing_takes_the_limited_mean() -> None:
    obs = 1000 * make_batch().obs
    limited, free = make(sde_mean_limit=0.5), make(sde_mean_limit=None)
    play = {"explore": False, "generator": torch.Generator()}
    bound = torch.tanh(torch.tensor(0.5))
    assert limited.actions(obs, **play).abs().max() == bound
    assert free.actions(obs, **play).abs().max() > bound


def test_an_agent_saved_within_held_noise_explores_and_learns_on_bit_for_bit() -> None:
    streams, later, obs = Streams(0), Streams(5), make_batch(2).obs
    agent, other = make(streams, sde_sample_every=4), make(later, sde_sample_every=4)
    learn(agent, range(3))
    for _ in range(6):
        explore(agent, obs, streams("explore"))
    other.load_state_dict(unpack(pack(agent.state_dict()), "agent"))
    later.load(unpack(pack(streams.state()), "streams"))
    for step in range(8):
        left, right = (explore(a, obs, s("explore")) for a, s in ((agent, streams), (other, later)))
        assert torch.equal(left, right), step
        learn(agent, (step,))
        learn(other, (step,))
    torch.testing.assert_close(snapshot(agent), snapshot(other), rtol=0, atol=0)


def test_updates_neither_touch_nor_need_the_held_noise() -> None:
    agent, obs = make(), make_batch(2).obs
    explore(agent, obs, torch.Generator().manual_seed(0))
    other = copy.deepcopy(agent)
    explore(other, obs, torch.Generator())
    for each in (agent, other):
        assert isinstance(each.actor, StateSAC)
        seed = each.actor.held.seed.clone()
        learn(each, range(3))
        assert torch.equal(seed, each.actor.held.seed)
    assert torch.equal(agent.actor.optimizer.flat, other.actor.optimizer.flat)


@pytest.mark.parametrize("trunk", ["plain", "layernorm", "simba", "batchnorm"])
@pytest.mark.parametrize("expln", [False, True])
def test_every_part_of_the_policy_learns_a_known_value(trunk: Any, expln: bool) -> None:
    agent, batch = make(trunk=trunk, sde_expln=expln, lr=3e-3), make_batch()
    before = [p.clone() for p in agent.actor.net.parameters()]
    for _ in range(300):
        agent.actor.update(batch, lambda _, action: -50 * (action - 0.5).square().sum(-1))
    after = agent.actor.net.parameters()
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    action = agent.actions(batch.obs, explore=False, generator=torch.Generator())
    assert (action - 0.5).abs().mean() < 0.1


@pytest.mark.parametrize(
    "wrong", [{"sde_sample_every": 0}, {"sde_log_std": 3.0}, {"sde_mean_limit": 0.0}]
)
def test_settings_that_cannot_be_are_refused_by_their_flag(wrong: dict[str, Any]) -> None:
    flag = f"--actor.{next(iter(wrong)).replace('_', '-')}"
    with pytest.raises(UserError, match=flag):
        SACConfig(**wrong)
