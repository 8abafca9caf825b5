"""Dataclasses as flags, by tyro; whatever is wrong with a command line becomes one line.

Tyro prints its errors in a box and exits. Its hook for errors is private and may change with any
release, so the box is read instead: should it change, a message gets longer and nothing breaks.
"""

import dataclasses
import inspect
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import takewhile
from typing import Any, TypeVar

import tyro

from bridgerl.actors import ACTORS
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError, nearest
from bridgerl.settings.codec import at_home
from bridgerl.settings.words import synonym

T = TypeVar("T")
OPEN_SWITCHES = {"--log.tensorboard"}
"""Switches that are neither on nor off unless somebody says so."""
OPEN_VALUES = ("True", "False", "None")
PROGRAM = "bridgerl"
HELP = {"-h", "--help"}
TRUTHS = {"true", "false", "yes", "no", "on", "off", "1", "0"}
"""Words that other programs take after a switch."""
SEVERAL = "[INT [INT ...]]"
"""What tyro calls the widths of hidden layers, the one flag with several values."""
BAD_VALUE = re.compile(r"Error parsing (\S+):.* Argument helptext: \1 (\S+( \[INT \.\.\.\]\])?)")


def refuse_odd_words(args: list[str]) -> None:
    """Refuse empty values and flags given twice; tyro would take the last one silently."""
    seen: set[str] = set()
    for before, word in zip(["", *args], args, strict=False):
        flag, equals, value = word.partition("=")
        if not word or (equals and not value and flag.startswith("--")):
            raise UserError(f"{flag or before or 'an argument'} is empty; give it a value")
        if word[0] in "–—":  # As text programs make them of two short ones.  # noqa: RUF001
            plain = f"--{word.lstrip('-–—')}"  # noqa: RUF001
            raise UserError(f"{word!r} begins with a long dash; type {plain}")
        name = _canonical(flag)
        if re.match(r"--[a-z]", flag) and name in seen:
            raise UserError(f"{flag} is given more than once; keep one")
        seen.add(name)


def with_home(word: str) -> str:
    """A word of a command line, or the value behind its `=`, as a path below the home folder."""
    flag, equals, value = word.partition("=")
    return f"{flag}={at_home(value)}" if equals and flag[:2] == "--" else at_home(word)


def take(args: list[str], picks: dict[str, str]) -> list[str]:
    """Move the values of some flags out of a command line; returns the other words."""
    rest, words = [], iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in picks:
            picks[flag] = value if equals else next(words, "--")
            if picks[flag].startswith("--"):
                raise UserError(f"{flag} needs a value (see bridgerl train --help)")
        else:
            rest.append(word)
    return rest


def take_several(args: list[str], flag: str) -> tuple[list[str], list[str] | None]:
    """Move the words after a flag, up to the next one, out of a command line; None without it."""
    if flag not in args:
        return args, None
    at = args.index(flag)
    values = list(takewhile(lambda word: word[:2] != "--", args[at + 1 :]))
    return [*args[:at], *args[at + 1 + len(values) :]], values


def parse(
    kind: Callable[..., T], args: list[str], verb: str, known: Iterable[str] = (), **options: Any
) -> T:
    """An instance of a dataclass from its flags; `known` are the names to suggest."""
    result, unknown = parse_some(kind, args, verb, **options)
    if unknown:
        flag = _valued_switch(unknown[0], args, options.get("default", kind))
        why = _not_so(flag) if flag else _why_unknown(unknown[0], known or flags_of(kind))
        raise UserError(f"{why} (see bridgerl {verb} --help)")
    return result


def parse_some(
    kind: Callable[..., T], args: list[str], verb: str, **options: Any
) -> tuple[T, list[str]]:
    """An instance of a dataclass from its flags, and the words that are none of them."""
    args = _with_values(args)
    options |= {"prog": f"bridgerl {verb}", "return_unknown_args": True}
    if HELP & set(args):
        tyro.cli(kind, args=["--help"], **options)  # Prints and leaves.
    box, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"  # So wide that no flag is broken at a hyphen.
    try:
        # Tyro looks at stdout to choose frames and colours, and prints errors to stderr.
        with redirect_stdout(box), redirect_stderr(box):
            return tyro.cli(kind, args=args, **options)
    except SystemExit:
        see = f"(see bridgerl {verb} --help)"
        why = _missing(box.getvalue(), verb, kind) or _one_line(box.getvalue(), args)
        raise UserError(f"{why} {see}") from None
    finally:
        del os.environ["COLUMNS"]
        os.environ |= {} if columns is None else {"COLUMNS": columns}


def _with_values(args: list[str]) -> list[str]:
    """A command line whose open switches have the value that tyro wants of them."""
    words: list[str] = []
    for word, after in zip(args, [*args[1:], ""], strict=False):
        typed, equals, given = word.partition("=")
        switch = _canonical(typed)
        if switch in OPEN_SWITCHES and given not in ("", *OPEN_VALUES):
            raise UserError(_not_so(switch))
        if switch in OPEN_SWITCHES and switch != typed.replace("_", "-"):
            words += [switch, "False"]
        else:
            bare = switch in OPEN_SWITCHES and not equals and after not in OPEN_VALUES
            words += [word, "True"] if bare else [word]
    return words


