"""Failures a user can act on; the command line prints the one line and exits with the code."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def printable(text: object) -> str:
    """One line in which every character shows: a stranger's text must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


class BridgeError(Exception):
    """Base of every failure with a message meant for the user: one line, all of it visible."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(printable(" ".join(text.split())))


class UserError(BridgeError):
    """Refused at the door: nothing was started or changed."""

    exit_code = 2


class Unregistered(UserError):
    """A config names an actor or a critic of a package that is not here."""


class Busy(UserError):
    """Somebody else is writing there."""


class EnvFault(BridgeError):
    """The environment raised, or returned something that is not a number."""

    exit_code = 3


class NumericFault(BridgeError):
    """Losses or gradients stopped being finite."""

    exit_code = 4


class StorageFault(BridgeError):
    """A run folder is damaged, or cannot be written."""

    exit_code = 5


def require(ok: bool, name: str, value: object, rule: str) -> None:
    """Refuse a setting under its flag: `--critic.polyak must be in (0, 1], got 2.0`."""
    if not ok:
        raise UserError(f"--{name.replace('_', '-')} {rule}, got {value!r}")


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` with the closest known name, or the empty string.

    A flag may be called by its last word: dashes and sections make all flags alike.
    """
    names: dict[str, str] = {}
    for name in known:
        bare = name.lstrip("-").lower()
        names.setdefault(bare, name)
        names.setdefault(bare.rpartition(".")[2] if name.startswith("--") else bare, name)
    close = difflib.get_close_matches(word.lstrip("-").lower(), names, n=1)
    return f"; did you mean {names[close[0]]}?" if close else ""


def choose(kind: str, name: object, table: Mapping[str, T]) -> T:
    """Look a name up in a registry, or refuse with the nearest one."""
    if not isinstance(name, str) or name not in table:
        known = ", ".join(table)
        raise UserError(f"unknown {kind} {name!r}{nearest(str(name), table)} (known: {known})")
    return table[name]


def require_some(name: str, values: tuple[object, ...]) -> None:
    """Refuse an empty list, and one that names something twice."""
    require(len(values) > 0, name, values, "needs at least one")
    require(len(set(values)) == len(values), name, values, "names one twice")


SEED_RULE = "must be from 0 to 2**32 - 1"
NAME_RULE = "must be Latin letters, digits, '.', '_' or '-', at most 64, none of these first"


def is_seed(seed: int) -> bool:
    """Whether every generator would take this seed."""
    return 0 <= seed < 2**32


def require_seeds(name: str, *seeds: int) -> None:
    """Refuse seeds that some generator would not take."""
    for seed in seeds:
        require(is_seed(seed), name, seed, SEED_RULE)


def is_name(text: str) -> bool:
    """Whether a folder may be called so."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is not None


def require_name(name: str, value: str) -> None:
    """Refuse what no folder may be called."""
    require(is_name(value), name, value, NAME_RULE)


def install(extra: str) -> str:
    """What to type for the packages of an extra: bridgerl is installed from its repository."""
    return f"pip install -c constraints.txt -e '.[{extra}]' in the folder of bridgerl's repository"
