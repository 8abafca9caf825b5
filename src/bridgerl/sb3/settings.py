"""Turn constructor arguments into the configs of actor and critic."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from bridgerl.actors import ACTORS, ActorConfig
from bridgerl.actors.sac import SACConfig
from bridgerl.config import RunConfig, decode, encode
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import StorageFault
from bridgerl.presets import resolve
from bridgerl.sb3.words import spoken, translate, typed_words

UNNAMED = "the environment"
STORED = ("env", "preset", "actor", "critic")
"""What of a RunConfig decides the agent; the rest is Stable-Baselines3's."""

Changes = dict[str, Any]


def env_id(env: gym.Env[Any, Any] | VecEnv | None) -> str:
    """The Gymnasium id, which picks a task's presets; custom environments may have none."""
    # Gymnasium's own text tells the id. The spec itself may hold a lambda, and asking a worker
    # process for what cannot be pickled kills it.
    text = str(env)
    if isinstance(env, VecEnv):
        with contextlib.suppress(Exception):  # What a VecEnv of one's own has may raise anything.
            text = str(env.env_method("__str__", indices=[0])[0])
    found = re.search(r"<([^<>]+)>+$", text) if env is not None else None
    return found[1] if found and not found[1].endswith(" instance") else UNNAMED


def settle(
    env: str, actor: str | ActorConfig, critic: str | CriticConfig, preset: str
) -> RunConfig:
    """The preset's settings for names; a config instance stands for itself."""
    config = resolve(env, _name(actor, ACTORS), _name(critic, CRITICS), preset)
    given = {"actor": actor, "critic": critic}
    return replace(config, **{k: v for k, v in given.items() if not isinstance(v, str)})


def adjust(
    config: RunConfig,
    *,
    tau: float | None = None,
    policy_kwargs: Changes | None = None,
    actor_kwargs: Changes | None = None,
    critic_kwargs: Changes | None = None,
    words: Changes | None = None,
) -> RunConfig:
    """The settings with what arguments of Stable-Baselines3, and then ours, change in them."""
    policy_kwargs, words = policy_kwargs or {}, words or {}
    changes = translate(config, policy_kwargs, words)
    with spoken(typed_words(policy_kwargs, words, tau)):
        for part, given in (("actor", actor_kwargs), ("critic", critic_kwargs)):
            if tau is not None and hasattr(getattr(config, part), "polyak"):
                changes[part]["polyak"] = tau  # Not every actor has a target policy.
            config = config.changed(**{part: changes[part] | (given or {})})
    return config


def renews_noise(actor: ActorConfig) -> bool:
    """Whether the actor holds its noise until Stable-Baselines3's loop asks for other."""
    return isinstance(actor, SACConfig) and actor.sde and actor.sde_sample_every is None


def to_json(config: RunConfig) -> Changes:
    """The settings of an agent as JSON values."""
    data = encode(config)
    return {key: data[key] for key in STORED}


def from_json(data: Changes) -> RunConfig:
    """Read them back; anything unknown, missing or mistyped is refused."""
    if set(data) != set(STORED):
        raise StorageFault(f"the stored agent must have {', '.join(STORED)}")
    return decode(encode(resolve(UNNAMED)) | data)


def _name(part: object, table: Mapping[str, Any]) -> str:
    if isinstance(part, str):
        return part
    return next((name for name, cls in table.items() if cls is type(part)), repr(part))
