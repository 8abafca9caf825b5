"""One update from equal weights, batch and noise gives Stable-Baselines3's losses and weights."""

from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor, nn

from bridgerl.actors.sac import SAC, SACConfig
from bridgerl.actors.td3 import TD3, TD3Config
from bridgerl.agent import Agent, build_agent
from bridgerl.critics.cdq import CDQ, CDQConfig
from bridgerl.critics.tqc import TQC, TQCConfig
from bridgerl.nn.heads import Heads
from bridgerl.nn.mlp import MLP
from bridgerl.streams import Streams
from bridgerl.types import Batch, EnvSpec

sb3 = pytest.importorskip("stable_baselines3")

ENV, B = "HalfCheetah-v5", 256
HIDDEN = (256, 256)
ADAM_EPS = 1e-5
RELATIVE = 1e-5


@pytest.fixture
def batch() -> Batch:
    draws = torch.Generator().manual_seed(1)
    spec = _spec()
    shapes = [(B, spec.obs_dim), (B, spec.action_dim), (B,), (B,), (B, spec.obs_dim)]
    obs, action, reward, done, next_obs = (torch.randn(s, generator=draws) for s in shapes)
    return Batch(obs, action.tanh(), reward, 0.99 * (done < 1).float(), next_obs)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_sac_steps_equal_stable_baselines3(batch: Batch, temperature: float) -> None:
    model = _model(sb3.SAC, ent_coef=f"auto_{temperature}")
    # Theirs adds 1e-6 inside the logarithm of the tanh correction; a narrower policy keeps
    # actions away from the edge, where that changes the log probability.
    nn.init.constant_(model.actor.log_std.bias, -1.0)
    # Theirs halves the critic's loss; doubling epsilon makes Adam see the same ratio.
    agent = _agent(
        SACConfig(hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None, temperature=temperature),
        CDQConfig(hidden=HIDDEN, adam_eps=2 * ADAM_EPS, grad_clip=None),
    )
    assert isinstance(agent.actor, SAC)
    _copy_critic(agent, model)
    _set(agent.actor.net, _sac_policy(model))
    for update in range(2):
        # Theirs draws the policy's noise first, the target's second, from one global stream.
        torch.manual_seed(update)
        agent.actor._policy_noise.set_state(torch.get_rng_state())
        torch.randn(B, _spec().action_dim)
        agent.actor._target_noise.set_state(torch.get_rng_state())
        torch.manual_seed(update)
        theirs = _train(model, batch)
        ours = agent.figures(batch) | agent.update(batch)
        _close(ours["critic/loss"], 2 * theirs["train/critic_loss"])
        _close(ours["actor/loss"], theirs["train/actor_loss"])
        _close(ours["actor/temperature_loss"], theirs["train/ent_coef_loss"])
    _close_critics(agent, model)
    _all_close(_weights(agent.actor.net), _sac_policy(model))
    _close(agent.actor.temperature.log_value, model.log_ent_coef)


def test_td3_steps_equal_stable_baselines3(batch: Batch) -> None:
    model = _model(sb3.TD3)
    with torch.no_grad():  # Targets that differ from what they follow, as after some training.
        for target in (model.actor_target, model.critic_target):
            for parameter in target.parameters():
                parameter.mul_(1.1)
    agent = _agent(
        TD3Config(hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None),
        CDQConfig(
            hidden=HIDDEN, adam_eps=ADAM_EPS, grad_clip=None, actor_q="first", target_every=2
        ),
    )
    assert isinstance(agent.actor, TD3)
    _copy_critic(agent, model)
    _set(agent.actor.net, _weights(model.actor.mu))
    _set(agent.actor.target_net, _weights(model.actor_target.mu))
    torch.manual_seed(7)
    agent.actor._target_noise.set_state(torch.get_rng_state())

    for update in range(1, 5):  # Every second one moves the policy and both targets.
        theirs = _train(model, batch)
        ours = agent.figures(batch) | agent.update(batch)
        _close(ours["critic/loss"], theirs["train/critic_loss"])
        assert ("actor/loss" in ours) == (update % 2 == 0)
        if "actor/loss" in ours:
            _close(ours["actor/loss"], theirs["train/actor_loss"])
    _close_critics(agent, model)
    _all_close(_weights(agent.actor.net), _weights(model.actor.mu))
    _all_close(_weights(agent.actor.target_net), _weights(model.actor_target.mu))


