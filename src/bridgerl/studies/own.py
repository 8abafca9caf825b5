"""A study of one's own: a file outside the package, which whoever names it wants to run."""

import importlib.util
import os
from functools import cache
from pathlib import Path

from bridgerl.errors import NAME_RULE, UserError, choose, is_name
from bridgerl.runs.trust import find_modules_here
from bridgerl.studies import STUDIES
from bridgerl.studies.base import Study


def find_study(name: str) -> Study:
    """A study by its name, or from a file like my_study.py."""
    if name.endswith(".py"):
        return read_study(Path(name))
    return choose("study", name, STUDIES)


@cache
def read_study(path: Path) -> Study:
    """What a file calls STUDY; reading it runs the file."""
    if not os.path.isfile(path):
        raise UserError(f"there is no file {path}; studies with a name are in bridgerl list")
    find_modules_here()
    spec = importlib.util.spec_from_file_location(f"own_study_{path.stem}", path)
    assert spec is not None  # A file that ends in .py always has one.
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} fails: {type(error).__name__}: {error}") from error
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise UserError(f"{path} has no STUDY, e.g. STUDY = TrainingStudy(name=..., title=...)")
    if not is_name(study.name):
        raise UserError(f"{path}: the study's name {study.name!r} {NAME_RULE}")
    if study.name in STUDIES:
        raise UserError(f"{path}: {study.name!r} is a study of bridgerl; give yours another name")
    return study
