"""The agent's own normalisers inside Stable-Baselines3: what they see, and what excludes them."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

from bridgerl.config import TrainConfig
from bridgerl.errors import UserError
from bridgerl.nn.normalize import Normalizer, ObsMoments, ReturnScale
from bridgerl.sb3.policy import AgentPolicy
from bridgerl.sb3.spaces import one


class Normalizing(OffPolicyAlgorithm):
    """An off-policy algorithm whose agent may normalise observations and returns by itself."""

    policy: AgentPolicy
    normalize_obs: bool
    normalize_returns: bool
    return_unit: float

    def _settle(
        self, preset: TrainConfig, obs: bool | None, returns: bool | None, unit: float | None
    ) -> None:
        """Take what is given; None leaves it to the preset, or to VecNormalize if it does that."""
        theirs = _vec_normalize(self.env)
        own_obs = preset.normalize_obs and not (theirs and theirs.norm_obs)
        own_returns = preset.normalize_returns and not (theirs and theirs.norm_reward)
        self.normalize_obs = own_obs if obs is None else obs
        self.normalize_returns = own_returns if returns is None else returns
        self.return_unit = preset.return_unit if unit is None else unit

    def _build_normalizer(self) -> Normalizer:
        self._refuse_twice(self.env)
        n, scale = gym.spaces.flatdim(self.observation_space), (self.gamma, self.return_unit)
        return Normalizer(
            ObsMoments(n) if self.normalize_obs else None,
            # A loaded model begins new episodes, perhaps in another number of environments. For
            # one that goes on with the old ones, the sums stand beside the last observations.
            ReturnScale(*scale, self.n_envs, resumes=False) if self.normalize_returns else None,
        )

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        self._refuse_twice(env)
        super().set_env(env, force_reset)

    def _refuse_twice(self, env: GymEnv | None) -> None:
        """Refuse to normalise what VecNormalize already does."""
        found = _vec_normalize(env)
        if found is not None and found.norm_obs and self.normalize_obs:
            hint = "leave out normalize_obs, or make it with norm_obs=False"
            raise UserError(f"VecNormalize normalises observations already; {hint}")
        if found is not None and found.norm_reward and self.normalize_returns:
            hint = "leave out normalize_returns, or make it with norm_reward=False"
            raise UserError(f"VecNormalize normalises rewards already; {hint}")

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: Any,
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store a step of every environment, and let the agent take note of it."""
        if self.normalize_obs or self.normalize_returns:
            self._show(new_obs, reward, dones, infos)
        step = (buffer_action, new_obs, reward, dones, infos)
        super()._store_transition(replay_buffer, *step)

    def _show(
        self, new_obs: Any, reward: np.ndarray, dones: np.ndarray, infos: list[dict[str, Any]]
    ) -> None:
        agent, starts = self.policy.agent, self._last_episode_starts
        assert starts is not None
        before, after = (self._rows(obs) for obs in (self._last_obs, new_obs))
        for env, info in enumerate(infos):
            if starts[env]:
                agent.normalizer.begin_episode(before[env], env)
            # After an end, what came is already the first observation of the next episode.
            last = info.get("terminal_observation") if dones[env] else None
            reached = after[env] if last is None else self.policy.flatten(one(last))[0].numpy()
            agent.observe(reached, float(reward[env]), env)
        self._last_episode_starts = dones

    def _rows(self, obs: Any) -> np.ndarray:
        """Observations of all environments as the agent sees them: (n, o)."""
        return self.policy.flatten(obs_as_tensor(obs, torch.device("cpu"))).numpy()


def _vec_normalize(env: GymEnv | None) -> VecNormalize | None:
    return unwrap_vec_normalize(env) if isinstance(env, VecEnv) else None
