"""Run folders from the outside: may this config use one, is one intact, are two the same."""

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bridgerl.config import RunConfig, decode, encode, identity
from bridgerl.errors import BridgeError, StorageFault, UserError
from bridgerl.runs import checkpoint, store
from bridgerl.runs.log import read_metrics
from bridgerl.training.envs import versions
from bridgerl.types import EnvSpec

CONFIG = "config.json"
SIZES = ("observation size", "action size")


def check_folder(config: RunConfig, spec: EnvSpec) -> None:
    """Refuse a folder that cannot be written or belongs to another config; writes nothing."""
    folder = config.folder
    try:
        for path in [folder, *folder.parents]:
            if path.exists():
                if not path.is_dir():
                    raise UserError(f"{path} is a file where a folder is needed; change --out")
                if not os.access(path, os.W_OK | os.X_OK):
                    raise UserError(f"{path} is not writable; change --out")
                break
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be used: {error}; change --out") from None
    if (folder / CONFIG).exists():
        _refuse_other(folder, config, spec)
    elif checkpoint.checkpoints(folder):
        raise StorageFault(f"{folder / CONFIG} is missing, though the folder holds checkpoints")


def _refuse_other(folder: Path, config: RunConfig, spec: EnvSpec) -> None:
    then, now = _identity(folder), identity(_plain(encode(config)))
    then |= _read(folder)["sizes"]
    now |= _sizes(spec)
    changed = [
        f"{name} was {then.get(name)!r}, now {now.get(name)!r}"
        for name in sorted(set(then) | set(now))
        if then.get(name) != now.get(name)
    ]
    if changed:
        raise UserError(
            f"{folder} holds a run with another config ({'; '.join(changed)}); "
            "use the same flags to resume it, or --name for a new one"
        )


def open_folder(config: RunConfig, spec: EnvSpec) -> store.RunLock:
    """Make the folder, lock it, sweep leftovers, write the config."""
    folder = config.folder
    lock = None
    try:
        for part in ("ckpt", "replay"):
            store.make_folder(folder / part)
        lock = store.RunLock(folder)
        _claim(config, spec)
        return lock
    except (OSError, BridgeError) as error:
        if lock is not None:
            lock.release()
        if isinstance(error, BridgeError):
            raise
        raise UserError(f"{folder} cannot be written: {error.strerror}; change --out") from None


def _claim(config: RunConfig, spec: EnvSpec) -> None:
    """With the lock held: check again, sweep leftovers, write the config of a new run."""
    folder = config.folder
    check_folder(config, spec)  # Another process may have made the folder its own meanwhile.
    for part in (folder, folder / "ckpt", folder / "replay"):
        store.sweep(part)
    if not (folder / CONFIG).exists():
        record_config(config, spec)


def record_config(config: RunConfig, spec: EnvSpec) -> None:
    """Write config.json, if what it holds is not this config."""
    data = store.to_sealed_json(
        {"config": encode(config), "sizes": _sizes(spec), "versions": versions()}
    )
    path = config.folder / CONFIG
    if not path.exists() or path.read_bytes() != data:
        store.publish_file(path, data)


def _sizes(spec: EnvSpec) -> dict[str, int]:
    return dict(zip(SIZES, (spec.obs_dim, spec.action_dim), strict=True))


def read_config(run: Path) -> RunConfig:
    """The config of a run folder."""
    if not os.path.isfile(run / CONFIG):  # Unlike Path.is_file, False for impossible names too.
        raise UserError(f"{run} is not a run folder: it has no {CONFIG}")
    return _decoded(run)


def _decoded(run: Path) -> RunConfig:
    try:
        return decode(_read(run)["config"])
    except (UserError, ValueError, TypeError, OverflowError) as error:
        raise StorageFault(f"{run / CONFIG} is damaged: {error}") from None


def _read(run: Path) -> dict[str, Any]:
    path = run / CONFIG
    data = store.open_sealed_json(store.read_json_bytes(path), str(path))
    if not isinstance(data.get("config"), dict):
        raise StorageFault(f"{path} is damaged: no config inside")
    sizes = data.get("sizes")
    if not isinstance(sizes, dict) or not all(type(sizes.get(n)) is int for n in SIZES):
        raise StorageFault(f"{path} is damaged: no sizes inside")
    return data


def read_spec(run: Path) -> EnvSpec:
    """The sizes of the task a run was trained on."""
    sizes = _read(run)["sizes"]
    return EnvSpec(read_config(run).env, *(sizes[name] for name in SIZES))


def _identity(run: Path) -> dict[str, Any]:
    """What decides the trajectory of the run in a folder."""
    return identity(_plain(encode(_decoded(run))))


