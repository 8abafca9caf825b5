"""A Gymnasium environment as learners see it: flat float32, actions in [-1, 1], faults named."""

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from bridgerl.envs.noisy import register_noisy
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.risky import register_risky
from bridgerl.envs.spaces import KINDS, NUMBERS, Bounds, encode, flattened, parts, require_spaces
from bridgerl.envs.time_limits import lift_limit, time_limit_of
from bridgerl.envs.watchdog import Watched
from bridgerl.errors import EnvFault, UserError
from bridgerl.streams import derive_seed
from bridgerl.types import EnvSpec

# Untyped on purpose: the engine is a compiled module without stubs.
_mujoco: Any = importlib.import_module("mujoco")
FLOAT32_MAX = float(np.finfo(np.float32).max)
_NAMES = ("mjWARN_BADQPOS", "mjWARN_BADQVEL", "mjWARN_BADQACC", "mjWARN_BADCTRL")
MUJOCO_DIVERGED = [getattr(_mujoco.mjtWarning, name).value for name in _NAMES]

RETURNS = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
"""What Gymnasium has an environment return; an older Gym had other values."""

register_noisy()
register_risky()


class Outcome(NamedTuple):
    """What one step of an environment returned."""

    obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    diverged: bool
    """MuJoCo gave up and reset itself: obs and reward belong to no transition."""


class Task:
    """One plain environment. Every episode has its own seed, so it can be replayed alone."""

    def __init__(
        self,
        env: str | Recipe,
        seed: int,
        purpose: str = "env",
        *,
        limited: bool = True,
        timeout: float | None = None,
    ) -> None:
        """`limited`: whether its time limit holds, if it has one; `timeout`: seconds per call."""
        self.recipe = Recipe(env) if isinstance(env, str) else env
        plain = self.recipe.make()
        self.time_limit = time_limit_of(plain)
        """Steps after which an episode is cut off, if the environment says so."""
        if not limited:
            lift_limit(plain)
        try:
            require_spaces(self.recipe.env_id, plain)
            self.env = flattened(plain)
            spec = check_spaces(self.recipe.env_id, self.env)
        except UserError:
            plain.close()
            raise
        action = encode(plain.action_space, bounds=True)
        own = {"observation": encode(plain.observation_space), "action": action}
        self.spec = replace(spec, spaces=own)
        if timeout is not None:
            self.env = Watched(self.env, timeout, self._fault)
        self.actions: list[np.ndarray] = []
        self._seed, self._purpose, self._episode_seed = seed, purpose, 0
        space = self.env.action_space
        assert isinstance(space, gym.spaces.Box)
        self._in_bounds = Bounds(space)
        self._obs_shape = self.env.observation_space.shape
        data: Any = getattr(self.env.unwrapped, "data", None)
        self._mujoco_data = data if isinstance(data, _mujoco.MjData) else None
        self.obs, self.reward = np.zeros(self.spec.obs_dim, np.float32), 0.0

    def reset(self, *key: int) -> np.ndarray:
        """Begin the episode with this key; returns its first observation, float32."""
        self.actions = []
        self._episode_seed = derive_seed(self._seed, self._purpose, *key) % 2**32
        obs, _ = self._ask("reset", seed=self._episode_seed)
        self.obs, self.reward = self._observation(obs), 0.0
        return self.obs

    def step(self, action: np.ndarray) -> Outcome:
        """Apply an action in [-1, 1]; a silent MuJoCo reset counts as a truncation."""
        self.actions.append(action)
        obs, reward, terminated, truncated, _ = self._ask("step", self._in_bounds(action))
        self.obs, self.reward = self._observation(obs), self._reward(reward)
        terminated = self._flag("terminated", terminated)
        truncated = self._flag("truncated", truncated)
        data = self._mujoco_data
        diverged = data is not None and bool(data.warning.number[MUJOCO_DIVERGED].any())
        if diverged:
            self.reward = 0.0  # A jump back to the start can pay thousands.
        return Outcome(self.obs, self.reward, terminated, truncated or diverged, diverged)

    def replay(self, key: tuple[int, ...], actions: np.ndarray) -> bool:
        """Rebuild an episode under way from its key and its actions; False if it ended by then."""
        self.reset(*key)
        outcomes = [self.step(action) for action in actions]
        return not any(out.terminated or out.truncated for out in outcomes)

    def reseed(self, *key: int) -> None:
        """Give the episode under way other randomness from here on, of the kind that it draws."""
        seed = derive_seed(self._seed, "reseed", *key)
        legacy: Any = np.random.RandomState  # What dm_control draws from.
        old = isinstance(self.env.np_random, legacy)
        self.env.np_random = legacy(seed % 2**32) if old else np.random.default_rng(seed)

    def close(self) -> None:
        """Close it; what it raises then is told, but changes no result."""
        try:
            self.env.close()
        except (Exception, SystemExit) as error:
            text = " ".join(f"close raised {type(error).__name__}: {error}".split())
            print(f"bridgerl: warning: {self.spec.env_id}: {text}", file=sys.stderr)

    def _ask(self, name: str, *args: Any, **how: Any) -> Any:
        """What reset or step returns, as many values as it must."""
        try:
            values = getattr(self.env, name)(*args, **how)
        except EnvFault:
            raise
        except (Exception, SystemExit) as error:
            what = f"raised {type(error).__name__}: {error}"
            if _outside(error) and "unpack" in what:  # By a wrapper, which hides what there was.
                raise self._fault(f"{_must(name)}; it {what}") from error
            if _outside(error) and "unexpected keyword argument 'seed'" in what:
                raise self._fault(f"{name} must take seed and options; it {what}") from error
            raise self._fault(f"{name} {what}") from error
        several = isinstance(values, tuple | list)
        if not several or len(values) != len(RETURNS[name]):
            got = f"{len(values)} values" if several else type(values).__name__
            raise self._fault(f"{_must(name)}, not {got}")
        return values

    def _observation(self, obs: Any) -> np.ndarray:
        if type(obs) is not np.ndarray or obs.dtype.kind not in NUMBERS:
            obs = self._numbers(obs)
        if obs.shape != self._obs_shape:
            raise self._fault(f"observation has shape {obs.shape}, not {self._obs_shape}")
        with np.errstate(over="ignore"):
            # A copy: an environment may go on to change its own array.
            flat = np.array(obs, np.float32).reshape(-1)
        finite = np.isfinite(flat)
        if not finite.all():
            index = int(np.argmin(finite))
            value = obs.reshape(-1)[index]
            raise self._fault(f"observation[{index}] is {value}, not finite in float32")
        return flat

    def _numbers(self, obs: Any) -> np.ndarray:
        """An observation that is no plain array as one; never by leaving something out."""
        if np.ma.is_masked(obs):
            raise self._fault("observation has masked numbers")
        try:
            array = np.asarray(obs)
        except Exception as error:
            raise self._fault(f"observation is no array of numbers: {error}") from error
        if array.dtype.kind not in NUMBERS:
            kind = type(obs).__name__ if array.dtype == object else array.dtype
            raise self._fault(f"observation is no array of real numbers but {kind}")
        return array

    def _reward(self, reward: Any) -> float:
        number = reward if isinstance(reward, float) else _number(reward)
        if number is None:
            raise self._fault(f"reward is of type {type(reward).__name__}, not one real number")
        if not abs(number) <= FLOAT32_MAX:
            raise self._fault(f"reward is {number}, not finite in float32")
        return float(number)

    def _flag(self, name: str, value: Any) -> bool:
        if value is True or value is False:
            return value
        if np.iterable(value) or _number(value) not in (0, 1):
            kind = type(value).__name__
            raise self._fault(f"{name} is of type {kind}, neither true nor false")
        return bool(value)

    def _fault(self, what: str) -> EnvFault:
        step, seed = len(self.actions), self._episode_seed
        return EnvFault(f"{self.spec.env_id}: {what} at step {step} of the episode seeded {seed}")


