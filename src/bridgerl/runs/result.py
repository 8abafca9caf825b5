"""The result of a job that is no training: one sealed file with scores, curves and its own data."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bridgerl.errors import StorageFault
from bridgerl.runs import store

T = TypeVar("T")
RESULT = "result.json"


class ResultCell(NamedTuple):
    """What a job says of one setting on one task."""

    setting: str
    task: str
    seed: int | None
    scores: dict[str, float | None]
    """The score by each measure; None where it has no value."""
    curve: list[list[float]] = []  # noqa: RUF012
    """Points (x, y) of the study's figure."""
    exact: bool = False
    """Whether scores follow from formulas and have no spread."""


class Result(NamedTuple):
    """What a job found, and which job that was."""

    job: dict[str, Any]
    """All settings that decide the result."""
    cells: list[ResultCell]
    data: dict[str, Any]
    """Whatever else pictures and verbs need."""
    versions: dict[str, str]


def read_kept(path: Path, read: Callable[[Path], T]) -> T | None:
    """What is kept of a cell, None if it was not run; damage is refused with what to do."""
    if not os.path.lexists(path):
        return None
    try:
        return read(path)
    except StorageFault as fault:
        raise StorageFault(f"{fault}; delete it to run this cell again") from None


def write_result(path: Path, result: Result) -> None:
    """Write a result under its name at once or not at all."""
    cells = [cell._asdict() for cell in result.cells]
    try:
        store.publish_file(path, store.to_sealed_json(result._asdict() | {"cells": cells}))
    except OSError as error:
        raise StorageFault(f"{path.parent}: result not written: {error}") from error


def read_result(path: Path) -> Result:
    """Read a result back; StorageFault if it is damaged, or no result at all."""
    data = store.open_sealed_json(store.read_json_bytes(path), str(path))
    try:
        cells = [ResultCell(**cell) for cell in data.pop("cells")]
        result = Result(**data, cells=cells)
        for part in (result.job, result.data, result.versions, *(c.scores for c in cells)):
            if not isinstance(part, dict):
                raise TypeError(f"{part!r} is no object")
    except (KeyError, TypeError, AttributeError) as error:
        raise StorageFault(f"{path} is damaged: {error}") from None
    return result
