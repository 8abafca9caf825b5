"""Run folders as a whole: is one intact, are two the same."""

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bridgerl.errors import StorageFault
from bridgerl.runs import checkpoint, ending, findings, records, store
from bridgerl.runs.folder import RunFolder, identity_of


def verify(path: Path) -> list[str]:
    """Check every checksum of a run; returns what was checked, raises at the first damage.

    Of a run that has not ended, what its logs say after the last checkpoint has none yet: lines of
    metrics are checked for their form, and timings not at all.
    """
    run = RunFolder(path)
    capacity = run.read_config().train.buffer_size
    checked = [run.config_file.name]
    found = run.checkpoints()
    if not found and run.done_file.exists():
        raise StorageFault(f"{path} is finished but has no checkpoint")
    for _, folder in found + run.checkpoints("weights"):
        try:
            if folder.name.startswith("weights-"):
                checkpoint.load_weights(folder)
            else:
                checkpoint.load(run, folder)
                for _ in checkpoint.replay_rows(run, folder, capacity):
                    pass
        except StorageFault:
            if os.path.lexists(folder):
                raise
            continue  # The run is under way and has pruned it in this moment.
        checked.append(folder.name)
    if os.path.lexists(run.calibration_file):
        findings.read_shifts(run.calibration_file)
        checked.append(run.calibration_file.name)
    if os.path.lexists(run.values_file):
        findings.read_values(run.values_file)
        checked.append(run.values_file.name)
    if os.path.lexists(run.metrics_file):
        run.records()
        checked.append(run.metrics_file.name)
    return checked + _verify_ending(run, found)


def _verify_ending(run: RunFolder, found: list[tuple[int, Path]]) -> list[str]:
    """Check the last figures against the last checkpoint, and the logs against both."""
    done = run.done()
    if done is None:
        return []
    step, folder = found[-1]
    snap, _ = checkpoint.load(run, folder)
    ok = os.path.getsize(run.metrics_file) == snap.metrics["bytes"]
    store.require_intact(ok, run.metrics_file, f"it goes on after {folder.name}, the run's end")
    summary = records.evaluations_of(run.records(), str(run.metrics_file)).summary()
    ok = done["step"] == step and all(done.get(k) == v for k, v in summary.items())
    store.require_intact(ok, run.done_file, f"it disagrees with {run.metrics_file.name}")
    for log in run.logs():
        ending.require_as_ended(log, done)
    sealed = done.get(ending.FILES, {})
    own = [log.name for log in run.logs()[1:] if log.name in sealed]
    return [run.done_file.name, *own]


def compare(a: Path, b: Path) -> str | None:
    """The first difference between two runs' metrics, weights, generators and replay, or None."""
    runs = RunFolder(a), RunFolder(b)
    ours, theirs = (identity_of(run.read_config()) for run in runs)
    if name := _first_difference(ours, theirs):
        return f"config {name}: {ours.get(name)!r} against {theirs.get(name)!r}"
    log = runs[0].metrics_file.name
    lines = [store.read_log(run.metrics_file).splitlines() for run in runs]
    for number, (x, y) in enumerate(zip(*lines, strict=False), 1):
        if x != y:
            ours, theirs = (line.decode(errors="replace")[:200] for line in (x, y))
            return f"{log} line {number}: {ours} against {theirs}"
    if len(lines[0]) != len(lines[1]):
        return f"{log}: {len(lines[0])} lines against {len(lines[1])}"
    return _compare_checkpoints(*runs)


def _compare_checkpoints(a: RunFolder, b: RunFolder) -> str | None:
    paths = [run.last_weights() for run in (a, b)]
    where = paths[0].name
    if where != paths[1].name:
        return f"last checkpoint: {where} against {paths[1].name}"
    (one, _), (two, _) = (checkpoint.load(r, p) for r, p in zip((a, b), paths, strict=True))
    if name := _first_difference(one.state, two.state):
        return f"{name} in {checkpoint.STATE} of {where}"
    for x, y in ((one.tensors, two.tensors), (one.episode, two.episode)):
        if name := _first_difference(x, y):
            return f"{name} in {where}"
    same = _replay_digest(a, paths[0]) == _replay_digest(b, paths[1])
    return None if same else f"replay rows of {where}"


def _replay_digest(run: RunFolder, path: Path) -> str:
    """Digest of the live replay rows in order, however they are split over files."""
    digest = hashlib.sha256()
    for _, rows in checkpoint.replay_rows(run, path, run.read_config().train.buffer_size):
        digest.update(rows.numpy().tobytes())
    return digest.hexdigest()


def _first_difference(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    return next((name for name in sorted({*a, *b}) if not _same(a.get(name), b.get(name))), None)


def _same(x: Any, y: Any) -> bool:
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        return x == y
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return torch.equal(x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8))
