"""How an environment is made: by its id or a function, with arguments, time limit and wrappers."""

import contextlib
import importlib
import io
import json
import math
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from bridgerl.config import RunConfig
from bridgerl.errors import UserError, nearest
from bridgerl.runs.trust import find_modules_here
from bridgerl.settings.environment import read_object, read_wrapper

MakeEnv = Callable[..., gym.Env[Any, Any]]

# Untyped on purpose: the engine is a compiled module without stubs.
_mujoco: Any = importlib.import_module("mujoco")


class Family(NamedTuple):
    """Environments that a package makes known to Gymnasium when it is imported."""

    ids: str
    """A pattern of their ids."""
    modules: tuple[str, ...]
    extra: str


FAMILIES = (
    Family(r"dm_control/", ("dm_control", "shimmy"), "dmc"),
    Family(
        r"(Fetch|HandReach|HandManipulate|AdroitHand|PointMaze|AntMaze|FrankaKitchen)",
        ("gymnasium_robotics",),
        "robotics",
    ),
)


@dataclass(frozen=True)
class Recipe:
    """All that decides which environment is made; the same recipe makes the same one again."""

    env_id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()
    time_limit: int | None = None
    """In place of the environment's own, in its own steps."""
    frame_skip: int = 1
    factory: str | None = None
    """`my_module:make_env`, in place of the id."""
    make_env: MakeEnv | None = field(default=None, compare=False)
    """The factory itself, where it need not be imported."""

    @classmethod
    def of(cls, config: RunConfig, make_env: MakeEnv | None = None) -> "Recipe":
        """What a run's settings say, with the factory at hand if there is one."""
        return cls(
            config.env,
            read_object(config.env_kwargs or "{}", "--env-kwargs"),
            config.env_wrappers,
            config.env_time_limit,
            config.env_frame_skip,
            config.env_factory,
            make_env,
        )

    def make(self, **more: Any) -> gym.Env[Any, Any]:
        """Make it, or refuse in one line; `more` are arguments such as render_mode."""
        _mujoco.set_mju_user_warning(lambda _: None)  # Or MUJOCO_LOG.TXT appears.
        kwargs = self.kwargs | more
        env = self._bare(kwargs) if self.factory is None else self._by_factory(kwargs)
        try:
            if self.frame_skip > 1:
                env = _wrapper("RepeatAction")(env, num_repeats=self.frame_skip)
            for text in self.wrappers:
                name, arguments = read_wrapper(text)
                env = _wrapper(name)(env, **arguments)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{self.env_id} cannot be wrapped: {reason(error)}") from error
        return env

    def _bare(self, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
        env_id = self.env_id
        if ":" in env_id:
            find_modules_here()
        register_family(env_id)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                # Its checker only warns, and in the middle of our output; ours refuses.
                how: dict[str, Any] = {"disable_env_checker": True, **kwargs}
                return gym.make(env_id, max_episode_steps=self.time_limit, **how)
        except (gym.error.NameNotFound, gym.error.VersionNotFound, gym.error.NamespaceNotFound):
            raise UserError(f"unknown environment {env_id!r}{_hint(env_id)}") from None
        except ModuleNotFoundError as error:
            what = str(error).partition(". ")[0] or reason(error)  # Gymnasium adds two sentences.
            hint = "is it installed, or on PYTHONPATH?"
            raise UserError(f"environment {env_id!r} cannot be made: {what}; {hint}") from None
        except (Exception, SystemExit) as error:
            raise UserError(f"environment {env_id!r} cannot be made: {reason(error)}") from error

    def _by_factory(self, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
        where = f"environment {self.env_id!r} of {self.factory}"
        make_env = self.make_env or load_named(self.factory or "", "--env-factory")
        try:
            env = make_env(**kwargs)
        except (Exception, SystemExit) as error:
            raise UserError(f"{where} cannot be made: {reason(error)}") from error
        if not isinstance(env, gym.Env):
            raise UserError(f"{where} is no gymnasium.Env but {type(env).__name__}")
        if self.time_limit is None:
            return env
        if time_limit_of(env) is None:
            return TimeLimit(env, self.time_limit)
        set_time_limit(env, self.time_limit)
        return env


def reason(error: BaseException) -> str:
    """What went wrong, in one line that is never empty."""
    text = " ".join(str(error).split())
    plain = isinstance(error, gym.error.Error | TypeError) and text
    return text if plain else f"{type(error).__name__}{': ' if text else ''}{text}"


def name_of(make_env: MakeEnv) -> str:
    """Where a factory is found: `my_module:make_env`, also in a script that is run."""
    kind = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    module = kind.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" and file is not None:
        module = Path(file).stem
    return f"{module}:{kind.__qualname__}"


def load_named(name: str, flag: str) -> Any:
    """What the user calls `my_module:name`."""
    module, _, path = name.partition(":")
    if not path.isidentifier():
        hint = "resume it by train(config, make_env=...), play it by load_policy"
        raise UserError(f"{flag} {name} is no function that can be imported; {hint}")
    find_modules_here()
    try:
        return getattr(importlib.import_module(module), path)
    except (Exception, SystemExit) as error:
        raise UserError(f"{flag} {name} cannot be imported: {reason(error)}") from error


def register_family(env_id: str) -> None:
    """Import the package of an extra that an id belongs to; it has something to say, we do not."""
    for family in FAMILIES:
        if env_id in gym.registry or not re.match(family.ids, env_id):
            continue
        try:
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                for module in family.modules:
                    importlib.import_module(module)
        except ImportError as error:
            hint = f"pip install 'bridgerl[{family.extra}]'"
            raise UserError(f"{env_id} needs {error.name or reason(error)}: {hint}") from None
        _compare_joint_types()


def _compare_joint_types() -> None:
    """Let MuJoCo's joint types equal their numbers from either side.

    Gymnasium-Robotics 1.4 asks whether a number is in a tuple of them. MuJoCo 3.15 answers no,
    and every Fetch task fails with an empty assertion.
    """
    kind = _mujoco.mjtJoint
    if kind.mjJNT_HINGE != np.int32(kind.mjJNT_HINGE.value):
        kind.__eq__ = lambda self, other: self.value == other


def time_limit_of(env: gym.Env[Any, Any]) -> int | None:
    """Steps of a learner after which an episode is cut off, if some wrapper says so."""
    limits, skip = [math.inf], 1
    while isinstance(env, gym.Wrapper):
        skip *= getattr(env, "num_repeats", 1) if type(env).__name__ == "RepeatAction" else 1
        if isinstance(env, TimeLimit):
            limits.append(math.ceil(env._max_episode_steps / skip))
        env = env.env
    return None if min(limits) == math.inf else int(min(limits))


def set_time_limit(env: gym.Env[Any, Any], steps: float) -> None:
    """Let every wrapper that cuts episodes off do so after so many of its steps; inf is never."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            env._max_episode_steps = steps  # pyright: ignore[reportAttributeAccessIssue]
        env = env.env


def describe(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON values."""
    return json.loads(
        json.dumps({k: v for k, v in vars(recipe).items() if k != "make_env"}, sort_keys=True)
    )


def _wrapper(name: str) -> Any:
    """A wrapper of Gymnasium, or one of the user's own."""
    if ":" in name:
        return load_named(name, "--env-wrappers")
    found = getattr(gym.wrappers, name, None)
    if found is None:
        raise UserError(f"{name} is not in Gymnasium {gym.__version__}; pip install -U gymnasium")
    return found


def _hint(env_id: str) -> str:
    """What may have been meant; of another namespace than those that are known, nothing."""
    prefix, _, name = env_id.rpartition(":")
    space, slash, _ = name.rpartition("/")
    if slash and not any(known.startswith(f"{space}/") for known in gym.registry):
        example = f"--env my_module:{name}"
        return f"; no package has registered {space}/: name the module that does, {example}"
    module = f"{prefix}:" if prefix else ""
    return nearest(env_id, [module + known for known in gym.registry]) or "; see bridgerl list"
