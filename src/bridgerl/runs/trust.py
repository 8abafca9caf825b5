"""Whose code may run: a module that a file names is never imported for it."""

import importlib
import os
import sys

from bridgerl.errors import UserError


def require_imported(env_id: str, where: object) -> None:
    """Refuse the environment that a run folder names if making it would import a module."""
    module, colon, _ = env_id.partition(":")
    if colon and module not in sys.modules:
        what = f"{where} is of {env_id!r}, and importing {module!r} would run its code"
        raise UserError(f"{what}; if you trust it, add --trust-env {module}, or import it first")


def import_module(name: str) -> None:
    """Import the module of environments that the user names, alone or in an id."""
    find_modules_here()
    try:
        importlib.import_module(name.partition(":")[0])
    except Exception as error:
        text = " ".join(str(error).split())
        raise UserError(f"--trust-env {name} cannot be imported: {text}") from error


def find_modules_here() -> None:
    """Look in the working folder too, as `python -m` does: both commands then find my_module."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
