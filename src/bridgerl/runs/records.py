"""What a run's logs tell: records, evaluations, time. Odd files are a StorageFault, no more."""

import contextlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from bridgerl.errors import StorageFault
from bridgerl.runs import store

MAX_ARRAY_BYTES = 2**28
NOT_ARRAYS = (OSError, ValueError, TypeError, EOFError, MemoryError, RuntimeError)
NOT_ARRAYS += (zlib.error, zipfile.BadZipFile)
"""What NumPy raises when a file is none of its own."""
Array = np.ndarray[Any, np.dtype[np.float64]]
Record = dict[str, Any]


def read_metrics(data: bytes, name: str) -> list[Record]:
    """Records of a log of metrics, refusing lines that are not what `RunLog` writes.

    A last line without its end is one being written right now, or torn by a kill: not yet there.
    """
    records = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        record = store.parse_json(line, f"{name} line {number}")
        store.require_intact(_is_record(record), f"{name} line {number}", "not a record")
        records.append(record)
    return records


def _is_record(record: Any) -> bool:
    """Whether `RunLog` could have written this, as far as its readers rely on it."""
    step = record.get("step") if isinstance(record, dict) else None
    if type(step) is not int or not is_number(step):
        return False
    if record.get("kind") != "eval":
        return isinstance(record.get("kind"), str)
    returns, lengths = record.get("eval/returns"), record.get("eval/lengths")
    rows = [[record.get("eval/return_mean")], returns, lengths]
    return all(isinstance(row, list) and row and all(map(is_number, row)) for row in rows)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether this is a number that a float can hold."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


def last_value(path: Path, key: str) -> float | None:
    """The newest number under a key, if the last whole lines of a log have one."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 65536))
        for line in reversed(file.read().split(b"\n")[:-1]):
            if f'"{key}"'.encode() in line:
                return float(json.loads(line)[key])
    return None


LATE = 10
"""Evaluations that count as a run's end, where a tail takes more episodes than the last has."""


class Evaluations(NamedTuple):
    """Mean returns by step."""

    steps: Array = np.empty(0)
    means: Array = np.empty(0)

    def summary(self) -> dict[str, float]:
        """Best, final and average of the means: the three ways tables are made."""
        if len(self.means) == 0:
            return {}
        # A broken evaluation must not pass for a good one: argmax and mean keep its NaN.
        best = int(self.means.argmax())
        return {
            "best_return": float(self.means[best]),
            "best_step": int(self.steps[best]),
            "final_return": float(self.means[-1]),
            "average_return": float(self.means.mean()),
        }


def evaluations_of(records: Sequence[Record], name: str = "the log") -> Evaluations:
    """The evaluations among the records of a run."""
    rows = [(r["step"], r["eval/return_mean"]) for r in records if r["kind"] == "eval"]
    steps = [step for step, _ in rows]
    store.require_intact(steps == sorted(set(steps)), name, "steps of evaluations must rise")
    return Evaluations(*np.array(rows, dtype=float).reshape(-1, 2).T)


def late_episodes(records: Sequence[Record]) -> Array:
    """The returns of all episodes of the last LATE evaluations, ascending."""
    rows = [r["eval/returns"] for r in records if r["kind"] == "eval"][-LATE:]
    return np.sort(np.array([value for row in rows for value in row], dtype=float))


