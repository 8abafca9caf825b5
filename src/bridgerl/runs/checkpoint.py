"""What a run needs to go on exactly: weights, moments, generators, replay, the episode under way.

Replay rows lie in segments that checkpoints share; only rows no segment holds travel inside one.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bridgerl.errors import NumericFault, StorageFault, UserError
from bridgerl.runs import segments, store
from bridgerl.runs.failpoint import failpoint
from bridgerl.runs.folder import RunFolder, step_of
from bridgerl.runs.store import require_intact
from bridgerl.runs.tensors import pack, unpack, without_prefix

if TYPE_CHECKING:
    from bridgerl.training.replay import Replay

TENSORS, TAIL = "tensors.safetensors", "replay-tail.safetensors"
EPISODE, STATE = "episode.safetensors", "state.json"
FULL_FILES = {TENSORS, TAIL, EPISODE, STATE}
EPISODE_NUMBER, EPISODE_RETURN = "episode", "episode_return"
"""Names of an episode's number and return: in the state for the first environment, among the
tensors for later ones."""
EPISODE_FORM = {"actions": (2, torch.float32), "obs": (1, torch.float32)}
EPISODE_FORM |= {"reward": (0, torch.float64), "pending": (2, torch.float64)}
LATER_FORM = EPISODE_FORM | {"chosen": (1, torch.float32)}
LATER_FORM |= {EPISODE_NUMBER: (0, torch.int64), EPISODE_RETURN: (0, torch.float64)}
"""Axes and type of tensors; `pending` and `chosen` are there only if rows or an action are."""


@dataclass
class Snapshot:
    """One moment of a run, apart from its replay."""

    step: int
    tensors: dict[str, Tensor]
    """Agent, generators and last metrics, by dotted name."""
    episode: dict[str, Tensor]
    """What each environment needs to go on: the actions of the episode under way, its last
    observation and reward, and rows that wait for later rewards."""
    state: dict[str, Any]
    """The counters of the run, as JSON values."""
    metrics: dict[str, Any]
    """Length and checksum of the log of metrics at this moment."""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """Versions and hardware that decide the bits."""


def save(
    run: RunFolder, snap: Snapshot, replay: "Replay", sealed: dict[str, str], keep: int
) -> None:
    """Publish a full checkpoint, then prune older ones. `sealed` learns what is sealed now."""
    _refuse_lost(snap.tensors, snap.step)
    segments.seal(run.replay, replay, sealed)
    live = replay.live_rows()
    used = {n: s for n, s in sealed.items() if segments.rows_of(n).stop > live.start}
    tail = {name: replay.read(rows) for name, rows in segments.uncovered(live, used).items()}
    files = {TENSORS: pack(snap.tensors), TAIL: pack(tail), EPISODE: pack(snap.episode)}
    files[STATE] = store.to_json(snap.state)
    manifest = {"kind": "step", "step": snap.step, "metrics": snap.metrics}
    manifest["replay"] = {"count": replay.count, "segments": used}
    manifest["fingerprint"] = snap.fingerprint
    store.publish_folder(run.checkpoint("step", snap.step), files, manifest)
    for name in set(sealed) - set(used):
        del sealed[name]
    with contextlib.suppress(OSError):  # The checkpoint is safe; the next one prunes again.
        prune(run, keep, snap.step)


def save_weights(run: RunFolder, step: int, weights: dict[str, Tensor]) -> None:
    """Publish weights alone: enough to evaluate, not to go on."""
    _refuse_lost(weights, step)
    manifest = {"kind": "weights", "step": step}
    store.publish_folder(run.checkpoint("weights", step), {TENSORS: pack(weights)}, manifest)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a checkpoint of either kind, verified."""
    names = {TENSORS} if path.name.startswith("weights-") else FULL_FILES
    manifest, files = store.read_folder(path, names)
    ok = step_of(path) == manifest.get("step")
    require_intact(ok, path / store.MANIFEST, "it is of another step")
    tensors = unpack(files[TENSORS], str(path / TENSORS))
    lost = lost_weight(tensors)
    require_intact(lost is None, path / TENSORS, f"{lost} is not finite")
    return tensors


