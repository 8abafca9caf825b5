"""SAC+CDQ on batch norms, its target following at once, takes the steps of sb3-contrib's CrossQ."""

from functools import partial
from typing import Any

import pytest
import torch
from parity import (
    ADAM_EPS,
    HIDDEN,
    B,
    close,
    make_batch,
    make_ours,
    make_theirs,
    task_spec,
    train_theirs,
)
from torch import Tensor, nn

from bridgerl.actors.sac import SAC, SACConfig
from bridgerl.critics.cdq import CDQConfig
from bridgerl.nn import layers
from bridgerl.nn.heads import Features, Heads
from bridgerl.nn.trunk import BatchNormed

contrib = pytest.importorskip("sb3_contrib")

UPDATES = 4
assert_close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)


def test_crossq_steps_equal_sb3_contrib() -> None:
    """Before renormalisation sets in: theirs is inexact there where variances are small."""
    batch = make_batch()
    kwargs = {"net_arch": list(HIDDEN), "renorm_warmup_steps": layers.RENORM_AFTER}
    kwargs |= {"optimizer_kwargs": {"eps": ADAM_EPS}}
    model = make_theirs(contrib.CrossQ, policy_kwargs=kwargs, policy_delay=1, ent_coef="auto_0.2")
    with torch.no_grad():  # Theirs adds 1e-6 inside a logarithm, which shows at the actions' edge.
        model.actor.log_std.bias.fill_(-3.0)
        model.actor.mu.weight.mul_(0.1)
    how = {"hidden": HIDDEN, "trunk": "batchnorm", "grad_clip": None}
    agent = make_ours(
        SACConfig(adam_eps=ADAM_EPS, temperature=0.2, **how),
        CDQConfig(adam_eps=2 * ADAM_EPS, polyak=1.0, **how),  # As theirs halves the loss.
    )
    actor, online, theirs = agent.actor, agent.critic.online, model.critic.q_networks
    assert isinstance(actor, SAC)
    assert isinstance(online, Heads)
    for h in range(2):
        _copy(_critic_state(online, h), _module_state(theirs[h]))
    agent.critic.update_target()
    _copy(_actor_state(actor.net), _policy_state(model))

    for update in range(UPDATES):
        torch.manual_seed(update)  # Theirs draws the target's noise first here.
        actor._target_noise.set_state(torch.get_rng_state())
        torch.randn(B, task_spec().action_dim)
        actor._policy_noise.set_state(torch.get_rng_state())
        torch.manual_seed(update)
        logged = train_theirs(model, batch)
        ours = agent.diagnostics(batch) | agent.update(batch)
        close(ours["critic/loss"], 2 * logged["train/critic_loss"])
        close(ours["actor/loss"], logged["train/actor_loss"])
    for h in range(2):
        assert_close(_critic_state(online, h), _module_state(theirs[h]))
        assert_close(_critic_state(agent.critic.target, h), _module_state(theirs[h]))
    assert_close(_actor_state(actor.net), _policy_state(model))


def _module_state(net: nn.Module) -> list[Tensor]:
    """Norms and layers in the order they are applied in; theirs."""
    state: list[Tensor] = []
    for m in net.modules():
        if isinstance(m, nn.Linear):
            state += [m.weight, m.bias]
        elif hasattr(m, "ra_mean"):
            state += [getattr(m, name) for name in ("scale", "bias", "ra_mean", "ra_var")]
    return [t.detach() for t in state]


def _policy_state(model: Any) -> list[Tensor]:
    mean, log_std = model.actor.mu, model.actor.log_std
    readout = [torch.cat([mean.weight, log_std.weight]), torch.cat([mean.bias, log_std.bias])]
    return [*_module_state(model.actor.latent_pi), *(t.detach() for t in readout)]


def _trunk_state(trunk: BatchNormed, h: int) -> list[Tensor]:
    """The same of ours, as views."""
    state: list[Tensor] = []
    for i, norm in enumerate(trunk.norms):
        assert isinstance(norm, layers.HeadBatchRenorm)
        if i > 0:
            layer = trunk.layers[i - 1]
            assert isinstance(layer, layers.HeadLinear)
            assert layer.bias is not None
            state += [layer.weight[h], layer.bias[h, :, 0]]
        state += [t[h, 0] for t in (norm.scale, norm.shift, norm.mean, norm.var)]
    return state


def _critic_state(net: Any, h: int) -> list[Tensor]:
    readout = [net.readout.weight[h], net.readout.bias[h, :, 0]]
    return [t.detach() for t in (*_trunk_state(net.trunk, h), *readout)]


def _actor_state(net: Any) -> list[Tensor]:
    reader, readout = net
    assert isinstance(reader, Features)
    trunk = _trunk_state(reader.trunk, 0)  # pyright: ignore[reportArgumentType]
    return [t.detach() for t in (*trunk, readout.weight, readout.bias)]


def _copy(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for mine, value in zip(ours, theirs, strict=True):
        mine.copy_(value)
