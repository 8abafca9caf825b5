"""Replay rows as an append-only log of sealed segments, each written once and never changed."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bridgerl.runs import store
from bridgerl.runs.failpoint import failpoint
from bridgerl.runs.tensors import pack, unpack

if TYPE_CHECKING:
    from bridgerl.training.replay import Replay

# Part of the format: another number needs another store.FORMAT.
SEGMENT_ROWS = 8192
NAMES = "seg-*.safetensors"
IS_NAME = re.compile(r"seg-[0-9]{6}\.safetensors").fullmatch


def rows_of(name: str) -> range:
    """Global numbers of the rows in a segment."""
    first = int(name[4:10]) * SEGMENT_ROWS
    return range(first, first + SEGMENT_ROWS)


def seal(folder: Path, replay: "Replay", known: dict[str, str]) -> None:
    """Write every full segment that is wholly in memory and not yet known, with its checksum."""
    live = replay.live_rows()
    for number in range(-(-live.start // SEGMENT_ROWS), live.stop // SEGMENT_ROWS):
        name = f"seg-{number:06d}.safetensors"
        if name not in known:
            data = pack({"rows": replay.read(rows_of(name))})
            if (folder / name).is_dir():  # A file cannot take its place.
                store.discard(folder / name)
            store.publish_file(folder / name, data)
            failpoint("replay.sealed")
            known[name] = store.sha256(data)


def read(path: Path, digest: str) -> Tensor:
    """Rows of a sealed segment, verified."""
    data = store.read_bytes(path)
    ok = store.sha256(data) == digest
    store.require_intact(ok, path, "checksum differs from the manifest")
    tensors = unpack(data, str(path))
    store.require_intact(set(tensors) == {"rows"}, path, "it holds other things than rows")
    return check_rows(tensors["rows"], SEGMENT_ROWS, path)


def check_rows(rows: Tensor, count: int, path: Path) -> Tensor:
    """Replay rows are a float32 matrix."""
    ok = rows.dim() == 2 and rows.shape[0] == count and rows.dtype == torch.float32
    store.require_intact(ok, path, f"not {count} float32 rows")
    return rows


def uncovered(live: range, segments: dict[str, str]) -> dict[str, range]:
    """The stretches of live rows that no sealed segment holds, by the name a checkpoint has."""
    gaps: dict[str, range] = {}
    position = live.start
    covered = sorted((rows_of(name).start, rows_of(name).stop) for name in segments)
    for start, stop in [*covered, (live.stop, live.stop)]:
        if position < start:
            gaps[f"rows.{position}"] = range(position, start)
        position = max(position, stop)
    return gaps
