"""A run's policy as an environment's partner: its own observations in, its own actions out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from bridgerl.agent import Agent
from bridgerl.config import RunConfig
from bridgerl.envs.recipe import MakeEnv, Recipe, name_of
from bridgerl.envs.spaces import NUMBERS, Bounds, decode
from bridgerl.envs.task import Task
from bridgerl.errors import StorageFault, UserError
from bridgerl.runs.folder import RunFolder, Which
from bridgerl.runs.trust import require_trusted
from bridgerl.training.play import load_agent


class Policy:
    """Maps observations as the environment gives them to actions within its bounds."""

    def __init__(
        self,
        agent: Agent,
        observation_space: gym.Space[Any],
        action_space: spaces.Box,
        *,
        seed: int | None = None,
    ) -> None:
        self.agent = agent
        self.observation_space, self.action_space = observation_space, action_space
        self._in_bounds = Bounds(action_space)
        self._draws = torch.Generator(agent.device)
        self._draws.seed() if seed is None else self._draws.manual_seed(seed)
        self.step = 0
        """The step of training that the weights are from, if the policy is of a run."""
        self.config: RunConfig | None = None
        """The settings of the policy's run, if it is of one."""
        self.factory: MakeEnv | None = None
        """What makes its environment in place of what its run names, if it was handed over."""

    def __call__(self, obs: Any, *, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or actions for a batch of them.

        An observation is what the environment gives: an array of any real type, a number, or a
        dictionary or tuple of these. A policy that is not deterministic explores, as in training.
        """
        many, flat = flatten(self.observation_space, obs)
        draws = None if deterministic else self._draws
        seen = torch.from_numpy(flat).to(self.agent.device)
        action = self.agent.actions(seen, explore=not deterministic, generator=draws)
        scaled = self._in_bounds(action.cpu().numpy())
        return scaled if many else scaled[0]

    def reset(self) -> None:
        """An episode begins: a policy that explores with held noise (gSDE) asks for other noise."""
        self.agent.actor.begin_episode()

    def make_env(self, **more: Any) -> gym.Env[Any, Any]:
        """The environment of its run, with its wrappers; `more` such as render_mode="human"."""
        if self.config is None:
            raise UserError("this policy is of no run, so it knows no environment to make")
        return _recipe(self.config, self.factory, "the run").make(**more)


def load_policy(
    run: Path | str,
    weights: Which = "best",
    *,
    seed: int | None = None,
    make_env: MakeEnv | None = None,
    device: str = "cpu",
) -> Policy:
    """The policy of a run folder on a device; `seed` is of what it draws when it explores.

    `make_env` makes its environment where the run's own function cannot be found, as a lambda.

    Safe with a stranger's folder, as `load_agent` is. Runs of releases that kept no spaces make
    their environment to ask it, which a module of one's own must have been imported for.
    """
    folder = RunFolder(Path(run))
    agent, step = load_agent(run, weights, device=device)
    policy = Policy(agent, *_spaces(folder, make_env), seed=seed)
    policy.step, policy.config, policy.factory = step, folder.read_config(), make_env
    return policy


def _recipe(config: RunConfig, make_env: MakeEnv | None, where: object) -> Recipe:
    """How a run's environment is made; of what is handed over, nothing need be trusted."""
    if make_env is not None:
        config = replace(config, env_factory=name_of(make_env))
    trusted = config if make_env is None else replace(config, env_factory=None)
    require_trusted(trusted, where)
    return Recipe.of(config, make_env)


def flatten(space: gym.Space[Any], obs: Any) -> tuple[bool, np.ndarray]:
    """Whether these are several observations, and their vectors: (b, o), float32."""
    try:
        batch = _batch(space, obs, "observation")
    except ValueError:  # How numpy says that no array can be made of it.
        hint = "reset and step return more than the observation: obs, _ = env.reset()"
        raise UserError(f"observation is no array; {hint}") from None
    if isinstance(space, spaces.Box):
        flat = np.asarray(obs).astype(np.float32).reshape(1 if batch is None else batch, -1)
    else:
        rows = [obs] if batch is None else iterate(batch_space(space, batch), obs)
        flat = np.stack([np.asarray(spaces.flatten(space, row)) for row in rows]).astype(np.float32)
    if not np.isfinite(flat).all():
        raise UserError("observation holds numbers that are not finite in float32")
    return batch is not None, flat


def _batch(space: gym.Space[Any], obs: Any, where: str) -> int | None:
    """How many observations these are, None for one without an axis for it; or a refusal."""
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, Mapping) or obs.keys() != space.spaces.keys():
            keys = ", ".join(space.spaces)
            raise UserError(f"{where} must be a dictionary with the keys {keys}")
        found = {_batch(s, obs[key], f"{where}[{key!r}]") for key, s in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple | list) or len(obs) != len(space.spaces):
            raise UserError(f"{where} must be a tuple of {len(space.spaces)} parts")
        inner = enumerate(zip(space.spaces, obs, strict=True))
        found = {_batch(s, part, f"{where}[{i}]") for i, (s, part) in inner}
    else:
        found = {_batch_of_array(space.shape or (), np.asarray(obs), where)}
    if len(found) != 1:
        raise UserError(f"parts of {where} are of different numbers of observations")
    return found.pop()


def _batch_of_array(wanted: tuple[int, ...], array: np.ndarray, where: str) -> int | None:
    if array.dtype.kind not in NUMBERS:
        raise UserError(f"{where} is no array of real numbers but of type {array.dtype}")
    if array.shape == wanted:
        return None
    if array.shape[1:] == wanted and array.ndim == len(wanted) + 1 and len(array) > 0:
        return len(array)
    batch = ", ".join(map(str, ("b", *wanted)))
    raise UserError(f"{where} has shape {array.shape}, not {wanted} or ({batch})")


def _spaces(folder: RunFolder, make_env: MakeEnv | None) -> tuple[gym.Space[Any], spaces.Box]:
    kept, config = folder.spaces(), folder.read_config()
    if kept is None:
        task = Task(_recipe(config, make_env, folder.path), 0)
        task.close()
        kept = task.spec.spaces or {}
    try:
        obs, action = (
            decode(kept[name], size)
            for name, size in zip(("observation", "action"), folder.sizes(), strict=True)
        )
        if not (isinstance(action, spaces.Box) and np.isfinite([action.low, action.high]).all()):
            raise ValueError("actions have no bounds")
    except (KeyError, TypeError, ValueError) as error:
        raise StorageFault(f"{folder.config_file} is damaged: spaces: {error}") from None
    return obs, action
