"""What the settings of an environment say: keyword arguments and wrappers, written as JSON."""

import json
import re
from collections.abc import Mapping
from typing import Any

from bridgerl.errors import UserError, nearest

WRAPPERS = (
    *("ClipReward", "DelayObservation", "DiscretizeObservation", "FilterObservation"),
    *("FlattenObservation", "FrameStackObservation"),
    *("RecordEpisodeStatistics", "RepeatAction", "RescaleAction", "RescaleObservation"),
    *("ReshapeObservation", "StickyAction", "TimeAwareObservation", "TimeLimit"),
    "TargetReturn",
)
"""Wrappers of Gymnasium, and one of ours, that a run may name: they write no files, need no code,
end no episode that goes on, and remember nothing that a checkpoint would have to keep."""
INSTEAD = {
    "NormalizeObservation": "use --train.normalize-obs, which a checkpoint keeps",
    "NormalizeReward": "use --train.normalize-returns, which a checkpoint keeps",
    "MaxAndSkipObservation": "use --env-frame-skip, which ends with the episode",
    "ClipAction": "actions stay within the bounds as it is",
    "RecordVideo": "wrap an environment of your own to film a policy (load_policy)",
}
RESERVED = {"id": "--env", "max_episode_steps": "--env-time-limit"}
RESERVED |= {"disable_env_checker": "no flag, it is off"}
"""Arguments that are not the environment's own."""
OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def read_object(text: str, flag: str) -> dict[str, Any]:
    """A JSON object, or a refusal that shows how one is typed."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        example = """'{"name": 1, "other": false}'"""
        raise UserError(f"{flag} must be a JSON object like {example}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{flag} must be a JSON object in braces, got {text!r:.80}")
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def canonical_kwargs(given: str | Mapping[str, Any] | None) -> str | None:
    """The one way to write these arguments, so that equal ones compare equal."""
    if given is None:
        return None
    flag = "--env-kwargs"
    values = read_object(given if isinstance(given, str) else _dump(given, flag), flag)
    for name in RESERVED.keys() & values.keys():
        raise UserError(f"{flag} cannot hold {name}; use {RESERVED[name]}")
    return _dump(values, flag) if values else None


def canonical_wrapper(text: str) -> str:
    """The one way to write a wrapper with its arguments, or a refusal."""
    name, arguments = read_wrapper(text)
    if name in INSTEAD:
        raise UserError(f"--env-wrappers cannot hold {name}; {INSTEAD[name]}")
    if name not in WRAPPERS and not OWN.fullmatch(name):
        hint = nearest(name, WRAPPERS) or f" (known: {', '.join(WRAPPERS)})"
        own = "one of your own is my_module:MyWrapper"
        raise UserError(f"unknown wrapper {name!r}{hint}; {own}")
    return f"{name}={_dump(arguments, '--env-wrappers')}" if arguments else name


def read_wrapper(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of `Name` or `Name={"argument": value}`."""
    name, equals, arguments = text.partition("=")
    return name, read_object(arguments, f"--env-wrappers {name}=") if equals else {}


def _dump(values: Mapping[str, Any], flag: str) -> str:
    try:
        return json.dumps(values, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        hint = "what is no JSON belongs into train(config, make_env=...)"
        raise UserError(f"{flag} cannot be written as JSON ({error}); {hint}") from None


def texts(value: Any) -> list[str]:
    """Every text inside JSON values."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in texts(item)]
