"""What `load` takes, and what it makes of the arguments in a file."""

import inspect
from dataclasses import fields
from typing import Any

from bridgerl.config import RunConfig
from bridgerl.errors import nearest
from bridgerl.sb3 import files, replay, settings
from bridgerl.sb3.words import WORDS, ArgumentRefused

ATTRIBUTES = [f.name for f in fields(files.Attributes)]
OF_AGENT = ("tau", "actor_kwargs", "critic_kwargs", "policy_kwargs")
"""Arguments that change the settings of actor and critic."""
PARTS = ("actor", "critic", "preset")


def defaults(kind: type) -> dict[str, Any]:
    """What a constructor gives to arguments that are left out; a subclass may hide them."""
    found: dict[str, Any] = {}
    for one in reversed(kind.__mro__):
        if "__init__" in vars(one) and one is not object:
            given = inspect.signature(vars(one)["__init__"]).parameters.values()
            found |= {p.name: p.default for p in given if p.default is not p.empty}
    return found


def given(custom: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What replaces stored arguments: keywords, which must be known, and custom objects."""
    known = [*ATTRIBUTES, *files.CODE, *OF_AGENT, *WORDS, *PARTS, "policy"]
    for key in kwargs:
        if key not in known:
            raise ArgumentRefused(f"load cannot change {key!r}{nearest(key, known)}")
    stored = (*ATTRIBUTES, *files.CODE)
    return {key: value for key, value in custom.items() if key in stored} | kwargs


def take_parts(config: RunConfig, given: dict[str, Any]) -> None:
    """Take out names of parts, which who resumes may give again; others are refused."""
    given.pop("policy", None)
    own = {"actor": config.actor_name, "critic": config.critic_name, "preset": config.preset}
    for part, name in own.items():
        asked = given.pop(part, name)
        if asked not in (name, getattr(config, part)):
            raise ArgumentRefused(f"the saved model has the {part} {name}, not {asked!r}")


def adjusted(config: RunConfig, given: dict[str, Any]) -> RunConfig:
    """The saved settings with what is given for them now; the networks must stay as they are."""
    shape = given.pop("policy_kwargs", None)
    if settings.adjust(config, policy_kwargs=shape) != config:
        raise ArgumentRefused(f"policy_kwargs {shape!r} are not those of the saved model")
    changes = {name: given.pop(name) for name in OF_AGENT if name in given}
    words = {name: given.pop(name) for name in WORDS if name in given}
    return settings.adjust(config, words=words, **changes)


def stored(header: files.Header, env: Any) -> dict[str, Any]:
    """Stored arguments as the attributes that they are."""
    # Where something is written is the user's to say, not the file's.
    stored = dict(vars(header.attributes)) | {"tensorboard_log": None}
    stored["train_freq"] = stored["train_freq"], stored.pop("train_unit")
    kind = stored.pop("buffer_kind")
    if kind is not None:
        stored["replay_buffer_class"] = replay.KINDS[kind]
        if env is None:
            hint = "pass env= to load()"
            raise ArgumentRefused(f"a HerReplayBuffer asks its environment for rewards; {hint}")
    return stored if env is None else stored | {"n_envs": env.num_envs}