def read_evaluations(path: Path) -> Evaluations:
    """The arrays of Stable-Baselines3's EvalCallback, ours or other people's."""
    data = store.read_bytes(path, MAX_ARRAY_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(item.file_size for item in archive.infolist()) > MAX_ARRAY_BYTES:
                raise StorageFault(f"{path} is too large")
            names = ("timesteps", "results")
            missing = [name for name in names if f"{name}.npy" not in archive.namelist()]
            if missing:
                raise StorageFault(f"{path} has no array {' and '.join(missing)}")
            # Read to their ends, where the archive's own checksums are compared.
            steps, results = (_read_array(archive.read(f"{name}.npy")) for name in names)
    except NOT_ARRAYS as error:
        raise StorageFault(f"{path} is damaged: {error}") from None
    if steps.ndim != 1 or results.ndim not in (1, 2) or len(steps) != len(results):
        raise StorageFault(f"{path} is odd: {steps.shape} steps, {results.shape} results")
    if len(steps) == 0:
        raise StorageFault(f"{path} holds no evaluation")
    rows = results.reshape(len(steps), -1)
    # Our own rows are padded with NaN when the number of episodes changed.
    counts = np.isfinite(rows).sum(axis=1)
    with np.errstate(over="ignore"):  # What overflows is refused below.
        means = np.where(counts > 0, np.nansum(rows, axis=1) / np.maximum(counts, 1), math.nan)
    if not (np.isfinite(steps).all() and np.isfinite(means).all() and (np.diff(steps) > 0).all()):
        raise StorageFault(f"{path} is odd: steps must rise and every return be a number")
    return Evaluations(steps, means)


def _read_array(data: bytes) -> Array:
    """Numbers of a .npy file, whose header must ask for exactly the bytes that are there."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    header = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = header(file)
    if dtype.kind not in "iuf":
        raise ValueError("steps and results must be numbers")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"an array of shape {shape} has another size")
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False), dtype=float)


class Clock(NamedTuple):
    """Seconds of training, evaluation left out, by step; wall time with everything."""

    steps: Array = np.empty(0)
    seconds: Array = np.empty(0)
    wall: float = 0.0

    def hours_per_million(self, warmup: float) -> float | None:
        """Hours of a million steps; the quick warm-up counts once, not in proportion."""
        after = np.flatnonzero(self.steps > warmup)
        if len(after) == 0:
            return None
        # The last line before learning starts, or the run's first moment.
        start = after[0] - 1
        step, second = (self.steps[start], self.seconds[start]) if start >= 0 else (0, 0)
        if self.steps[-1] <= step:
            return None
        rate = (self.seconds[-1] - second) / (self.steps[-1] - step)
        return float(second + rate * max(0, 1e6 - step)) / 3600

    def hours_at(self, steps: Array) -> Array:
        """Hours of training at these steps; NaN beyond the log."""
        if len(self.steps) == 0:
            return np.full(len(steps), math.nan)
        x, y = np.append(0, self.steps), np.append(0, self.seconds)
        return np.interp(steps, x, y, right=math.nan) / 3600


def read_clock(path: Path) -> Clock:
    """Time by step from a log of timing, whose seconds restart with every start of the run.

    A later start takes the place of the steps it did again; what it loads is not training.
    """
    lines = store.read_log(path).split(b"\n")[:-1]
    points: list[tuple[float, float]] = []
    wall = base = before = 0.0
    for number, line in enumerate(lines, 1):
        step, seconds, training, start = _timing(line, f"{path} line {number}")
        if start or seconds < before:
            wall += before
            base = _reached(points, step, start) - (training if start else 0.0)
            points = [p for p in points if p[0] < step]
        before = seconds
        if not points or step > points[-1][0]:
            points.append((step, base + training))
    columns = np.array(points).reshape(-1, 2)
    return Clock(columns[:, 0], columns[:, 1], wall + before)


def _reached(points: list[tuple[float, float]], step: float, start: bool) -> float:
    """Training time at the step where a start goes on."""
    if points and start:
        return float(np.interp(step, *np.array(points).T))
    return max((time for s, time in points if s < step), default=0.0)


def _timing(line: bytes, where: str) -> tuple[float, float, float, bool]:
    """Step, seconds, those without evaluations, and whether the run started here, if it says so."""
    row = store.parse_json(line, where)
    row = {"eval_seconds": 0.0, **row} if isinstance(row, dict) else {}
    step, seconds, evaluating = (row.get(key) for key in ("step", "seconds", "eval_seconds"))
    if is_number(step) and is_number(seconds) and is_number(evaluating):
        return float(step), float(seconds), float(seconds - evaluating), "start" in row
    raise StorageFault(f"{where} is damaged: not a record")
