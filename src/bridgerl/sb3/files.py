"""Models as files: JSON and safetensors, nothing that could run code."""

import io
import zipfile
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from torch import Tensor

from bridgerl.config import RunConfig, decode_fields
from bridgerl.errors import SEED_RULE, NumericFault, StorageFault, UserError, is_seed
from bridgerl.runs import store
from bridgerl.runs.checkpoint import lost_weight
from bridgerl.runs.tensors import pack, unpack

FORMAT = 1
CONFIG, TENSORS = "config.json", "model.safetensors"

CODE = ("learning_rate", "action_noise", "replay_buffer_class")
"""Arguments that may be code, which no file holds."""

Place = str | Path | io.BufferedIOBase


@dataclass(frozen=True)
class Attributes:
    """What of a model is data, under the names Stable-Baselines3 gives its attributes."""

    learning_rate: float | None = None
    buffer_size: int = 1
    learning_starts: int = 100
    batch_size: int = 256
    gamma: float = 0.99
    train_freq: int = 1
    train_unit: Literal["step", "episode"] = "step"
    gradient_steps: int = 1
    optimize_memory_usage: bool = False
    n_steps: int = 1
    replay_buffer_kwargs: dict = field(default_factory=dict)
    _stats_window_size: int = 100
    tensorboard_log: str | None = None
    verbose: int = 0
    seed: int | None = None
    n_envs: int = 1
    num_timesteps: int = 0
    _episode_num: int = 0
    _n_updates: int = 0
    buffer_kind: Literal["HerReplayBuffer"] | None = None
    """The class of the buffer, where the rest does not decide it."""
    normalize_obs: bool = False
    normalize_returns: bool = False
    return_unit: float = 10.0
    sde_sample_freq: int = -1
    use_sde_at_warmup: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that cannot train, under the names of the arguments."""
        least = {"buffer_size": 1, "batch_size": 1, "train_freq": 1, "n_steps": 1, "n_envs": 1}
        least |= {"_stats_window_size": 1, "gradient_steps": -1, "sde_sample_freq": -1}
        least |= {"learning_starts": 0, "num_timesteps": 0, "verbose": 0}
        least |= {"_episode_num": 0, "_n_updates": 0}
        most = {"buffer_size": 10**9, "n_envs": 10**6}
        for name, low in least.items():
            value, high = getattr(self, name), most.get(name, 10**12)
            if not isinstance(value, int):
                raise UserError(f"{name} cannot be {value!r}")
            if value < low:
                raise UserError(f"{name} must be at least {low}, got {value}")
            if value > high:
                raise UserError(f"{name} must be at most {high}, got {value}")
        if self.learning_rate is not None and not 0 <= self.learning_rate < float("inf"):
            rule = "must be finite and not negative"
            raise UserError(f"learning_rate {rule}, got {self.learning_rate}")
        if not 0 <= self.gamma <= 1:
            raise UserError(f"gamma must be in [0, 1], got {self.gamma}")
        if not 0 < self.return_unit < float("inf"):
            raise UserError(f"return_unit must be positive and finite, got {self.return_unit}")
        if self.seed is not None and not is_seed(self.seed):
            raise UserError(f"seed {SEED_RULE}, got {self.seed}")


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
        """The header as JSON; what JSON cannot hold is refused."""
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
    write(place, buffer.getvalue(), ".zip")


def read_model(place: Place) -> tuple[Header, dict[str, Tensor]]:
    """Read a model back; damaged, foreign and swollen files are refused."""
    name, data = read(place, ".zip")
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
    # A policy that was compiled had this before every name, in an earlier release.
    state = unpack(tensors, f"{TENSORS} of {name}")
    state = {key.removeprefix("_orig_mod."): value for key, value in state.items()}
    lost = lost_weight(state)
    store.require_intact(lost is None, name, f"{lost} is not finite")
    return header, state


def check_widths(config: RunConfig, obs: gym.Space[Any], tensors: dict[str, Tensor]) -> None:
    """Refuse networks wider than the weights in the file, before memory is asked for them."""
    held = sum(value.numel() for value in tensors.values())
    if (size := gym.spaces.flatdim(obs)) > held:
        raise StorageFault(f"the saved model has fewer weights than {size} observations need")
    for part in (config.actor, config.critic):
        hidden: Any = getattr(part, "hidden", ())
        if sum(a * b for a, b in pairwise((1, *hidden))) > held:
            raise StorageFault(f"the saved model has fewer weights than its widths {hidden} need")


def write(place: Place, data: bytes, suffix: str) -> None:
    """Publish a file at once or not at all; a name without a suffix gets one, as in SB3."""
    if not isinstance(place, str | Path):
        place.write(data)
        return
    path = Path(place) if Path(place).suffix else Path(f"{place}{suffix}")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file")
    store.make_folder(path.parent)
    store.publish_file(path, data)


def read(place: Place, *suffixes: str) -> tuple[str, bytes]:
    """Name and bytes of a file; one of the suffixes may be left out."""
    if not isinstance(place, str | Path):
        # Who has just written it stands at its end.
        data = place.read()
        if not data and place.seekable():
            place.seek(0)
            data = place.read()
        return "the given file", data
    path, named = Path(place), [Path(f"{place}{suffix}") for suffix in suffixes]
    if not path.is_file() and path.suffix not in suffixes:
        path = next((p for p in named if p.is_file()), [path, *named][-1])
    # Followed, because caches of downloaded models are full of links.
    return str(path), store.read_bytes(path.resolve())