def load(run: RunFolder, path: Path) -> tuple[Snapshot, dict[str, str]]:
    """Read and verify one full checkpoint, and the names of the replay segments it rests on."""
    manifest, files = _read_full(path)
    step, mark = manifest["step"], manifest["metrics"]
    data = store.read_log(run.metrics_file, mark["bytes"])
    ok = len(data) == mark["bytes"] and store.sha256(data) == mark["sha256"]
    require_intact(ok, run.metrics_file, f"it differs from {path.name}")
    tensors = unpack(files[TENSORS], str(path / TENSORS))
    episode = unpack(files[EPISODE], str(path / EPISODE))
    state = store.parse_json(files[STATE], str(path / STATE))
    # Refuse contents that `save` never writes, however right their checksums are.
    ok = isinstance(state, dict) and state.get("step") == step
    require_intact(ok, path / STATE, f"not the state of step {step}")
    for name, value in tensors.items():
        ok = not name.startswith("metric.") or value.numel() == 1
        require_intact(ok, path / TENSORS, f"{name} is not one number")
    lost = lost_weight(tensors)
    require_intact(lost is None, path / TENSORS, f"{lost} is not finite")
    lanes = lanes_of(episode)
    forms = [EPISODE_FORM, *[LATER_FORM] * (len(lanes) - 1)]
    ok = all(map(_is_episode, lanes, forms)) and sum(map(len, lanes)) == len(episode)
    require_intact(ok, path / EPISODE, "not an episode")
    snap = Snapshot(step, tensors, episode, state, mark, manifest["fingerprint"])
    return snap, manifest["replay"]["segments"]


