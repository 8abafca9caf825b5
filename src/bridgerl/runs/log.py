"""What a run writes down: deterministic metrics, wall-clock timing, TensorBoard, evaluations."""

import contextlib
import hashlib
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil

from bridgerl.errors import StorageFault, install
from bridgerl.runs import store
from bridgerl.runs.failpoint import failpoint
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.records import Record, read_metrics

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


class RunLog:
    """Append-only log of one run; `resume` cuts it back to what a checkpoint saw."""

    def __init__(self, run: RunFolder, *, tensorboard: bool | None) -> None:
        self._run = run
        self._file = store.open_owned(run.metrics_file, "ab")
        try:
            self._timing = store.open_owned(run.timing_file, "ab")
        except StorageFault:
            self._file.close()
            raise
        # Checkpoints rest on the log, so a power cut must not take its name away.
        store.sync_folder(run.path)
        self._hash, self._bytes, self._pending = hashlib.sha256(), 0, b""
        self._started = time.monotonic()
        self._want_tensorboard, self._resumed_at = tensorboard, 0
        self._writer: Any = None
        self.evaluations: list[Record] = []

    def resume(self, mark: dict[str, Any], step: int) -> None:
        """Forget everything written after the checkpoint at this step."""
        size, path = mark["bytes"], self._run.metrics_file
        data = store.read_log(path, size)
        records = read_metrics(data, str(path))
        failpoint("log.resume")
        os.ftruncate(self._file.fileno(), size)
        failpoint("log.truncated")
        self._bytes, self._hash = size, hashlib.sha256(data)
        self.evaluations = [r for r in records if r["kind"] == "eval"]
        if self.evaluations:
            self._write_evaluations()
        self._resumed_at = step

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Append one record; non-finite numbers become null."""
        record: Record = {"kind": kind, "step": step, **store.finite(values)}
        self._pending += json.dumps(record, allow_nan=False).encode() + b"\n"
        self._append()
        if kind == "eval":
            self.evaluations.append(record)
            self._write_evaluations()
        self._open_tensorboard()
        if kind != "episode":
            for name, value in record.items():
                if isinstance(value, float):
                    self._tensorboard("add_scalar", SB3_TAGS.get(name, name), value, step)

    def timing(self, step: int, **values: float) -> None:
        """Append wall-clock facts, kept apart because they never repeat."""
        self._open_tensorboard()
        memory = psutil.Process().memory_info().rss / 2**20
        seconds = time.monotonic() - self._started
        row = {"step": step, "seconds": seconds, "memory_mb": memory, **values}
        line = json.dumps({k: round(v, 4) for k, v in row.items()}).encode() + b"\n"
        _write_whole(self._timing, line, os.fstat(self._timing.fileno()).st_size, "timing")
        if "steps_per_second" in values:
            self._tensorboard("add_scalar", "time/fps", values["steps_per_second"], step)

    def mark(self) -> dict[str, Any]:
        """Length and checksum of all written so far, synced to disk."""
        self._append()
        if self._pending:
            raise OSError(f"{self._run.metrics_file.name} cannot be written")
        os.fsync(self._file.fileno())
        self._tensorboard("flush")
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        self._append()
        self._file.close()
        self._timing.close()
        self._tensorboard("close")

    def _append(self) -> None:
        """Write pending lines whole; a full disk leaves no half line and loses nothing."""
        if self._pending and _write_whole(self._file, self._pending, self._bytes, "metrics"):
            self._hash.update(self._pending)
            self._bytes += len(self._pending)
            self._pending = b""

    def _write_evaluations(self) -> None:
        """The arrays of Stable-Baselines3's EvalCallback, so its plotting tools work here."""
        rows, path = self.evaluations, self._run.evaluations_file
        arrays = io.BytesIO()
        np.savez(
            arrays,
            timesteps=np.array([r["step"] for r in rows]),
            results=_rectangle([r["eval/returns"] for r in rows]),
            ep_lengths=_rectangle([r["eval/lengths"] for r in rows]),
        )
        try:
            store.publish_file(path, arrays.getvalue())
        except OSError as error:
            print(f"bridgerl: warning: {path} not written: {error}", file=sys.stderr)

    def _open_tensorboard(self) -> None:
        """Begin its file when there is something to write: a run that is over adds none."""
        wanted, self._want_tensorboard = self._want_tensorboard, False
        if wanted is False:
            return
        with self._spare_tensorboard():
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                if wanted is None:  # Nobody asked for it.
                    return
                hint = f"{install('tb')}, or pass --log.no-tensorboard"
                what = f"no TensorBoard events: {error}; {hint}"
                print(f"bridgerl: warning: {what}", file=sys.stderr)
                return
            # Curves drawn after the checkpoint belong to a future that did not happen.
            self._writer = SummaryWriter(
                str(self._run.tensorboard), purge_step=self._resumed_at + 1
            )

    def _tensorboard(self, method: str, *args: Any) -> None:
        if self._writer is not None:
            with self._spare_tensorboard():
                getattr(self._writer, method)(*args)

    @contextlib.contextmanager
    def _spare_tensorboard(self) -> Iterator[None]:
        """Do without it when the disk is full: metrics.jsonl holds the same numbers."""
        try:
            yield
        except OSError as error:
            self._writer = None
            print(f"bridgerl: warning: no more TensorBoard events: {error}", file=sys.stderr)


def _write_whole(file: io.FileIO, data: bytes, size: int, name: str) -> bool:
    """Append to a file of this size, all or nothing; False when the disk does not take it."""
    try:
        os.ftruncate(file.fileno(), size)  # A failed attempt may have left its half.
        failpoint(f"{name}.append")
        half = len(data) // 2
        written = file.write(data[:half])
        failpoint(f"{name}.mid_line")
        written += file.write(data[half:])
        if written == len(data):
            return True
    except OSError:
        pass
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), size)
    return False


def _rectangle(rows: list[list[float]]) -> np.ndarray:
    """Rows as one array; a run whose episode count changed is padded with NaN."""
    width = max(len(r) for r in rows)
    return np.array([r + [math.nan] * (width - len(r)) for r in rows])
