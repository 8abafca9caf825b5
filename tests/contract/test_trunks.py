"""Every trunk under every critic and every actor."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from bridgerl.agent import Agent, build_agent
from bridgerl.nn.settings import TrunkName
from bridgerl.presets import resolve
from bridgerl.runs.tensors import pack, unpack
from bridgerl.streams import Streams
from bridgerl.testing import CRITICS, PAIRS, SPEC, learn, make_batch, make_boot, play, snapshot

KINDS: tuple[TrunkName, ...] = get_args(TrunkName)
for_trunks = pytest.mark.parametrize("trunk", [k for k in KINDS if k != "plain"])
for_pairs = pytest.mark.parametrize(("actor", "critic"), PAIRS)
for_critics = pytest.mark.parametrize("critic", list(CRITICS))


def with_trunk(config: Any, trunk: TrunkName) -> Any:
    """An actor's or a critic's config with a trunk of this kind, and widths that it can have."""
    values: dict[str, Any] = {"trunk": trunk, config.trunk_widths: (16, 16)}
    return replace(config, **values)


def make(actor: str, critic: str, trunk: TrunkName) -> tuple[Agent, Streams]:
    config, streams = resolve("contract", actor, critic, "lite"), Streams(0)
    configs = with_trunk(config.actor, trunk), with_trunk(config.critic, trunk)
    return build_agent(*configs, SPEC, streams), streams


@for_trunks
@for_pairs
def test_a_pair_learns_and_goes_on_from_its_state_alone(
    actor: str, critic: str, trunk: TrunkName
) -> None:
    agent, streams = make(actor, critic, trunk)
    learn(agent, range(3))
    again, others = make(actor, critic, trunk)
    again.load_state_dict(unpack(pack(agent.state_dict()), "state"))
    others.load(streams.state())
    learn(agent, range(3, 6))
    learn(again, range(3, 6))
    for key, value in agent.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    obs = make_batch(5).obs
    assert torch.equal(play(agent, obs), play(again, obs))
    assert play(agent, obs).abs().max() <= 1


@for_trunks
@for_critics
def test_a_critics_loss_reaches_every_weight_and_its_target_follows(
    critic: str, trunk: TrunkName
) -> None:
    learner, batch, boot = make("sac", critic, trunk)[0].critic, make_batch(), make_boot()
    with learner.joint(batch, boot):
        learner.loss(batch, boot).backward()
    for key, weight in learner.online.named_parameters():
        assert weight.grad is not None, key
        # A shift of the input, alike for all rows, is what a norm after a layer takes away.
        assert weight.grad.any() or trunk == "batchnorm", key
    before = snapshot(learner.target)
    learner.update(batch, boot)
    assert all(torch.equal(v, before[k]) for k, v in learner.target.state_dict().items())
    learner.update_target()
    assert not all(torch.equal(v, before[k]) for k, v in learner.target.state_dict().items())


@for_critics
def test_playing_and_logging_leave_statistics_alone(critic: str) -> None:
    agent, _ = make("sac", critic, "batchnorm")
    learn(agent, range(2))
    before = snapshot(agent)
    agent.diagnostics(make_batch())
    play(agent, make_batch().obs)
    agent.critic.quantiles(*make_batch()[:2], torch.tensor([[0.1, 0.9]]))
    assert all(torch.equal(v, before[k]) for k, v in agent.state_dict().items())


@for_critics
def test_statistics_of_the_target_follow_by_its_rate(critic: str) -> None:
    learner = make("sac", critic, "batchnorm")[0].critic
    learner.update(make_batch(), make_boot())
    learner.update_target()
    rate = learner.follower.rate
    pairs = [(s, f) for s, f in learner.follower.statistics if f.dim() > 0 and s.any()]
    assert pairs
    started_at_zero = [(s, f) for s, f in pairs if f.abs().max() < 0.9]
    for slow, fast in started_at_zero:
        torch.testing.assert_close(slow, rate * fast)