def holds(run: Path, config: RunConfig) -> bool:
    """Whether the run in a folder is this one."""
    return _identity(run) == identity(_plain(encode(config)))


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """The value as it reads back from JSON: tuples become lists."""
    return store.parse_json(store.to_json(data), CONFIG)


def best_weights(run: Path) -> Path:
    """The checkpoint with the best evaluation whose weights are on disk."""
    kept = {f"weights-{step:012d}": path for step, path in checkpoint.checkpoints(run, "weights")}
    records = read_metrics(store.read_bytes(run / "metrics.jsonl"))
    scores = {
        checkpoint.folder_name("weights", r["step"]): r["eval/return_mean"]
        for r in records
        if r["kind"] == "eval"
    }
    known = [name for name in kept if name in scores]
    if not known:
        return last_weights(run)
    return kept[max(known, key=lambda name: scores[name])]


def last_weights(run: Path) -> Path:
    """The newest full checkpoint."""
    found = checkpoint.checkpoints(run)
    if not found:
        raise UserError(f"{run} has no checkpoint yet")
    return found[-1][1]


def verify(run: Path) -> list[str]:
    """Check every checksum of a run; returns what was checked, raises at the first damage."""
    capacity = read_config(run).train.buffer_size
    checked = [CONFIG]
    found = checkpoint.checkpoints(run)
    if not found and (run / checkpoint.DONE).exists():
        raise StorageFault(f"{run} is finished but has no checkpoint")
    for _, path in found + checkpoint.checkpoints(run, "weights"):
        try:
            _verify_checkpoint(run, path, capacity)
        except StorageFault:
            if os.path.lexists(path):
                raise
            continue  # The run is under way and has pruned it in this moment.
        checked.append(path.name)
    log = run / "metrics.jsonl"
    if os.path.lexists(log):
        read_metrics(store.read_bytes(log))
        checked.append(log.name)
    return checked


def _verify_checkpoint(run: Path, path: Path, capacity: int) -> None:
    """Every checksum of one checkpoint, its replay rows and its part of the log."""
    if path.name.startswith("weights-"):
        checkpoint.load_weights(path)
        return
    checkpoint.load(run, path)
    for _ in checkpoint.replay_rows(run, path, capacity):
        pass


def compare(a: Path, b: Path) -> str | None:
    """The first difference between two runs' metrics, weights, generators and replay, or None."""
    ours, theirs = (_identity(p) for p in (a, b))
    for name in sorted(set(ours) | set(theirs)):
        if ours.get(name) != theirs.get(name):
            return f"config {name}: {ours.get(name)!r} against {theirs.get(name)!r}"
    lines = [store.read_bytes(p / "metrics.jsonl").splitlines() for p in (a, b)]
    for number, (x, y) in enumerate(zip(*lines, strict=False), 1):
        if x != y:
            ours, theirs = (line.decode(errors="replace")[:200] for line in (x, y))
            return f"metrics.jsonl line {number}: {ours} against {theirs}"
    if len(lines[0]) != len(lines[1]):
        return f"metrics.jsonl: {len(lines[0])} lines against {len(lines[1])}"
    return _compare_checkpoints(a, b)


def _compare_checkpoints(a: Path, b: Path) -> str | None:
    paths = [last_weights(run) for run in (a, b)]
    if paths[0].name != paths[1].name:
        return f"last checkpoint: {paths[0].name} against {paths[1].name}"
    (one, _), (two, _) = (checkpoint.load(r, p) for r, p in zip((a, b), paths, strict=True))
    for name in sorted(set(one.state) | set(two.state)):
        if one.state.get(name) != two.state.get(name):
            return f"{name} in state.json of {paths[0].name}"
    for x, y in ((one.tensors, two.tensors), (one.episode, two.episode)):
        name = _first_difference(x, y)
        if name is not None:
            return f"{name} in {paths[0].name}"
    if _replay_digest(a, paths[0]) != _replay_digest(b, paths[1]):
        return f"replay rows of {paths[0].name}"
    return None


def _replay_digest(run: Path, path: Path) -> str:
    """Digest of the live replay rows in order, however they are split over files."""
    capacity = read_config(run).train.buffer_size
    digest = hashlib.sha256()
    for _, rows in checkpoint.replay_rows(run, path, capacity):
        digest.update(rows.numpy().tobytes())
    return digest.hexdigest()


def _first_difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> str | None:
    for name in sorted(set(a) | set(b)):
        x, y = a.get(name), b.get(name)
        if x is None or y is None or x.shape != y.shape or x.dtype != y.dtype:
            return name
        if not torch.equal(x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8)):
            return name
    return None