@pytest.mark.parametrize(("n_heads", "n_drop"), [(2, 2), (5, 5)])
def test_tqc_steps_equal_sb3_contrib(batch: Batch, n_heads: int, n_drop: int) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    heads = {"n_critics": n_heads, "n_quantiles": 25}
    model = _model(
        contrib.TQC,
        policy_kwargs=heads,
        ent_coef="auto_0.2",
        top_quantiles_to_drop_per_net=n_drop,
    )
    nn.init.constant_(model.actor.log_std.bias, -1.0)  # As under SAC.
    agent = _agent(
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
    _copy_critic(agent, model)
    _set(agent.actor.net, _sac_policy(model))
    for update in range(2):
        torch.manual_seed(update)
        agent.actor._policy_noise.set_state(torch.get_rng_state())
        torch.randn(B, _spec().action_dim)
        agent.actor._target_noise.set_state(torch.get_rng_state())
        torch.manual_seed(update)
        theirs = _train(model, batch)
        ours = agent.figures(batch) | agent.update(batch)
        _close(ours["critic/loss"], theirs["train/critic_loss"])
        _close(ours["actor/loss"], theirs["train/actor_loss"])
        _close(ours["actor/temperature_loss"], theirs["train/ent_coef_loss"])
    _close_critics(agent, model)
    _all_close(_weights(agent.actor.net), _sac_policy(model))
    _close(agent.actor.temperature.log_value, model.log_ent_coef)


def _spec() -> EnvSpec:
    return EnvSpec(ENV, 17, 6)


def _agent(actor: Any, critic: Any) -> Agent:
    return build_agent(actor, critic, _spec(), Streams(0))


def _model(algorithm: Any, **settings: Any) -> Any:
    kwargs = {"net_arch": list(HIDDEN), "optimizer_kwargs": {"eps": ADAM_EPS}}
    kwargs |= settings.get("policy_kwargs", {})
    env = gym.make(ENV)
    settings |= {"policy_kwargs": kwargs, "learning_rate": 3e-4, "device": "cpu", "seed": 3}
    model = algorithm("MlpPolicy", env, **settings)
    model.set_logger(sb3.common.logger.configure(None, []))
    return model


def _train(model: Any, batch: Batch) -> dict[str, float]:
    """One of their gradient steps on our batch; returns what they logged."""
    samples = sb3.common.type_aliases.ReplayBufferSamples(
        observations=batch.obs,
        actions=batch.action,
        next_observations=batch.next_obs,
        dones=(batch.discount == 0).float()[:, None],
        rewards=batch.reward[:, None],
    )
    model.replay_buffer.sample = lambda *args, **kwargs: samples
    model.train(gradient_steps=1, batch_size=B)
    return dict(model.logger.name_to_value)


def _linears(net: nn.Module) -> list[nn.Linear]:
    return [m for m in net.modules() if isinstance(m, nn.Linear)]


def _weights(net: nn.Module) -> list[Tensor]:
    return [t.detach() for m in _linears(net) for t in (m.weight, m.bias)]


def _sac_policy(model: Any) -> list[Tensor]:
    """Their mean and log-std layers as the one readout we have."""
    mean, log_std = model.actor.mu, model.actor.log_std
    readout = [torch.cat([mean.weight, log_std.weight]), torch.cat([mean.bias, log_std.bias])]
    return [*_weights(model.actor.latent_pi), *(t.detach() for t in readout)]


@torch.no_grad()
def _set(net: nn.Module, values: list[Tensor]) -> None:
    assert isinstance(net, MLP)
    for parameter, value in zip(_weights(net), values, strict=True):
        parameter.copy_(value)


def _head(net: Heads, h: int) -> list[Tensor]:
    """One head's weights and biases, as views of the shapes that nn.Linear has."""
    return [p.detach()[h].squeeze(1) if "bias" in k else p.detach()[h] for k, p in _named(net)]


def _named(net: nn.Module) -> list[tuple[str, Tensor]]:
    return list(net.named_parameters())


def _copy_critic(agent: Agent, model: Any) -> None:
    pairs = ((agent.critic.online, model.critic), (agent.critic.target, model.critic_target))
    for ours, theirs in pairs:
        assert isinstance(agent.critic, CDQ | TQC)
        assert isinstance(ours, Heads)
        for h, other in enumerate(theirs.q_networks):
            for mine, value in zip(_head(ours, h), _weights(other), strict=True):
                mine.copy_(value)


def _close_critics(agent: Agent, model: Any) -> None:
    pairs = ((agent.critic.online, model.critic), (agent.critic.target, model.critic_target))
    for ours, theirs in pairs:
        assert isinstance(ours, Heads)
        for h, other in enumerate(theirs.q_networks):
            _all_close(_head(ours, h), _weights(other))


def _all_close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        _close(mine, other)


def _close(ours: Tensor, theirs: Any) -> None:
    """Relative distance, in the norm of the whole tensor."""
    theirs = torch.as_tensor(theirs, dtype=ours.dtype).detach().reshape(ours.shape)
    distance = torch.linalg.vector_norm(ours.detach() - theirs)
    assert distance <= RELATIVE * torch.linalg.vector_norm(theirs), (ours, theirs)
