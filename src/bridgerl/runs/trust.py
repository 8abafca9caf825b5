"""Whose code may run: a module that a file names is never imported for it."""

import importlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bridgerl.errors import UserError
from bridgerl.settings.environment import read_object, read_wrapper, texts

if TYPE_CHECKING:
    from bridgerl.config import RunConfig

BY_HAND = "move it into a module, or hand it over by train or load_policy(..., make_env=...)"
"""What to do about code that has no name."""
_TRUSTED: set[str] = set()
"""Environments by id whose keyword arguments the user trusts."""


def require_trusted(config: "RunConfig", where: object) -> None:
    """Refuse what a run folder names if it would import a module, or open a file, by a name."""
    wrappers = [read_wrapper(text) for text in config.env_wrappers]
    if config.env_factory is not None:
        require_findable(config.env_factory, "--env-factory")
    for name in (config.env, config.env_factory or "", *(name for name, _ in wrappers)):
        require_imported(name, where)
    given = [read_object(config.env_kwargs or "{}", "--env-kwargs"), *(a for _, a in wrappers)]
    odd = [text for values in given for text in texts(values) if re.search(r"[:./\\]", text)]
    if odd and config.env not in _TRUSTED:
        what = f"{where} hands {odd[0]!r:.80} to {config.env}, which may name code or a file"
        raise UserError(f"{what}; if you trust it, add --trust-env {config.env}")


def require_imported(env_id: str, where: object) -> None:
    """Refuse the environment that a run folder names if making it would import a module."""
    module, colon, _ = env_id.partition(":")
    if colon and imported(module) is None:
        what = f"{where} is of {env_id!r}, and importing {module!r} would run its code"
        raise UserError(f"{what}; if you trust it, add --trust-env {module}, or import it first")


def require_findable(name: str, flag: str) -> None:
    """Refuse `my_module:<lambda>` and the like, which no import brings back."""
    if not name.partition(":")[2].isidentifier():
        raise UserError(f"{flag} {name} is no function that can be imported; {BY_HAND}")


def imported(module: str) -> ModuleType | None:
    """A module whose code has run already; the script that is run counts by its file's name."""
    return sys.modules.get(module) or (sys.modules["__main__"] if module == script() else None)


def script() -> str | None:
    """What the script that is run would be called as a module; a session at a prompt has none."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return None if file is None else Path(file).stem


def import_module(name: str) -> None:
    """Trust what the user names: modules, alone or in an id, and plain ids, with commas between."""
    find_modules_here()
    for part in name.split(","):
        _TRUSTED.add(part)
        module, colon, _ = part.partition(":")
        if not colon and not all(word.isidentifier() for word in module.split(".")):
            continue  # The id of an environment that is registered without a module.
        try:
            importlib.import_module(module)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            what = f"--trust-env {part} cannot be imported: {text}"
            raise UserError(f"{what}{if_not_found(error)}") from error


def if_not_found(error: BaseException) -> str:
    """What to ask if an error is of a module that is not there, or the empty string."""
    missing = isinstance(error, ModuleNotFoundError)
    return "; is it installed, or on PYTHONPATH?" if missing else ""


def find_modules_here() -> None:
    """Look in the working folder too, as `python -m` does: both commands then find my_module."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
