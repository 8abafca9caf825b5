"""Ours and Stable-Baselines3's agents from equal weights: what both parity tests share."""

from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor, nn

from bridgerl.agent import Agent, build_agent
from bridgerl.critics.cdq import CDQ
from bridgerl.critics.tqc import TQC
from bridgerl.nn.heads import Heads
from bridgerl.nn.mlp import MLP
from bridgerl.streams import Streams
from bridgerl.types import Batch, EnvSpec

sb3 = pytest.importorskip("stable_baselines3")

ENV, B = "HalfCheetah-v5", 256
HIDDEN = (256, 256)
ADAM_EPS = 1e-5
RELATIVE = 1e-5


def make_batch() -> Batch:
    draws = torch.Generator().manual_seed(1)
    spec = task_spec()
    shapes = [(B, spec.obs_dim), (B, spec.action_dim), (B,), (B,), (B, spec.obs_dim)]
    obs, action, reward, done, next_obs = (torch.randn(s, generator=draws) for s in shapes)
    return Batch(obs, action.tanh(), reward, 0.99 * (done < 1).float(), next_obs)


def task_spec() -> EnvSpec:
    return EnvSpec(ENV, 17, 6)


def make_ours(actor: Any, critic: Any) -> Agent:
    return build_agent(actor, critic, task_spec(), Streams(0))


def make_theirs(algorithm: Any, **settings: Any) -> Any:
    kwargs = {"net_arch": list(HIDDEN), "optimizer_kwargs": {"eps": ADAM_EPS}}
    kwargs |= settings.get("policy_kwargs", {})
    env = gym.make(ENV)
    settings |= {"policy_kwargs": kwargs, "learning_rate": 3e-4, "device": "cpu", "seed": 3}
    model = algorithm("MlpPolicy", env, **settings)
    model.set_logger(sb3.common.logger.configure(None, []))
    return model


def train_theirs(model: Any, batch: Batch) -> dict[str, float]:
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


def linears(net: nn.Module) -> list[nn.Linear]:
    return [m for m in net.modules() if isinstance(m, nn.Linear)]


def weights_of(net: nn.Module) -> list[Tensor]:
    return [t.detach() for m in linears(net) for t in (m.weight, m.bias)]


def sac_policy(model: Any) -> list[Tensor]:
    """Their mean and log-std layers as the one readout we have."""
    mean, log_std = model.actor.mu, model.actor.log_std
    readout = [torch.cat([mean.weight, log_std.weight]), torch.cat([mean.bias, log_std.bias])]
    return [*weights_of(model.actor.latent_pi), *(t.detach() for t in readout)]


@torch.no_grad()
def set_weights(net: nn.Module, values: list[Tensor]) -> None:
    assert isinstance(net, MLP)
    for parameter, value in zip(weights_of(net), values, strict=True):
        parameter.copy_(value)


def head_of(net: Heads, h: int) -> list[Tensor]:
    """One head's weights and biases, as views of the shapes that nn.Linear has."""
    return [p.detach()[h].squeeze(1) if "bias" in k else p.detach()[h] for k, p in named(net)]


def named(net: nn.Module) -> list[tuple[str, Tensor]]:
    return list(net.named_parameters())


def copy_critic(agent: Agent, model: Any) -> None:
    pairs = ((agent.critic.online, model.critic), (agent.critic.target, model.critic_target))
    for ours, theirs in pairs:
        assert isinstance(agent.critic, CDQ | TQC)
        assert isinstance(ours, Heads)
        for h, other in enumerate(theirs.q_networks):
            for mine, value in zip(head_of(ours, h), weights_of(other), strict=True):
                mine.copy_(value)


def close_critics(agent: Agent, model: Any) -> None:
    pairs = ((agent.critic.online, model.critic), (agent.critic.target, model.critic_target))
    for ours, theirs in pairs:
        assert isinstance(ours, Heads)
        for h, other in enumerate(theirs.q_networks):
            all_close(head_of(ours, h), weights_of(other))


def all_close(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other)


def close(ours: Tensor, theirs: Any) -> None:
    """Relative distance, in the norm of the whole tensor."""
    theirs = torch.as_tensor(theirs, dtype=ours.dtype).detach().reshape(ours.shape)
    distance = torch.linalg.vector_norm(ours.detach() - theirs)
    assert distance <= RELATIVE * torch.linalg.vector_norm(theirs), (ours, theirs)
