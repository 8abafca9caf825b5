"""Dataclasses from JSON values, each checked against its annotation."""

import dataclasses
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bridgerl.errors import UserError, nearest
from bridgerl.settings.words import synonym

C = TypeVar("C")
PARTS = ("actor", "critic")
"""Sections that have a kind, which is chosen by its name."""
WANTED: dict[Any, str] = {
    int: "a whole number (int)",
    float: "a number (float)",
    bool: "True or False",
    str: "text (str)",
}
"""The types of settings in words; NumPy's own numbers are none of them."""


def decode_fields(cls: type[C], data: dict[str, Any], where: str) -> C:
    """Build a dataclass from JSON values, each of its annotated type.

    A field may be missing if it has a default: what was written before the field came keeps its
    meaning. Anything unknown is refused.
    """
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    empty = dataclasses.MISSING
    needed = {f.name for f in fields if f.default is empty and f.default_factory is empty}
    wrong = sorted((set(data) - {f.name for f in fields}) | (needed - set(data)))
    if wrong:
        raise UserError(f"config section {where}: unknown or missing fields {', '.join(wrong)}")
    return cls(**{k: _decode_value(hints[k], v, f"{where}.{k}") for k, v in data.items()})


def encode_part(name: str, config: Any) -> dict[str, Any]:
    """An actor or a critic as JSON values, with the name that it is registered under."""
    return {"type": name, **dataclasses.asdict(config)}


def change_fields(config: C, changes: Mapping[str, Any], where: str) -> C:
    """A dataclass with other values in some fields; a mapping changes fields of a section."""
    fields = dataclasses.fields(config)  # pyright: ignore[reportArgumentType]
    values = {f.name: getattr(config, f.name) for f in fields}
    for name, value in changes.items():
        if name not in values:
            hint = _meant(name, values) or nearest(name, values)
            raise UserError(f"{where} has no setting {name!r}{hint}")
        old = values[name]
        part = dataclasses.is_dataclass(old)
        if part and name in PARTS and isinstance(value, str):
            what = f"config field {where}.{name} cannot be {value!r}"
            raise UserError(f"{what}; begin with resolve(..., {name}={value!r})")
        inside = part and isinstance(value, Mapping)
        values[name] = change_fields(old, value, name) if inside else value
    return decode_fields(type(config), values, where)


def _meant(name: str, values: Mapping[str, Any]) -> str:
    """`; did you mean X?` for another library's word, or a setting of a section; or nothing."""
    for word in filter(None, (name, synonym(name.replace("_", "-")))):
        if word in values:
            return f"; did you mean {word}?"
        for section, inner in values.items():
            if dataclasses.is_dataclass(inner) and word in vars(inner):
                return f"; did you mean {section}={{{word!r}: ...}}?"
    return ""


def at_home(path: str) -> str:
    """A path below the home folder, where `~` was not the shell's to read."""
    # Not `~somebody`: a name may hold what the system's list of users cannot be asked for.
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path


def takes(cls: type, field: str, value: Any) -> bool:
    """Whether a dataclass has a field of that name whose annotation allows a value."""
    try:
        _decode_value(get_type_hints(cls)[field], value, field)
    except (KeyError, UserError):
        return False
    return True


def _decode_value(hint: Any, value: Any, where: str) -> Any:
    """Check one JSON value against its annotation: a bool is no int, a float holds its int."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _decode_value(next(a for a in args if a is not type(None)), value, where)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_decode_value(args[0], v, where) for v in value)
    if origin is Literal and value in args:
        return value
    section = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    if section and isinstance(value, dict):
        return decode_fields(hint, value, where)
    if hint is Path and isinstance(value, str | Path):
        return Path(at_home(str(value)))
    if hint is float and (type(value) is float or (type(value) is int and abs(value) < 2**53)):
        return float(value)
    if type(value) is hint or (section and isinstance(value, hint)):
        return value
    wanted = f"; it takes {WANTED[hint]}" if hint in WANTED else ""
    raise UserError(f"config field {where} cannot be {value!r}{wanted}")
