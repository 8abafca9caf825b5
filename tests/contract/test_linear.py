"""Networks without a hidden layer, wherever one can do without."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from bridgerl.actors import ACTORS
from bridgerl.agent import Agent, build_agent
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.presets import command_of, resolve
from bridgerl.runs.tensors import pack, unpack
from bridgerl.streams import Streams
from bridgerl.testing import SPEC, assert_same, learn, make_batch, make_boot, play, snapshot

CAN = {"actor": ("sac", "td3"), "critic": ("cdq", "dsac", "iqn", "tqc", "dbc")}
CANNOT = [("actor", name) for name in ACTORS if name not in CAN["actor"]]
CANNOT += [("critic", name) for name in CRITICS if name not in CAN["critic"]]


def make(actor: str, critic: str, streams: Streams) -> Agent:
    config = resolve("contract", actor, critic, "lite")
    parts = replace(config.actor, hidden=()), replace(config.critic, hidden=())
    return build_agent(*parts, SPEC, streams)


@pytest.mark.parametrize("critic", CAN["critic"])
@pytest.mark.parametrize("actor", CAN["actor"])
def test_a_pair_without_hidden_layers_learns_and_goes_on_from_its_state(
    actor: str, critic: str
) -> None:
    streams, later = Streams(0), Streams(1)
    agent, again = make(actor, critic, streams), make(actor, critic, later)
    before = snapshot(agent)
    learn(agent, range(3))
    assert not torch.equal(before["actor.optimizer.exp_avg"], agent.actor.optimizer.exp_avg)
    again.load_state_dict(unpack(pack(agent.state_dict()), "agent"))
    later.load(streams.state())
    for each in (agent, again):
        learn(each, range(3, 6))
    assert_same(snapshot(agent), snapshot(again))
    assert_same(play(agent, make_batch().obs), play(again, make_batch().obs))


@pytest.mark.parametrize("critic", CAN["critic"])
def test_the_loss_reaches_every_weight_of_a_critic_without_hidden_layers(critic: str) -> None:
    learner = make("sac", critic, Streams(0)).critic
    learner.loss(make_batch(), make_boot()).backward()
    for key, weight in learner.online.named_parameters():
        assert weight.grad is not None, key
        assert weight.grad.any(), key


def _is_affine(net: nn.Module, n: int) -> bool:
    x, y = torch.randn(2, 4, n, generator=torch.Generator().manual_seed(0))
    middle = 0.5 * (net(x) + net(y))
    return torch.allclose(net(0.5 * (x + y)), middle, atol=1e-5)


def test_a_network_without_hidden_layers_is_a_linear_map() -> None:
    for actor in CAN["actor"]:
        assert _is_affine(make(actor, "cdq", Streams(0)).actor.net, SPEC.obs_dim)
    for critic in ("cdq", "dsac", "tqc"):
        assert _is_affine(make("sac", critic, Streams(0)).critic.online, 5)


@pytest.mark.parametrize(("part", "name"), CANNOT)
def test_networks_that_need_a_hidden_layer_say_so(part: str, name: str) -> None:
    config = getattr(resolve("contract", **{part: name}), part)
    with pytest.raises(UserError, match=f"--{part}.hidden must be one or more widths"):
        replace(config, hidden=())


def test_the_papers_network_and_trunks_of_other_kinds_need_widths() -> None:
    paper = resolve("contract", preset="paper").critic
    with pytest.raises(UserError, match=r"--critic\.hidden must be one or more widths"):
        replace(paper, hidden=())
    with pytest.raises(UserError, match=r"--actor\.trunk needs widths: set --actor\.hidden"):
        replace(resolve("contract").actor, hidden=(), trunk="layernorm")


def test_the_command_of_a_run_types_the_flag_alone() -> None:
    config = resolve("Hopper-v5")
    config = replace(config, actor=replace(config.actor, hidden=()))
    assert command_of(config).endswith("--critic dbc --actor.hidden")
