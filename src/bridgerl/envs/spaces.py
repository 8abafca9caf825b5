"""Spaces: which observations are flattened, how a run writes them down, actions within bounds."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from bridgerl.errors import UserError

NUMBERS = "fiub"
"""Kinds of NumPy types that hold real numbers."""
KINDS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
KINDS += (spaces.Dict, spaces.Tuple)
"""Observations that Gymnasium turns into a vector of one length."""


def parts(space: gym.Space[Any]) -> list[gym.Space[Any]]:
    """The spaces inside a space, itself first."""
    inner = ()
    if isinstance(space, spaces.Dict):
        inner = tuple(space.spaces.values())
    elif isinstance(space, spaces.Tuple):
        inner = space.spaces
    return [space, *(part for s in inner for part in parts(s))]


def flattened(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment with a vector for an observation, if it has another space that has one."""
    space = env.observation_space
    fits = all(isinstance(part, KINDS) for part in parts(space))
    if isinstance(space, spaces.Box) or not fits:
        return env
    return gym.wrappers.FlattenObservation(env)


def require_spaces(env_id: str, env: gym.Env[Any, Any]) -> None:
    """Refuse an environment that does not say what it shows, or what it takes."""
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            raise UserError(f"{env_id} has no {name}; set self.{name} in its __init__")


class Bounds:
    """Actions in [-1, 1] and in an environment's own bounds."""

    def __init__(self, space: spaces.Box) -> None:
        self._shape, self._dtype = space.shape, space.dtype
        self._half_low = 0.5 * space.low.astype(np.float64).reshape(-1)
        self._half_high = 0.5 * space.high.astype(np.float64).reshape(-1)

    def __call__(self, action: np.ndarray) -> np.ndarray:
        """(..., a) in [-1, 1] to (..., *shape) within the bounds."""
        # Written so that -1 and 1 meet the bounds exactly.
        wide = action.astype(np.float64)
        scaled = (1.0 - wide) * self._half_low + (1.0 + wide) * self._half_high
        return scaled.astype(self._dtype).reshape(*action.shape[:-1], *self._shape)


def encode(space: gym.Space[Any], *, bounds: bool = False) -> dict[str, Any]:
    """A space as JSON values: all that flattening needs, and if asked for a box's finite bounds."""
    kind: dict[str, Any] = {"type": type(space).__name__}
    match space:
        case spaces.Box():
            ends = {"low": space.low.tolist(), "high": space.high.tolist()} if bounds else {}
            return kind | {"shape": list(space.shape), "dtype": str(space.dtype)} | ends
        case spaces.Discrete():
            return kind | {"n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return kind | {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        case spaces.MultiBinary():
            return kind | {"shape": list(space.shape)}
        case spaces.Dict():
            # Pairs: the order is that of the vector, which an object in JSON need not keep.
            return kind | {"spaces": [[str(k), encode(s)] for k, s in space.spaces.items()]}
        case spaces.Tuple():
            return kind | {"spaces": [encode(s) for s in space.spaces]}
    raise UserError(f"a {kind['type']} space cannot be written down")


def decode(data: Any, size: int) -> gym.Space[Any]:
    """The space of so many numbers that was written down; ValueError for anything else."""
    try:
        if _flat_size(data) != size:  # Before a stranger's number asks for memory.
            raise ValueError(f"it is not of {size} numbers")
        return _decode(data)
    except (KeyError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f"no space: {error!r}") from None


def _flat_size(data: Any) -> int:
    """Numbers in the vector of a space that was written down."""
    match data["type"]:
        case "Box" | "MultiBinary":
            return math.prod(_counts(data["shape"]))
        case "Discrete":
            return sum(_counts([data["n"]]))
        case "MultiDiscrete":
            return sum(_counts(np.ravel(data["nvec"]).tolist()))
        case "Dict":
            return sum(_flat_size(inner) for _, inner in data["spaces"])
        case "Tuple":
            return sum(_flat_size(inner) for inner in data["spaces"])
    raise ValueError(f"unknown space {data['type']!r}")


def _counts(values: list[Any]) -> list[int]:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values!r:.40} are no sizes")
    return values


def _decode(data: Any) -> gym.Space[Any]:
    match data["type"]:
        case "Box":
            shape, dtype = tuple(data["shape"]), np.dtype(data["dtype"])
            if dtype.kind not in NUMBERS:
                raise ValueError(f"{dtype} are no numbers")
            whole = dtype.kind != "f" and np.iinfo(dtype if dtype.kind in "iu" else np.uint8)
            ends = (whole.min, whole.max) if whole else (-np.inf, np.inf)
            low, high = (
                np.array(data[name], dtype) if name in data else np.full(shape, end, dtype)
                for name, end in zip(("low", "high"), ends, strict=True)
            )
            return spaces.Box(low, high, shape, dtype.type)
        case "Discrete":
            return spaces.Discrete(data["n"], start=data["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(data["nvec"], start=data["start"])
        case "MultiBinary":
            return spaces.MultiBinary(data["shape"])
        case "Dict":
            return spaces.Dict([(key, _decode(inner)) for key, inner in data["spaces"]])
    return spaces.Tuple([_decode(inner) for inner in data["spaces"]])