def flags_of(config: Any, prefix: str = "--") -> list[str]:
    """The flags of a config, or of a config class without sections."""
    return [flag for flag, _ in _settings(config, prefix)]


def _settings(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every flag, with its value or default."""
    for field in dataclasses.fields(config):
        name = prefix + field.name.replace("_", "-")
        value = getattr(config, field.name, None)
        if dataclasses.is_dataclass(value):
            yield from _settings(value, f"{name}.")
        else:
            yield name, value


def negated(flag: str) -> str:
    """The flag that turns a switch off."""
    section, dot, name = flag.removeprefix("--").rpartition(".")
    return f"--{section}{dot}no-{name}"


def _valued_switch(value: str, args: list[str], config: Any) -> str | None:
    """The switch that was given this value, true or the like, if there is one."""
    switches = {flag for flag, on in _settings(config, "--") if isinstance(on, bool)}
    switches |= OPEN_SWITCHES
    for before, word in zip(["", *args], args, strict=False):
        flag, equals, given = word.partition("=") if word[:2] == "--" else (before, "=", word)
        known = equals and _canonical(flag) in switches
        if known and given == value and value.lower() in TRUTHS:
            return _canonical(flag)
    return None


def _not_so(switch: str) -> str:
    return f"{switch} is a switch; write {switch} or {negated(switch)}"


def _canonical(flag: str) -> str:
    """Tyro takes --a.b-c, --a.b_c and --a.no-b-c (--b and --no-b) for one field."""
    return re.sub(r"^(--|.*\.)no-", r"\1", flag.replace("_", "-"))


def _missing(box: str, verb: str, kind: Any) -> str | None:
    """What an argument without a flag is, and how it is typed, if one of tyro's boxes misses it."""
    text = " ".join(box.split())
    example = re.search(r"Example: (.+)", inspect.getdoc(kind) or "")
    such = f", e.g. {example[1]}" if example else ""
    if found := re.search(r"Missing from bridgerl \S+: (\S+) ([^.;:,]+)", text):
        name, what = found.groups()
        about = "" if name.startswith("--") else f" ({what[0].lower()}{what[1:]})"
        return f"bridgerl {verb} needs {name}{about}{such}"
    if found := re.search(r"Missing value for argument '(\w+)'", text):
        name = found[1].replace("_", "-")
        return f"bridgerl {verb} takes {name} without --{name} before it{such}"
    return None


def _one_line(box: str, args: list[str]) -> str:
    """The message inside one of tyro's boxes, without title, frame and advice."""
    parts = re.split(r" -{5,} ?", " ".join(box.split()))  # Title, message, advice between rules.
    bad_value = BAD_VALUE.search(" ".join(parts))
    if bad_value is None:
        return parts[1] if len(parts) > 1 else parts[0]
    flag, wanted = bad_value.group(1, 2)
    split = [word.partition("=") for word in args]
    at = [_canonical(name) for name, _, _ in split].index(flag)
    _, equals, value = split[at]
    typed = value if equals else " ".join(takewhile(lambda w: w[:2] != "--", args[at + 1 :]))
    if wanted == SEVERAL:
        numbers = re.findall(r"\d+", typed) if re.fullmatch(r"[\d\s,()[\]]+", typed) else []
        hint = f"; write {' '.join(numbers)}, without commas or quotes" if numbers else ""
        return f"{flag} takes whole numbers, got {typed!r}{hint}"
    whole = _whole_number(typed) if "INT" in wanted else None
    return f"{flag} takes {wanted}, got {typed!r}{'' if whole is None else f'; write {whole}'}"


def _whole_number(typed: str) -> int | None:
    """What 1e6 and 100,000 mean."""
    plain = re.fullmatch(r"\d{1,3}(,\d{3})+|\d{1,3}(\.\d+)?e\d", typed)
    value = float(typed.replace(",", "")) if plain else 0.5
    return int(value) if value.is_integer() else None


def _why_unknown(word: str, known: Iterable[str]) -> str:
    """Why a word is not understood, with the nearest flag or the actor it belongs to."""
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; settings are given as --flag value"
    flag = word.partition("=")[0]
    for section, table in (("actor", ACTORS), ("critic", CRITICS)):
        owners = [name for name, cls in table.items() if flag in flags_of(cls, f"--{section}.")]
        if owners:
            of = " and ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
            return f"{flag} is a flag of {section} {of}; add --{section} {owners[0]} or drop it"
    return f"unknown flag {flag!r}{_synonym(flag, known) or nearest(flag, known)}"


def _synonym(flag: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a word that other libraries have, or the empty string."""
    section, dot, last = flag.lstrip("-").rpartition(".")
    ours = synonym(last)
    if ours is None:
        return ""
    names = [f"--{section}{dot}{ours}", ours] if dot else [ours]
    found = [k for name in names for k in known if k == name or k.endswith(f".{name}")]
    return f"; did you mean {found[0]}?" if found else ""
