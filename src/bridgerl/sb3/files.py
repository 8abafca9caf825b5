"""Models and replay buffers as files: JSON and safetensors, nothing that could run code."""

import hashlib
import io
import re
import zipfile
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import gymnasium as gym
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from torch import Tensor

from bridgerl.config import RunConfig, decode_fields
from bridgerl.errors import NumericFault, StorageFault, UserError
from bridgerl.runs import store
from bridgerl.runs.checkpoint import lost_weight
from bridgerl.runs.tensors import check_fit, pack, unpack
from bridgerl.training.envs import check_spaces

FORMAT = 1
SPACES = ("observation_space", "action_space")
CONFIG, TENSORS = "config.json", "model.safetensors"
ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")

CODE = ("learning_rate", "action_noise", "replay_buffer_class")
"""Arguments that may be code, which no file holds."""
NO_SEAL = b"0" * 64
SEAL = re.compile(rb'"sha256":"([0-9a-f]{64})"')

Place = str | Path | io.BufferedIOBase


@dataclass(frozen=True)
class Attributes:
    """What of a model is data, under the names Stable-Baselines3 gives its attributes."""

    learning_rate: float | None
    buffer_size: int
    learning_starts: int
    batch_size: int
    gamma: float
    train_freq: int
    train_unit: Literal["step", "episode"]
    gradient_steps: int
    optimize_memory_usage: bool
    n_steps: int
    replay_buffer_kwargs: dict
    _stats_window_size: int
    tensorboard_log: str | None
    verbose: int
    seed: int | None
    n_envs: int
    num_timesteps: int
    _episode_num: int
    _n_updates: int
    normalize_obs: bool = False
    normalize_returns: bool = False
    return_unit: float = 10.0

    def __post_init__(self) -> None:
        """Refuse numbers that cannot train, under the names of the arguments."""
        least = {"buffer_size": 1, "batch_size": 1, "train_freq": 1, "n_steps": 1, "n_envs": 1}
        least |= {"_stats_window_size": 1, "gradient_steps": -1, "num_timesteps": 0}
        least |= {"learning_starts": 0, "_episode_num": 0, "_n_updates": 0, "verbose": 0}
        most = {"buffer_size": 10**9, "n_envs": 10**6}
        for name, low in least.items():
            value, high = getattr(self, name), most.get(name, 10**12)
            if value < low:
                raise UserError(f"{name} must be at least {low}, got {value}")
            if value > high:
                raise UserError(f"{name} must be at most {high}, got {value}")
        if self.learning_rate is not None and not 0 <= self.learning_rate < 1:
            raise UserError(f"learning_rate must be in [0, 1), got {self.learning_rate}")
        if not 0 <= self.gamma <= 1:
            raise UserError(f"gamma must be in [0, 1], got {self.gamma}")
        if not 0 < self.return_unit < float("inf"):
            raise UserError(f"return_unit must be positive and finite, got {self.return_unit}")
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise UserError(f"seed must be from 0 to 2**32 - 1, got {self.seed}")


@dataclass(frozen=True)
class Header:
    """What config.json holds."""

    agent: dict
    attributes: Attributes
    device: str
    """The type of device that the random streams belong to."""
    not_stored: tuple[str, ...]
    """Arguments that are code, such as a schedule; who trains on passes them to `load`."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Refuse names that a message would show."""
        if not set(self.not_stored) <= set(CODE):
            raise UserError(f"not_stored must be some of {', '.join(CODE)}")

    def encode(self) -> bytes:
        """As JSON; what JSON cannot hold is refused."""
        try:
            return store.to_json(asdict(self))
        except (TypeError, ValueError) as error:
            raise UserError(f"an argument cannot be stored: {error}") from None

    @classmethod
    def decode(cls, data: bytes, name: str) -> "Header":
        """Read JSON back; anything unknown, missing or mistyped is refused."""
        config = store.parse_json(data, name)
        version = config.get("format") if isinstance(config, dict) else None
        if version != FORMAT:
            raise UserError(f"{name} has format {version}, this release reads format {FORMAT}")
        return decode_fields(cls, config, name)


def write_model(place: Place, header: Header, tensors: dict[str, Tensor]) -> None:
    """A zip of config.json and model.safetensors; equal models give equal bytes."""
    if name := lost_weight(tensors):
        raise NumericFault(f"{name} is not finite; model not written")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(CONFIG), header.encode())
        archive.writestr(zipfile.ZipInfo(TENSORS), pack(tensors))
    _write(place, buffer.getvalue(), ".zip")


def read_model(place: Place) -> tuple[Header, dict[str, Tensor]]:
    """Read a model back; damaged, foreign and swollen files are refused."""
    name, data = _read(place, ".zip")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            rows = archive.infolist()
            names = sorted(row.filename for row in rows)
            if "_stable_baselines3_version" in names:
                raise UserError(f"{name} is Stable-Baselines3's own format; pickles are not read")
            # Stored ones, so that no member is larger than the file itself.
            stored = all(row.compress_type == zipfile.ZIP_STORED for row in rows)
            if names != [CONFIG, TENSORS] or not stored:
                raise StorageFault(f"{name} is not a model of bridgerl.sb3")
            config, tensors = archive.read(CONFIG), archive.read(TENSORS)
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, RuntimeError) as error:
        raise StorageFault(f"{name} is damaged: {error}") from None
    header = Header.decode(config, f"{CONFIG} of {name}")
    state = unpack(tensors, f"{TENSORS} of {name}")
    lost = lost_weight(state)
    store.require_intact(lost is None, name, f"{lost} is not finite")
    return header, state


