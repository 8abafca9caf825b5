"""How an environment is made: by its id or a function, with arguments, time limit and wrappers."""

import contextlib
import importlib
import io
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import find_highest_version, parse_env_id

from bridgerl.config import RunConfig
from bridgerl.envs.target_return import TargetReturn
from bridgerl.envs.time_limits import told_limit, with_limit
from bridgerl.errors import UserError, install, nearest
from bridgerl.runs.source import module_of
from bridgerl.runs.trust import (
    BY_HAND,
    find_modules_here,
    if_not_found,
    imported,
    require_findable,
)
from bridgerl.settings.environment import read_object, read_wrapper

MakeEnv = Callable[..., gym.Env[Any, Any]]

# Untyped on purpose: the engine is a compiled module without stubs.
_mujoco: Any = importlib.import_module("mujoco")


class Family(NamedTuple):
    """Environments that a package makes known to Gymnasium when it is imported."""

    ids: str
    """A pattern of the ids of its environments."""
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
    """Steps of the environment after which an episode is cut off, in place of its own limit."""
    frame_skip: int = 1
    factory: str | None = None
    """Function that makes the environment in place of the id, as `my_module:make_env`."""
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
                env = told_limit(env) if name == "TimeAwareObservation" else env
                env = _wrapper(name)(env, **arguments)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{self.env_id} cannot be wrapped: {reason(error)}") from error
        return env

    def _bare(self, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
        env_id = self.env_id
        module, _, name = env_id.rpartition(":")
        register_family(env_id)
        try:
            if module:
                find_modules_here()
                importlib.import_module(module)
            _require_version(env_id, name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                # Its checker only warns, and in the middle of our output; ours refuses.
                how: dict[str, Any] = {"disable_env_checker": True, **kwargs}
                env = gym.make(env_id, max_episode_steps=self.time_limit, **how)
                return env if self.time_limit is None else with_limit(env, self.time_limit)
        except UserError:
            raise
        except (gym.error.NameNotFound, gym.error.VersionNotFound, gym.error.NamespaceNotFound):
            raise UserError(f"unknown environment {env_id!r}{_hint(env_id)}") from None
        except ModuleNotFoundError as error:
            what = f"environment {env_id!r} cannot be made: {error}"
            raise UserError(f"{what}{if_not_found(error)}") from None
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
        return with_limit(env, self.time_limit)


def reason(error: BaseException) -> str:
    """What went wrong, in one line that is never empty."""
    text = " ".join(str(error).split())
    plain = isinstance(error, gym.error.Error | TypeError) and text
    return text if plain else f"{type(error).__name__}{': ' if text else ''}{text}"


def name_of(make_env: MakeEnv) -> str:
    """Where a factory is found: `my_module:make_env`, also in a script that is run."""
    kind = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    return f"{module_of(kind)}:{kind.__qualname__}"


def load_named(name: str, flag: str) -> Any:
    """The object that a user calls `my_module:name`."""
    module, _, path = name.partition(":")
    require_findable(name, flag)
    find_modules_here()
    try:
        return getattr(imported(module) or importlib.import_module(module), path)
    except AttributeError as error:
        raise UserError(f"{flag} {name} is not there: {reason(error)}; {BY_HAND}") from error
    except (Exception, SystemExit) as error:
        what = f"{flag} {name} cannot be imported: {reason(error)}"
        raise UserError(f"{what}{if_not_found(error)}") from error


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
            what = f"{env_id} needs {error.name or reason(error)}"
            raise UserError(f"{what}: {install(family.extra)}") from None
        _compare_joint_types()


def _compare_joint_types() -> None:
    """Let MuJoCo's joint types equal their numbers from either side.

    Gymnasium-Robotics 1.4 asks whether a number is in a tuple of them. MuJoCo 3.15 answers no,
    and every Fetch task fails with an empty assertion.
    """
    kind = _mujoco.mjtJoint
    if kind.mjJNT_HINGE != np.int32(kind.mjJNT_HINGE.value):
        kind.__eq__ = lambda self, other: self.value == other


def describe(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON values."""
    return json.loads(
        json.dumps({k: v for k, v in vars(recipe).items() if k != "make_env"}, sort_keys=True)
    )


def _wrapper(name: str) -> Any:
    """A wrapper of Gymnasium, of ours, or one of the user's own."""
    if ":" in name:
        return load_named(name, "--env-wrappers")
    if name == TargetReturn.__name__:
        return TargetReturn
    found = getattr(gym.wrappers, name, None)
    if found is None:
        raise UserError(f"{name} is not in Gymnasium {gym.__version__}; pip install -U gymnasium")
    return found


def _require_version(env_id: str, name: str) -> None:
    """Refuse an id that stands for its newest version: tomorrow that may be another one."""
    space, bare, version = parse_env_id(name)
    newest = find_highest_version(space, bare)
    if version is None and newest is not None:
        raise UserError(f"unknown environment {env_id!r}; did you mean {env_id}-v{newest}?")


def _hint(env_id: str) -> str:
    """What may have been meant, and where one that nobody knows may come from."""
    prefix, _, name = env_id.rpartition(":")
    space, slash, _ = name.rpartition("/")
    example = f"--env my_module:{name}"
    if slash and not any(known.startswith(f"{space}/") for known in gym.registry):
        return f"; no package has registered {space}/: name the module that does, {example}"
    if prefix:
        return nearest(env_id, [f"{prefix}:{known}" for known in gym.registry])
    return f"{nearest(env_id, gym.registry)}; one of your own needs its module, {example}"
