"""Spaces of Stable-Baselines3's environments: which we learn from, flat, and as stored tensors."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from torch import Tensor

from bridgerl.envs.task import check_spaces
from bridgerl.errors import StorageFault, UserError
from bridgerl.runs.tensors import without_prefix

SPACES = ("observation_space", "action_space")
LEARNT = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
KNOWN = "a Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these is needed"
_UNIT = spaces.Box(-1, 1, (1,))

Flatten = Callable[[Any], Tensor]
Tensors = dict[str, Tensor]


class SpaceRefused(UserError, AssertionError):
    """A space that cannot be learnt from; programs of SB3 expect an AssertionError."""


def check(name: str, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    """Refuse spaces that cannot be learnt from, in one line that names them."""
    leaves = _leaves(observation)
    if not leaves:
        raise SpaceRefused(f"{name} has an empty observation space")
    for leaf in leaves:
        known = isinstance(leaf, LEARNT)
        if not known or (isinstance(leaf, spaces.MultiDiscrete) and leaf.nvec.ndim != 1):
            raise SpaceRefused(f"{name} has a {type(leaf).__name__} observation space; {KNOWN}")
        plain: Any = SimpleNamespace(
            observation_space=leaf if isinstance(leaf, spaces.Box) else _UNIT, action_space=action
        )
        try:
            check_spaces(name, plain)
        except UserError as error:
            raise SpaceRefused(str(error)) from None


def flattener(space: spaces.Space[Any]) -> Flatten:
    """What turns a batch of a space's observations into float32 rows: (b, o).

    Numbers that name a choice become one-hot, and images are divided by 255, as `MlpPolicy` of
    Stable-Baselines3 does it. The parts of a Dict stand side by side, in the order of the space.
    """
    if isinstance(space, spaces.Dict):
        return partial(_flat_dict, parts={k: flattener(s) for k, s in space.spaces.items()})
    plain = isinstance(space, spaces.Box) and not is_image_space(space)
    return _flat if plain else partial(_flat_encoded, space=space)


def to_tensors(space: spaces.Space[Any], name: str) -> Tensors:
    """All that makes a space what it is, under names that begin with its own."""
    if isinstance(space, spaces.Dict):
        parts = [to_tensors(part, f"{name}/{key}") for key, part in space.spaces.items()]
        return {key: value for part in parts for key, value in part.items()}
    if isinstance(space, spaces.Box):
        low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
        return {f"{name}.low": low, f"{name}.high": high}
    if isinstance(space, spaces.Discrete):
        return {f"{name}.discrete": torch.tensor([int(space.n), int(space.start)])}
    if isinstance(space, spaces.MultiDiscrete):
        rows = [torch.from_numpy(row.astype(space.dtype)) for row in (space.nvec, space.start)]
        return {f"{name}.multidiscrete": torch.stack(rows)}
    assert isinstance(space, spaces.MultiBinary)
    return {f"{name}.multibinary": torch.tensor(space.n)}


def from_tensors(tensors: Tensors) -> list[spaces.Space[Any]]:
    """Observation and action space as a model's tensors tell them; refused if no task has them."""
    try:
        found = [_space(name, tensors) for name in SPACES]
        check("it", *found)
        return found
    except (KeyError, IndexError, TypeError, ValueError, AssertionError, UserError) as error:
        raise StorageFault(f"the saved model has no valid spaces: {error}") from None


def one(obs: Any) -> Any:
    """A single observation as a batch of one."""
    if isinstance(obs, dict):
        return {key: one(value) for key, value in obs.items()}
    return torch.as_tensor(obs)[None]


def holds(space: spaces.Space[Any], obs: Any, n: int) -> bool:
    """Whether these can be n observations of a space, by their shapes."""
    if isinstance(space, spaces.Dict):
        same = isinstance(obs, dict) and set(obs) == set(space.spaces)
        return same and all(holds(part, obs[key], n) for key, part in space.spaces.items())
    return getattr(obs, "shape", None) == (n, *(space.shape or ()))


def _space(name: str, tensors: Tensors) -> spaces.Space[Any]:
    inside = without_prefix(tensors, f"{name}/")
    keys = [key.rpartition(".")[0] for key in inside]
    if keys:
        return spaces.Dict({key: _space(f"{name}/{key}", tensors) for key in keys})
    if (pair := tensors.get(f"{name}.discrete")) is not None:
        n, start = pair.tolist()
        return spaces.Discrete(n, start=start)
    if (rows := tensors.get(f"{name}.multidiscrete")) is not None:
        nvec, start = rows.numpy()
        return spaces.MultiDiscrete(nvec, dtype=nvec.dtype.type, start=start)
    if (n := tensors.get(f"{name}.multibinary")) is not None:
        return spaces.MultiBinary(n.tolist())
    low, high = tensors[f"{name}.low"].numpy(), tensors[f"{name}.high"].numpy()
    return spaces.Box(low, high, dtype=low.dtype.type)


def _leaves(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    return list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]


def _flat(obs: Any) -> Tensor:
    return obs.reshape(len(obs), -1).float()


def _flat_encoded(obs: Any, *, space: spaces.Space[Any]) -> Tensor:
    start = getattr(space, "start", None)
    if start is not None:
        obs = obs - torch.as_tensor(start, device=obs.device)
    return _flat(preprocess_obs(obs, space))


def _flat_dict(obs: Any, *, parts: dict[str, Flatten]) -> Tensor:
    return torch.cat([flatten(obs[key]) for key, flatten in parts.items()], 1)