def lanes_of(episodes: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Tensors of each environment's episode; names of later ones have its number in front."""
    lanes = [{name: value for name, value in episodes.items() if "." not in name}]
    while later := without_prefix(episodes, f"{len(lanes)}."):
        lanes.append(later)
    return lanes


def _is_episode(lane: dict[str, Tensor], form: dict[str, tuple[int, torch.dtype]]) -> bool:
    ok = lane.keys() <= form.keys() <= lane.keys() | {"pending", "chosen"}
    ok = ok and all((v.dim(), v.dtype) == form[k] for k, v in lane.items())
    return ok and int(lane.get(EPISODE_NUMBER, 0)) >= 0


def replay_rows(run: RunFolder, path: Path, capacity: int) -> Iterator[tuple[int, Tensor]]:
    """The live rows behind a checkpoint in order, as (first row, rows), every one verified."""
    manifest, files = _read_full(path)
    count, sealed = manifest["replay"]["count"], manifest["replay"]["segments"]
    live = range(max(0, count - capacity), count)
    for name in sealed:
        ok = live.start < segments.rows_of(name).stop <= live.stop
        require_intact(ok, path / store.MANIFEST, f"{name} holds no live rows")
    tail = unpack(files[TAIL], str(path / TAIL))
    loose = segments.uncovered(live, sealed)
    require_intact(set(tail) == set(loose), path / TAIL, "rows are missing")
    for name, rows in loose.items():
        segments.check_rows(tail[name], len(rows), path / TAIL)
    stretches = loose | {name: segments.rows_of(name) for name in sealed}
    for first, name in sorted((rows.start, name) for name, rows in stretches.items()):
        rows = tail[name] if name in tail else segments.read(run.replay / name, sealed[name])
        skip = max(0, live.start - first)
        yield first + skip, rows[skip:]


def refill(run: RunFolder, path: Path, replay: "Replay") -> None:
    """Put the replay back as the checkpoint saw it."""
    last = 0
    for first, rows in replay_rows(run, path, replay.capacity):
        if replay.fine_rewards and rows.shape[1] == replay.rows.shape[1] - 1:
            rows = torch.nn.functional.pad(rows, (0, 1))  # As earlier releases wrote them.
        if rows.shape[1] != replay.rows.shape[1]:
            wrong, right = rows.shape[1], replay.rows.shape[1]
            raise StorageFault(f"{path} holds replay rows of {wrong} numbers, not {right}")
        replay.write(first, rows)
        last = first + len(rows)
    replay.count = last


def newest(
    run: RunFolder, replay: "Replay", warn: Callable[[str], None]
) -> tuple[Snapshot, dict[str, str]] | None:
    """The newest intact checkpoint; damaged ones are named and skipped, never silently."""
    found = run.checkpoints()
    for _, path in reversed(found):
        try:
            snap, sealed = load(run, path)
            _check_sizes(snap.episode, replay, path / EPISODE)
            refill(run, path, replay)
            failpoint("resume.loaded")
            return snap, sealed
        except StorageFault as fault:
            warn(f"skipping {path.name}: {fault}")
    if found:
        raise StorageFault(f"{run.path} has no intact checkpoint; delete the folder to start anew")
    if run.done_file.exists():
        raise StorageFault(f"{run.path} is finished but has no checkpoint; delete it to start anew")
    if run.metrics_file.exists() and run.metrics_file.stat().st_size > 0:
        warn(f"{run.path} has no checkpoint yet: starting again from step 0")
    return None


def _check_sizes(episode: dict[str, Tensor], replay: "Replay", path: Path) -> None:
    """Refuse observations or actions of another task."""
    obs, action, reward, *_ = replay.widths
    right = {"obs": obs, "actions": action, "chosen": action, "pending": obs + action + reward}
    for lane in lanes_of(episode):
        sizes = {name: lane[name].shape[-1] for name in right if name in lane}
        require_intact(sizes.items() <= right.items(), path, f"sizes {sizes}, not {right}")


def prune(run: RunFolder, keep: int, step: int) -> None:
    """Drop full checkpoints older than the kept ones, then segments none of those refers to.

    What is newer than `step` was damaged when the run went back to before it, and goes as well:
    left in place it would count as a kept one, and push out the one just written.
    """
    found = run.checkpoints()
    kept = [path for s, path in found if s <= step][-keep:]
    later = [path for s, path in run.checkpoints("weights") if s > step]
    for path in [path for _, path in found if path not in kept] + later:
        store.discard(path)
    # A checkpoint must not come back after a power cut when its segments are already gone.
    store.sync_folder(run.ckpt)
    failpoint("prune.segments")
    wanted: set[str] = set()
    for path in kept:
        try:
            wanted |= set(store.read_manifest(path)["replay"]["segments"])
        except (StorageFault, UserError, KeyError, TypeError):
            return  # A damaged manifest may still name segments: keep them all.
    for path in run.replay.glob(segments.NAMES):
        if path.name not in wanted:
            path.unlink()
            failpoint("prune.segment")


def _refuse_lost(tensors: dict[str, Tensor], step: int) -> None:
    """No weight on disk is ever NaN or infinite."""
    if name := lost_weight(tensors):
        raise NumericFault(f"{name} is not finite at step {step}; checkpoint not written")


def lost_weight(tensors: dict[str, Tensor]) -> str | None:
    """The name of a weight of the agent that is NaN or infinite."""
    weights = {name: value for name, value in tensors.items() if name.startswith("agent.")}
    return next((name for name, value in weights.items() if not value.isfinite().all()), None)


def _read_full(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and files of a full checkpoint, refusing fields that `save` does not write."""
    manifest, files = store.read_folder(path, FULL_FILES)
    replay, metrics = manifest.get("replay"), manifest.get("metrics")
    ok = (
        manifest.get("kind") == "step"
        and type(manifest.get("step")) is int
        and step_of(path) == manifest["step"]
        and isinstance(manifest.get("fingerprint"), dict)
        and isinstance(replay, dict)
        and store.is_count(replay.get("count"))
        and isinstance(replay.get("segments"), dict)
        and all(map(segments.IS_NAME, replay["segments"]))
        and isinstance(metrics, dict)
        and store.is_count(metrics.get("bytes"))
        and isinstance(metrics.get("sha256"), str)
    )
    require_intact(ok, path / store.MANIFEST, "unexpected fields")
    return manifest, files