def check_widths(config: RunConfig, tensors: dict[str, Tensor]) -> None:
    """Refuse networks wider than the weights in the file, before memory is asked for them."""
    held = sum(value.numel() for value in tensors.values())
    for part in (config.actor, config.critic):
        hidden: Any = getattr(part, "hidden", ())
        if sum(a * b for a, b in pairwise((1, *hidden))) > held:
            raise StorageFault(f"the saved model has fewer weights than its widths {hidden} need")


def boxes(tensors: dict[str, Tensor]) -> list[gym.spaces.Box]:
    """The spaces whose bounds are among a model's tensors."""
    try:
        bounds = [(tensors[f"{k}.low"].numpy(), tensors[f"{k}.high"].numpy()) for k in SPACES]
        spaces: list[gym.spaces.Box] = [
            gym.spaces.Box(low, high, dtype=low.dtype.type) for low, high in bounds
        ]
        env: Any = SimpleNamespace(**dict(zip(SPACES, spaces, strict=True)))
        check_spaces("it", env)
        return spaces
    except (KeyError, TypeError, ValueError, AssertionError, UserError) as error:
        raise StorageFault(f"the saved model has no valid spaces: {error}") from None


def write_buffer(place: Place, buffer: object) -> None:
    """The used rows of every array, the position and the capacity, sealed by a checksum."""
    buffer = _known(buffer)
    state = _rows(buffer, _used(buffer)) | {
        "pos": torch.tensor(buffer.pos),
        "full": torch.tensor(buffer.full),
        "capacity": torch.tensor([buffer.buffer_size, buffer.n_envs]),
    }
    _write(_renamed(place), _sealed(pack(state, {"sha256": NO_SEAL.decode()})), ".safetensors")


def read_buffer(place: Place, buffer: object) -> None:
    """Fill a buffer of the same capacity with what a file holds."""
    buffer = _known(buffer)
    name, data = _read(_renamed(place), ".safetensors")
    _check_seal(data, name)
    state = unpack(data, name)
    marks = {"pos": torch.tensor(0), "full": torch.tensor(False), "capacity": torch.zeros(2).long()}
    check_fit({k: v for k, v in state.items() if k in marks}, marks, name)
    pos, full = int(state.pop("pos")), bool(state.pop("full"))
    size, n_envs = state.pop("capacity").tolist()
    if (size, n_envs) != (buffer.buffer_size, buffer.n_envs):
        held, own = f"{size} rows of {n_envs}", f"{buffer.buffer_size} rows of {buffer.n_envs}"
        what = f"{name} holds {held} environments, but this model {own}"
        raise UserError(f"{what}; make it with the same sizes")
    store.require_intact(0 <= pos < size, name, f"position {pos}")
    before, used = _used(buffer), size if full else pos + 1
    check_fit(state, _rows(buffer, used), name)
    for key, rows in state.items():
        array = getattr(buffer, key)
        array[:used] = rows.numpy()
        array[used:before] = 0
    buffer.pos, buffer.full = pos, full


def _sealed(data: bytes) -> bytes:
    """The same bytes with their checksum in the place that was left open for it."""
    at = data.index(NO_SEAL)
    return data[:at] + store.sha256(data).encode() + data[at + len(NO_SEAL) :]


def _check_seal(data: bytes, name: str) -> None:
    """Refuse bytes of which one has changed, wherever it is."""
    found = SEAL.search(data, 0, 2**16)
    if found is None:
        raise StorageFault(f"{name} is damaged: it has no checksum")
    (start, stop), whole = found.span(1), memoryview(data)
    digest = hashlib.sha256(whole[:start])
    digest.update(NO_SEAL)
    digest.update(whole[stop:])
    store.require_intact(digest.hexdigest().encode() == found[1], name, "its checksum differs")


def _known(buffer: object) -> ReplayBuffer:
    if type(buffer) not in (ReplayBuffer, NStepReplayBuffer):
        kind = type(buffer).__name__
        raise UserError(f"a {kind} cannot be stored; ReplayBuffer and NStepReplayBuffer can")
    return buffer  # pyright: ignore[reportReturnType]


def _used(buffer: ReplayBuffer) -> int:
    """Rows ever written; with `optimize_memory_usage`, the one at the position is."""
    return buffer.buffer_size if buffer.full else buffer.pos + 1


def _rows(buffer: ReplayBuffer, count: int) -> dict[str, Tensor]:
    held = [name for name in ARRAYS if hasattr(buffer, name)]
    return {name: torch.from_numpy(getattr(buffer, name)[:count]) for name in held}


def _renamed(place: Place) -> Place:
    """CheckpointCallback calls every replay buffer `.pkl`."""
    if isinstance(place, str | Path) and Path(place).suffix == ".pkl":
        return Path(place).with_suffix(".safetensors")
    return place


def _write(place: Place, data: bytes, suffix: str) -> None:
    """Publish a file at once or not at all; a name without a suffix gets one, as in SB3."""
    if not isinstance(place, str | Path):
        place.write(data)
        return
    path = Path(place) if Path(place).suffix else Path(f"{place}{suffix}")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file")
    store.make_folder(path.parent)
    store.publish_file(path, data)


def _read(place: Place, suffix: str) -> tuple[str, bytes]:
    """Name and bytes of a file; the suffix may be left out."""
    if not isinstance(place, str | Path):
        return "the given file", place.read()
    path = Path(place)
    if not path.is_file() and path.suffix != suffix:
        path = Path(f"{place}{suffix}")
    # Followed, because caches of downloaded models are full of links.
    return str(path), store.read_bytes(path.resolve())
