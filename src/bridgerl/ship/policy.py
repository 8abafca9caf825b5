"""A policy as a function of one tensor: what an environment shows -> what it takes."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bridgerl.agent import Agent
from bridgerl.errors import UserError

SEED = 0
"""Seed of the observations that are made up to compare files with policies."""


class Shipped(nn.Module):
    """Normaliser, deterministic policy, scaling to bounds and, with levels, the return's quantiles.

    Observations (b, ...) and actions (b, ...) have the types and shapes of the environment's
    spaces. Noise that playing takes is drawn once, here: afterwards all is one fixed function.
    """

    half_low: Tensor
    half_high: Tensor

    def __init__(
        self,
        agent: Agent,
        observation_space: gym.spaces.Box,
        action_space: gym.spaces.Box,
        levels: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.agent = agent.requires_grad_(False)
        self._levels = None if levels is None else levels[None]
        self._shape, self._dtype = action_space.shape, _torch_type(action_space.dtype)
        for name in ("low", "high"):
            half = 0.5 * getattr(action_space, name).astype(np.float64).reshape(-1)
            self.register_buffer(f"half_{name}", torch.from_numpy(half))
        dtype = _torch_type(observation_space.dtype)
        self._like = torch.zeros(observation_space.shape, dtype=dtype)
        self._draws = self._drawn(2)
        if [d.shape for d in self._draws] != [d.shape for d in self._drawn(3)]:
            what = f"{type(agent.actor).__name__} draws noise of its own for every observation"
            raise UserError(f"{what}, so that its play is no function of it")

    @property
    def output_names(self) -> list[str]:
        return ["action"] if self._levels is None else ["action", "quantiles"]

    def observations(self, n: int) -> Tensor:
        """Made-up observations (n, ...) about as large as those of training."""
        generator = torch.Generator().manual_seed(SEED)
        x = torch.randn((n, self._like.numel()), generator=generator, dtype=torch.float64)
        if (moments := self.agent.normalizer.obs) is not None:
            x = torch.from_numpy(moments.mean) + torch.from_numpy(moments.std) * x
        return x.to(self._like.dtype).reshape(n, *self._like.shape)

    @torch.no_grad()
    def forward(self, observation: Tensor) -> tuple[Tensor, ...]:
        """Actions for a batch of observations, and quantiles (b, k) of the return they lead to."""
        with _Draws(self._draws):
            return self._play(observation)

    def _play(self, observation: Tensor) -> tuple[Tensor, ...]:
        b, agent = observation.shape[0], self.agent
        obs = observation.reshape(b, -1).float()
        action = agent.actions(obs)
        wide = action.double()  # Written so that -1 and 1 meet the bounds exactly.
        scaled = (1 - wide) * self.half_low + (1 + wide) * self.half_high
        own = scaled.to(self._dtype).reshape(b, *self._shape)
        if self._levels is None:
            return (own,)
        # Not by Agent.quantiles: it looks at numbers, which a function written down cannot.
        z = agent.critic.quantiles(agent.normalizer.normalize_obs(obs), action, self._levels)
        return own, agent.normalizer.in_task_units(z)

    @torch.no_grad()
    def _drawn(self, b: int) -> list[Tensor]:
        """What playing b observations draws."""
        draws: list[Tensor] = []
        observations = self.observations(b)
        with _Draws(draws):
            self._play(observations)
        return draws


class _Draws(TorchFunctionMode):
    """A block in which numbers drawn before take the place of draws; new ones are kept."""

    def __init__(self, kept: list[Tensor]) -> None:
        super().__init__()
        self._kept, self._next = kept, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is None:
            return func(*args, **kwargs)
        if self._next == len(self._kept):
            self._kept.append(func(*args, **kwargs))
        self._next += 1
        return self._kept[self._next - 1]


def _torch_type(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, dtype)).dtype
