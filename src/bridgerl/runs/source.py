"""Code as what it computes: checksums that comments, docstrings and layout leave alone."""

import ast
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bridgerl.runs.trust import imported, script

PACKAGE = Path(__file__).parents[1]
COMPUTING = ("agent.py", "config.py", "streams.py", "types.py", "actors", "critics", "bridge")
COMPUTING += ("nn", "ops", "settings", "envs", "training")
"""Modules and rooms of our own that decide a run's bits."""
RELEASED = ("bridgerl.", "gymnasium.", "torch.", "builtins", "typing", "abc")
"""Modules whose code the fingerprint of a run knows by their releases."""


def checksum(text: str) -> str:
    """Sixteen hex digits that another text would not have."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def statements(code: bytes) -> str:
    """What a module does, written so that comments, docstrings and layout do not show.

    What it does only as a script, under `if __name__ == "__main__":`, is left out.
    """
    tree = ast.parse(code)
    tree.body = [line for line in tree.body if not _is_script(line)]
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # That of a lambda is none.
            vars(node)["body"] = [line for line in body if not _is_text(line)]
    return ast.dump(tree)


def _is_text(line: ast.stmt) -> bool:
    """Whether a line is a docstring, of a field too: a string that nobody uses."""
    value = line.value if isinstance(line, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_script(line: ast.stmt) -> bool:
    return isinstance(line, ast.If) and ast.unparse(line.test) == "__name__ == '__main__'"


def checksum_of(rooms: Iterable[str], package: Path = PACKAGE) -> str:
    """A checksum of everything that modules and rooms of a package do."""
    roots = [package / room for room in rooms]
    paths = [p for root in roots for p in ([root] if root.suffix else root.rglob("*.py"))]
    named = {p.relative_to(package).as_posix(): statements(p.read_bytes()) for p in paths}
    return checksum(repr(sorted(named.items())))


def code_of(kinds: Iterable[type]) -> dict[str, str | None]:
    """A checksum of every module that classes come from and no release tells, by a name for it."""
    names = {module_of(base) for kind in kinds for base in kind.__mro__}
    return {f"code in {n}": _code(n) for n in sorted(names) if not n.startswith(RELEASED)}


def module_of(named: type | Callable[..., Any]) -> str:
    """Where a name is from; a script that is run counts by its file's name, as if imported."""
    return (script() if named.__module__ == "__main__" else None) or named.__module__


def _code(module: str) -> str | None:
    """A checksum of what a module does, None if its code cannot be read."""
    file = getattr(imported(module), "__file__", None)
    try:
        return None if file is None else checksum(statements(Path(file).read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return None
