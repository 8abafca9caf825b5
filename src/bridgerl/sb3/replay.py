"""Replay buffers as files: safetensors sealed by a checksum, whatever their name ends in."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from torch import Tensor

from bridgerl.errors import StorageFault, UserError
from bridgerl.runs import store
from bridgerl.runs.tensors import check_fit, pack, unpack
from bridgerl.sb3 import files

KINDS = {
    k.__name__: k for k in (ReplayBuffer, NStepReplayBuffer, DictReplayBuffer, HerReplayBuffer)
}
"""Buffers that are data; others hold a user's code."""
ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
ARRAYS += ("ep_start", "ep_length")
NO_SEAL = b"0" * 64
SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')
SUFFIX = ".safetensors"


def write(place: files.Place, buffer: object) -> None:
    """The used rows of every array, the position and the capacity, sealed by a checksum."""
    buffer = _known(buffer)
    state = _rows(buffer, _used(buffer)) | _marks(buffer)
    files.write(place, _sealed(pack(state, {"sha256": NO_SEAL.decode()})), SUFFIX)


def read(place: files.Place, n_envs: int, make: Callable[[int], ReplayBuffer]) -> ReplayBuffer:
    """The buffer that a file holds; `make` builds an empty one of so many transitions."""
    name, data = _bytes(place)
    _check_seal(data, name)
    state = unpack(data, name)
    size, held = _capacity(state, name)
    if held != n_envs:
        what = f"{name} holds transitions of {held} environments, but this model has {n_envs}"
        raise UserError(f"{what}; load it with as many")
    try:
        buffer = _known(make(size * n_envs))
    except (MemoryError, ValueError) as error:
        raise StorageFault(f"{name} asks for {size} rows: {error}") from None
    _fill(buffer, state, name)
    return buffer


def _capacity(state: dict[str, Tensor], name: str) -> tuple[int, int]:
    """Rows and environments that a stored buffer was made for."""
    wanted = {"capacity": torch.zeros(2).long()}
    check_fit({k: v for k, v in state.items() if k in wanted}, wanted, name)
    size, n_envs = state["capacity"].tolist()
    store.require_intact(1 <= size <= 10**9 and n_envs >= 1, name, f"{size} rows of {n_envs}")
    return size, n_envs


def _fill(buffer: ReplayBuffer, state: dict[str, Tensor], name: str) -> None:
    """Put stored rows and marks into an empty buffer of the same capacity."""
    marks = _marks(buffer)
    check_fit({k: v for k, v in state.items() if k in marks}, marks, name)
    pos, full = int(state["pos"]), bool(state["full"])
    store.require_intact(0 <= pos < buffer.buffer_size, name, f"position {pos}")
    used = buffer.buffer_size if full else pos + 1
    rows = {key: value for key, value in state.items() if key not in marks}
    check_fit(rows, _rows(buffer, used), name)
    for key, array in _arrays(buffer).items():
        array[:used] = rows[key].numpy()
    buffer.pos, buffer.full = pos, full
    if isinstance(buffer, HerReplayBuffer):
        _check_episodes(buffer, state["episode_starts"].numpy(), name)
        buffer._current_ep_start = state["episode_starts"].numpy().copy()


def _check_episodes(buffer: HerReplayBuffer, starts: np.ndarray, name: str) -> None:
    """Refuse marks of episodes that lie outside: they index arrays when goals are drawn."""
    limit = buffer.buffer_size
    inside = all(((a >= 0) & (a < limit)).all() for a in (buffer.ep_start, starts))
    lengths = buffer.ep_length
    ok = inside and bool(((lengths >= 0) & (lengths <= limit)).all())
    rows = np.arange(limit)[:, None]
    ok = ok and bool((((rows - buffer.ep_start) % limit < lengths) | (lengths == 0)).all())
    store.require_intact(ok, name, "episodes outside of the buffer")


def _marks(buffer: ReplayBuffer) -> dict[str, Tensor]:
    """The place at which a buffer goes on, as tensors."""
    marks = {
        "pos": torch.tensor(buffer.pos),
        "full": torch.tensor(buffer.full),
        "capacity": torch.tensor([buffer.buffer_size, buffer.n_envs]),
    }
    if isinstance(buffer, HerReplayBuffer):
        marks["episode_starts"] = torch.from_numpy(buffer._current_ep_start)
    return marks


def _bytes(place: files.Place) -> tuple[str, bytes]:
    """Name and bytes of a file, which an earlier release renamed if it ended in `.pkl`."""
    if not isinstance(place, str | Path):
        return files.read(place)
    path = Path(place)
    if path.suffix == ".pkl" and not path.is_file() and path.with_suffix(SUFFIX).is_file():
        path = path.with_suffix(SUFFIX)
    return files.read(path) if path.suffix else files.read(path, SUFFIX, ".pkl")


def _sealed(data: bytes) -> bytes:
    """Bytes with their checksum in the place that was left open for it."""
    at = data.index(NO_SEAL)
    return data[:at] + store.sha256(data).encode() + data[at + len(NO_SEAL) :]


def _check_seal(data: bytes, name: str) -> None:
    """Refuse bytes of which one has changed, wherever it is."""
    found = SEAL.search(data, 0, 2**16)
    if found is None and data[:1] == b"\x80":  # How every pickle of today begins.
        hint = "save it again with save_replay_buffer of this library"
        raise UserError(f"{name} is a pickle, and pickles are not read; {hint}")
    if found is None:
        raise StorageFault(f"{name} is damaged: it has no checksum")
    (start, stop), whole = found.span(1), memoryview(data)
    digest = hashlib.sha256(whole[:start])
    digest.update(NO_SEAL)
    digest.update(whole[stop:])
    store.require_intact(digest.hexdigest().encode() == found[1], name, "its checksum differs")


def _known(buffer: object) -> ReplayBuffer:
    if type(buffer) not in KINDS.values():
        kind = type(buffer).__name__
        raise UserError(f"a {kind} cannot be stored; {', '.join(KINDS)} can")
    if isinstance(buffer, HerReplayBuffer) and buffer.copy_info_dict:
        what = "a HerReplayBuffer with copy_info_dict=True holds objects of any kind"
        raise UserError(f"{what}, and no file of ours does; make it without")
    return buffer  # pyright: ignore[reportReturnType]


def _used(buffer: ReplayBuffer) -> int:
    """Rows ever written; with `optimize_memory_usage`, the one at the position is."""
    return buffer.buffer_size if buffer.full else buffer.pos + 1


def _arrays(buffer: ReplayBuffer) -> dict[str, np.ndarray]:
    """The arrays of a buffer by name; the parts of Dict observations each by their own."""
    found: dict[str, np.ndarray] = {}
    for name in ARRAYS:
        value: Any = getattr(buffer, name, None)
        if isinstance(value, dict):
            found |= {f"{name}/{key}": part for key, part in value.items()}
        elif value is not None:
            found[name] = value
    return found


def _rows(buffer: ReplayBuffer, count: int) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array[:count]) for name, array in _arrays(buffer).items()}