MakeTask = Callable[[str, float | None], Task]
"""Makes a task for a purpose, with so many seconds per call."""


def task_maker(recipe: Recipe, seed: int) -> MakeTask:
    """Make tasks of one recipe and seed; refuse a factory that returns one environment again."""
    made: list[gym.Env[Any, Any]] = []

    def make(purpose: str, timeout: float | None = None) -> Task:
        task = Task(recipe, seed, purpose, timeout=timeout)
        if any(task.env.unwrapped is other for other in made):
            hint = "every call must make a new one"
            raise UserError(f"{recipe.factory} returns one environment again; {hint}")
        made.append(task.env.unwrapped)
        return task

    return make


def _must(name: str) -> str:
    return f"{name} must return ({', '.join(RETURNS[name])})"


def _outside(error: BaseException) -> bool:
    """Whether it was raised by who calls an environment, not by the environment's own code."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").startswith(("gymnasium.", "bridgerl."))


def _number(value: Any) -> float | None:
    """The one real number that a value is, or holds; None if there is none, or none to see."""
    try:
        array = np.asarray(value)
    except Exception:
        return None
    known = array.size == 1 and array.dtype.kind in NUMBERS and not np.ma.is_masked(value)
    return array.item() if known else None


def check_spaces(env_id: str, env: gym.Env[Any, Any]) -> EnvSpec:
    """Sizes of a task, or a refusal that names the space and what is wanted."""
    obs, action = env.observation_space, env.action_space
    if not isinstance(obs, gym.spaces.Box):
        hint = "a Box is needed (wrap it, e.g. with gymnasium.wrappers.FlattenObservation)"
        odd = [type(part).__name__ for part in parts(obs)[1:] if not isinstance(part, KINDS)]
        inside = f" with a {odd[0]} in it" if odd else ""
        raise UserError(f"{env_id} has a {type(obs).__name__} observation space{inside}; {hint}")
    if not isinstance(action, gym.spaces.Box):
        hint = "continuous control needs a Box with finite bounds"
        raise UserError(f"{env_id} has a {type(action).__name__} action space; {hint}")
    for name, space in (("observation", obs), ("action", action)):
        if int(np.prod(space.shape)) == 0:
            raise UserError(f"{env_id} has an empty {name} space {space.shape}")
    if not np.isfinite([action.low, action.high]).all():
        hint = "give it finite ones, e.g. with gymnasium.wrappers.TransformAction"
        raise UserError(f"{env_id} has an action space with infinite or NaN bounds; {hint}")
    if not (action.low < action.high).all():
        raise UserError(f"{env_id} has an action whose low is not below its high")
    if not np.issubdtype(action.dtype, np.floating):
        raise UserError(f"{env_id} has {action.dtype} actions; floating point is needed")
    return EnvSpec(env_id, int(np.prod(obs.shape)), int(np.prod(action.shape)))
