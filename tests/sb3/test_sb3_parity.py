"""One update from equal weights, batch and noise gives Stable-Baselines3's losses and weights."""

import pytest
import torch
from parity import (
    ADAM_EPS,
    HIDDEN,
    B,
    all_close,
    close,
    close_critics,
    copy_critic,
    make_batch,
    make_ours,
    make_theirs,
    sac_policy,
    sb3,
    set_weights,
    task_spec,
    train_theirs,
    weights_of,
)
from torch import nn

from bridgerl.actors.sac import SAC, SACConfig
from bridgerl.actors.td3 import TD3, TD3Config
from bridgerl.critics.cdq import CDQConfig
from bridgerl.critics.tqc import TQC, TQCConfig
from bridgerl.types import Batch


@pytest.fixture
def batch() -> Batch:
    return make_batch()


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_sac_steps_equal_stable_baselines3(batch: Batch, temperature: float) -> None:
    model = make_theirs(sb3.SAC, ent_coef=f"auto_{temperature}")
    # Theirs adds 1e-6 inside the logarithm of the tanh correction; a narrower policy keeps
    # actions away from the edge, where that changes the log probability.
    nn.init.constant_(model.actor.log_std.bias, -1.0)
    # Theirs halves the critic's loss; doubling epsilon makes Adam see the same ratio.
    agent = make_ours(
        SACConfig(hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None, temperature=temperature),
        CDQConfig(hidden=HIDDEN, adam_eps=2 * ADAM_EPS, grad_clip=None),
    )
    assert isinstance(agent.actor, SAC)
    copy_critic(agent, model)
    set_weights(agent.actor.net, sac_policy(model))
    for update in range(2):
        # Theirs draws the policy's noise first, the target's second, from one global stream.
        torch.manual_seed(update)
        agent.actor._policy_noise.set_state(torch.get_rng_state())
        torch.randn(B, task_spec().action_dim)
        agent.actor._target_noise.set_state(torch.get_rng_state())
        torch.manual_seed(update)
        theirs = train_theirs(model, batch)
        ours = agent.diagnostics(batch) | agent.update(batch)
        close(ours["critic/loss"], 2 * theirs["train/critic_loss"])
        close(ours["actor/loss"], theirs["train/actor_loss"])
        close(ours["actor/temperature_loss"], theirs["train/ent_coef_loss"])
    close_critics(agent, model)
    all_close(weights_of(agent.actor.net), sac_policy(model))
    close(agent.actor.temperature.log_value, model.log_ent_coef)


def test_td3_steps_equal_stable_baselines3(batch: Batch) -> None:
    model = make_theirs(sb3.TD3)
    with torch.no_grad():  # Targets that differ from what they follow, as after some training.
        for target in (model.actor_target, model.critic_target):
            for parameter in target.parameters():
                parameter.mul_(1.1)
    agent = make_ours(
        TD3Config(hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None),
        CDQConfig(
            hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None, actor_q="first", target_every=2
        ),
    )
    assert isinstance(agent.actor, TD3)
    copy_critic(agent, model)
    set_weights(agent.actor.net, weights_of(model.actor.mu))
    set_weights(agent.actor.target_net, weights_of(model.actor_target.mu))
    torch.manual_seed(7)
    agent.actor._target_noise.set_state(torch.get_rng_state())

    for update in range(1, 5):  # Every second one moves the policy and both targets.
        theirs = train_theirs(model, batch)
        ours = agent.diagnostics(batch) | agent.update(batch)
        close(ours["critic/loss"], theirs["train/critic_loss"])
        assert ("actor/loss" in ours) == (update % 2 == 0)
        if "actor/loss" in ours:
            close(ours["actor/loss"], theirs["train/actor_loss"])
    close_critics(agent, model)
    all_close(weights_of(agent.actor.net), weights_of(model.actor.mu))
    all_close(weights_of(agent.actor.target_net), weights_of(model.actor_target.mu))


@pytest.mark.parametrize(("n_heads", "n_drop"), [(2, 2), (5, 5)])
def test_tqc_steps_equal_sb3_contrib(batch: Batch, n_heads: int, n_drop: int) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    heads = {"n_critics": n_heads, "n_quantiles": 25}
    model = make_theirs(
        contrib.TQC,
        policy_kwargs=heads,
        ent_coef="auto_0.2",
        top_quantiles_to_drop_per_net=n_drop,
    )
    nn.init.constant_(model.actor.log_std.bias, -1.0)  # As under SAC.
    agent = make_ours(
        SACConfig(hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None, temperature=0.2),
        TQCConfig(
            hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None, n_heads=n_heads, drop=n_drop / 25
        ),
    )
    assert isinstance(agent.actor, SAC)
    assert isinstance(agent.critic, TQC)
    with torch.no_grad():  # Returns apart, and a target that differs from what it follows.
        for factor, net in ((2.0, model.critic), (3.0, model.critic_target)):
            for parameter in net.parameters():
                parameter.mul_(factor)
    copy_critic(agent, model)
    set_weights(agent.actor.net, sac_policy(model))
    for update in range(2):
        torch.manual_seed(update)
        agent.actor._policy_noise.set_state(torch.get_rng_state())
        torch.randn(B, task_spec().action_dim)
        agent.actor._target_noise.set_state(torch.get_rng_state())
        torch.manual_seed(update)
        theirs = train_theirs(model, batch)
        ours = agent.diagnostics(batch) | agent.update(batch)
        close(ours["critic/loss"], theirs["train/critic_loss"])
        close(ours["actor/loss"], theirs["train/actor_loss"])
        close(ours["actor/temperature_loss"], theirs["train/ent_coef_loss"])
    close_critics(agent, model)
    all_close(weights_of(agent.actor.net), sac_policy(model))
    close(agent.actor.temperature.log_value, model.log_ent_coef)
