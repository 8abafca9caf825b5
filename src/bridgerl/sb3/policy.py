"""The agent as Stable-Baselines3 sees it: a policy that turns observations into actions."""

from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import (
    DictReplayBufferSamples,
    ReplayBufferSamples,
    Schedule,
)
from torch import Tensor, nn

from bridgerl.actors.sac import StateSAC
from bridgerl.agent import build_agent
from bridgerl.config import RunConfig
from bridgerl.errors import UserError
from bridgerl.nn.normalize import Normalizer
from bridgerl.runs.tensors import with_prefix
from bridgerl.sb3 import files, settings
from bridgerl.sb3.spaces import SPACES, Flatten, flattener, to_tensors
from bridgerl.streams import Streams
from bridgerl.types import Batch, EnvSpec


def to_batch(
    samples: ReplayBufferSamples | DictReplayBufferSamples, gamma: float, flatten: Flatten
) -> Batch:
    """SB3's sample as ours; n-step buffers bring their own discounts."""
    discount = gamma if samples.discounts is None else samples.discounts
    return Batch(
        obs=flatten(samples.observations),
        action=samples.actions.float(),
        reward=samples.rewards.squeeze(1),
        discount=(discount * (1 - samples.dones)).squeeze(1),
        next_obs=flatten(samples.next_observations),
    )


def floats_only(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Give counters as floats: programs of SB3 treat every entry of a state dict as a weight."""
    for name, value in state.items():
        if not value.is_floating_point():
            state[name] = value.double()


class ActorView:
    """The agent's actor, called as Stable-Baselines3 calls its own."""

    def __init__(self, policy: "AgentPolicy") -> None:
        self._policy = policy
        self.predict, self.save = policy.predict, policy.save

    def __call__(self, obs: Any, deterministic: bool = True) -> Tensor:
        """Actions in [-1, 1] for a batch of observations: (b, a)."""
        return self._policy(obs, deterministic)

    def reset_noise(self, batch_size: int = 1) -> None:
        """Draw other weights for the noise of gSDE; every row has its own, however many ask."""
        self._policy.reset_noise(batch_size)

    def get_std(self) -> Tensor:
        """Deviations of the noise weights of gSDE: (f, a)."""
        return self._policy.with_sde.net.std

    @classmethod
    def load(cls, path: files.Place, device: torch.device | str = "auto") -> "ActorView":
        """The actor of a file, with the critic behind it."""
        return AgentPolicy.load(path, device).actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy.agent.actor, name)


class CriticView:
    """The agent's critic, called as Stable-Baselines3 calls its own."""

    def __init__(self, policy: "AgentPolicy") -> None:
        self._policy = policy

    def __call__(self, obs: Any, actions: Tensor) -> tuple[Tensor, ...]:
        """The mean return in the task's units, one column: (b, 1)."""
        flat = self._policy.flatten(obs)
        return (self._policy.agent.q(flat, actions)[:, None],)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy.agent.critic, name)


class AgentPolicy(BasePolicy):
    """Holds the agent, built where it stays: its weights are views of one flat vector."""

    def __init__(  # noqa: PLR0913
        self,
        observation_space: gym.Space[Any],
        action_space: gym.spaces.Box,
        lr_schedule: Schedule,
        *,
        config: RunConfig,
        streams: Streams,
        normalizer: Normalizer,
        return_unit: float = 10.0,
    ) -> None:
        super().__init__(observation_space, action_space, squash_output=True)
        sizes = gym.spaces.flatdim(observation_space), gym.spaces.flatdim(action_space)
        spec, parts = EnvSpec(config.env, *sizes), (config.actor, config.critic)
        self.agent = build_agent(*parts, spec, streams, normalizer)
        self._explore, self._streams, self._config = streams("explore"), streams, config
        self._return_unit = return_unit
        self.flatten = flattener(observation_space)
        """Observations of the environment as the agent's rows."""
        self.register_state_dict_post_hook(floats_only)

    @property
    def actor(self) -> ActorView:
        return ActorView(self)

    @property
    def critic(self) -> CriticView:
        return CriticView(self)

    @property
    def critic_target(self) -> nn.Module:
        return self.agent.critic.target

    def forward(self, obs: Any, deterministic: bool = False) -> Tensor:
        """Actions in [-1, 1] for a batch of observations, as tensors."""
        return self._predict(obs, deterministic)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        """Actions in [-1, 1], which `predict` stretches to the bounds."""
        obs, draws = self.flatten(observation), None if deterministic else self._explore
        return self.agent.actions(obs, explore=not deterministic, generator=draws)

    @property
    def with_sde(self) -> StateSAC:
        """The actor, if it explores by gSDE; programs of SB3 expect an AssertionError."""
        actor = self.agent.actor
        assert isinstance(actor, StateSAC), "get_std() and reset_noise() need use_sde=True"
        return actor

    def reset_noise(self, batch_size: int = 1) -> None:
        """Draw other weights for the noise of gSDE."""
        self.with_sde.reset_noise(self._explore)

    def set_training_mode(self, mode: bool) -> None:
        """Nothing to switch: an agent has one mode, in `bridgerl train` as well as here."""

    def to(self, device: torch.device | str) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing to do on the agent's own device; other devices are refused."""
        if torch.empty(0, device=device).device != self.device:
            raise UserError(f"the agent stays on {self.device}; make or load it with device=")
        return self

    def load_from_vector(self, vector: np.ndarray) -> None:
        """Fill the weights in place, where the optimisers' flat vectors see it."""
        values = torch.as_tensor(vector, dtype=torch.float32, device=self.device)
        weights = list(self.parameters())
        with torch.no_grad():
            for p, part in zip(weights, values.split([p.numel() for p in weights]), strict=True):
                p.copy_(part.view_as(p))

    def tensors(self) -> dict[str, Tensor]:
        """What a file keeps of agent and random streams, counters as what they are."""
        agent = with_prefix("agent.", self.agent.state_dict())
        return agent | with_prefix("stream.", self._streams.state())

    def save(self, path: files.Place) -> None:
        """Write a model of this policy alone: without a past, and with a buffer of one row."""
        normalizer = self.agent.normalizer
        attributes = files.Attributes(
            normalize_obs=normalizer.obs is not None,
            normalize_returns=normalizer.returns is not None,
            return_unit=self._return_unit,
        )
        agent, device = settings.to_json(self._config), self.device.type
        header = files.Header(agent, attributes, device, not_stored=())
        tensors = self.tensors()
        for name in SPACES:
            tensors |= to_tensors(getattr(self, name), name)
        files.write_model(path, header, tensors)

    @classmethod
    def load(cls, path: files.Place, device: torch.device | str = "auto") -> "AgentPolicy":
        """The policy of a file, whether of a model or of a policy alone."""
        from bridgerl.sb3.algorithm import ActorCritic  # It is made of this module.

        return ActorCritic.load(path, device=device, buffer_size=1).policy
