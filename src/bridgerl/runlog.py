"""What a run writes down: deterministic metrics, wall-clock timing, TensorBoard, evaluations."""

import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bridgerl import store
from bridgerl.errors import StorageFault
from bridgerl.failpoint import failpoint

# Our names on the left, the tags Stable-Baselines3 users look for on the right.
SB3_TAGS = {
    "episode/return_mean": "rollout/ep_rew_mean",
    "episode/length_mean": "rollout/ep_len_mean",
    "critic/loss": "train/critic_loss",
    "actor/loss": "train/actor_loss",
    "actor/temperature": "train/ent_coef",
    "actor/temperature_loss": "train/ent_coef_loss",
    "eval/return_mean": "eval/mean_reward",
    "eval/length_mean": "eval/mean_ep_length",
}

Record = dict[str, Any]


class RunLog:
    """Append-only log of one run; `resume` cuts it back to what a checkpoint saw."""

    def __init__(self, run: Path, *, tensorboard: bool) -> None:
        self._run = run
        self._file = (run / "metrics.jsonl").open("ab", buffering=0)
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._pending = b""
        self._timing = (run / "timing.jsonl").open("a", buffering=1)
        self._started = time.monotonic()
        self._want_tensorboard = tensorboard
        self._writer: Any = None
        self.evaluations: list[Record] = []

    def resume(self, mark: dict[str, Any], step: int) -> None:
        """Forget everything written after the checkpoint at this step."""
        size = mark["bytes"]
        data = store.read_bytes(self._run / "metrics.jsonl")[:size]
        os.ftruncate(self._file.fileno(), size)
        self._bytes, self._hash = size, hashlib.sha256(data)
        records = read_metrics(data)
        self.evaluations = [r for r in records if r["kind"] == "eval"]
        self._open_tensorboard(step)

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Append one record; non-finite numbers become null."""
        record: Record = {"kind": kind, "step": step} | {k: _plain(v) for k, v in values.items()}
        self._pending += json.dumps(record, allow_nan=False).encode() + b"\n"
        self._append()
        if kind == "eval":
            self.evaluations.append(record)
            self._write_evaluations()
        self._tensorboard(step, record)

    def timing(self, step: int, **values: float) -> None:
        """Append wall-clock facts, kept apart because they never repeat."""
        memory = psutil.Process().memory_info().rss / 2**20
        seconds = time.monotonic() - self._started
        row = {"step": step, "seconds": seconds, "memory_mb": memory, **values}
        self._timing.write(json.dumps({k: round(v, 4) for k, v in row.items()}) + "\n")
        if self._writer is not None and "steps_per_second" in values:
            self._writer.add_scalar("time/fps", values["steps_per_second"], step)

    def mark(self) -> dict[str, Any]:
        """Length and checksum of all written so far, synced to disk."""
        self._append()
        if self._pending:
            raise OSError("metrics.jsonl cannot be written")
        os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        """Flush everything."""
        self._append()
        self._file.close()
        self._timing.close()
        if self._writer is not None:
            self._writer.close()

    def _append(self) -> None:
        """Write pending lines whole; a full disk leaves no half line and loses nothing."""
        if not self._pending:
            return
        try:
            failpoint("metrics.append")
            half = len(self._pending) // 2
            written = self._file.write(self._pending[:half])
            failpoint("metrics.mid_line")
            written += self._file.write(self._pending[half:])
            if written != len(self._pending):
                raise OSError("short write")
        except OSError:
            os.ftruncate(self._file.fileno(), self._bytes)
            return
        self._hash.update(self._pending)
        self._bytes += len(self._pending)
        self._pending = b""

    def _write_evaluations(self) -> None:
        """The arrays of Stable-Baselines3's EvalCallback, so its plotting tools work here."""
        rows = self.evaluations
        path = self._run / "evaluations.npz"
        temporary = self._run / ".tmp-evaluations.npz"
        try:
            np.savez(
                temporary,
                timesteps=np.array([r["step"] for r in rows]),
                results=_rectangle([r["eval/returns"] for r in rows]),
                ep_lengths=_rectangle([r["eval/lengths"] for r in rows]),
            )
            temporary.rename(path)
        except OSError as error:
            print(f"bridgerl: warning: {path} not written: {error}", file=sys.stderr)

    def _open_tensorboard(self, step: int) -> None:
        if self._want_tensorboard and self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            # Curves drawn after the checkpoint belong to a future that did not happen.
            self._writer = SummaryWriter(str(self._run / "tb"), purge_step=step + 1)

    def _tensorboard(self, step: int, record: Record) -> None:
        self._open_tensorboard(step)
        if self._writer is None or record["kind"] == "episode":
            return
        for name, value in record.items():
            if isinstance(value, float):
                self._writer.add_scalar(SB3_TAGS.get(name, name), value, step)


def read_metrics(data: bytes) -> list[Record]:
    """Records of a metrics.jsonl, refusing lines that are not what `record` writes."""
    records = []
    for number, line in enumerate(data.splitlines(), 1):
        record = store.parse_json(line, f"metrics.jsonl line {number}")
        if not isinstance(record, dict) or not {"kind", "step"} <= set(record):
            raise StorageFault(f"metrics.jsonl line {number} is damaged: not a record")
        records.append(record)
    return records


def summary(evaluations: list[Record]) -> dict[str, Any]:
    """Best, final and average of the evaluation means: the three ways tables are made."""
    means = [r["eval/return_mean"] for r in evaluations]
    if not means:
        return {}
    best = max(range(len(means)), key=means.__getitem__)
    return {
        "best_return": means[best],
        "best_step": evaluations[best]["step"],
        "final_return": means[-1],
        "average_return": sum(means) / len(means),
    }


def _plain(value: Any) -> Any:
    """A JSON value: floats finite or null, lists element by element."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _rectangle(rows: list[list[float]]) -> np.ndarray:
    """Rows as one array; a run whose episode count changed is padded with NaN."""
    width = max(len(r) for r in rows)
    return np.array([r + [math.nan] * (width - len(r)) for r in rows])
