"""Config classes by name: ours, and those that other packages announce by an entry point."""

import re
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from bridgerl.errors import UserError

T = TypeVar("T")


class Registry(MutableMapping[str, type[T]]):
    """Names to classes, written `module:Class` as in an entry point and loaded when asked for.

    The entry points of other packages join when the registry is first looked at, not earlier:
    they may import bridgerl, which must then be whole.
    """

    def __init__(self, kind: type[T], group: str, own: Mapping[str, str]) -> None:
        self.kind, self._group = kind, group
        self._entries: dict[str, type[T] | EntryPoint] = {
            name: EntryPoint(name, value, group) for name, value in own.items()
        }
        self._complete = False

    def __getitem__(self, name: str) -> type[T]:
        entry = self._all()[name]
        if not isinstance(entry, EntryPoint):
            return entry
        found: type[T] = entry.load()
        self._entries[name] = found
        return found

    def __setitem__(self, name: str, value: type[T]) -> None:
        if problem := self._name_problem(name) or self._kind_problem(value):
            raise UserError(f"{name!r} = {value!r} {problem}")
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def name_of(self, value: object) -> str | None:
        """The name of a config's class, if it has one."""
        return next((name for name, kind in self.items() if kind is type(value)), None)

    def _all(self) -> dict[str, type[T] | EntryPoint]:
        if not self._complete:
            self._complete = True
            for entry in entry_points(group=self._group):
                if problem := self._take(entry):
                    what = f"{self._group} plugin {entry.name} = {entry.value} {problem}"
                    warnings.warn(f"{what}; it is left out", stacklevel=3)
        return self._entries

    def _take(self, entry: EntryPoint) -> str | None:
        """Add a plugin, or say why not: a broken one must not break the program."""
        if problem := self._name_problem(entry.name):
            return problem
        if entry.name in self._entries:
            return "has a name that is taken"
        try:
            found = entry.load()
        except Exception as error:
            return f"cannot be loaded ({type(error).__name__}: {error})"
        if problem := self._kind_problem(found):
            return problem
        self._entries[entry.name] = found
        return None

    @staticmethod
    def _name_problem(name: object) -> str | None:
        """Names become parts of flags and of paths."""
        ok = isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name)
        return None if ok else "needs a name of at most 32 small letters, digits and _"

    def _kind_problem(self, found: object) -> str | None:
        if isinstance(found, type) and issubclass(found, self.kind):
            return None
        return f"is no {self.kind.__name__}: name the class of the settings, which has `build`"
