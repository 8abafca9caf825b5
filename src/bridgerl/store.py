"""Files that survive a kill: hashed, synced, renamed into place, read back with suspicion."""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from bridgerl.errors import StorageFault, UserError
from bridgerl.failpoint import failpoint

MANIFEST = "manifest.json"
FORMAT = 1
MAX_JSON_BYTES = 64 * 2**20


def sha256(data: bytes) -> str:
    """Hex digest of the bytes."""
    return hashlib.sha256(data).hexdigest()


def to_json(data: Any) -> bytes:
    """Canonical JSON: sorted keys, no NaN."""
    return json.dumps(data, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def parse_json(data: bytes, name: str) -> Any:
    """Strict JSON: no duplicate keys, no NaN, no bombs; the fault names the file."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("duplicate keys")
        return result

    def no_constant(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        if len(data) > MAX_JSON_BYTES:
            raise ValueError("too large")
        return json.loads(data, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise StorageFault(f"{name} is damaged: {error}") from None


def read_bytes(path: Path) -> bytes:
    """Read a regular file; links and missing files are damage."""
    if path.is_symlink() or not path.is_file():
        raise StorageFault(f"{path} is missing or not a regular file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageFault(f"{path} cannot be read: {error.strerror}") from None


def pack(tensors: dict[str, Tensor]) -> bytes:
    """Tensors as safetensors bytes."""
    return safetensors.torch.save({k: v.detach().cpu().clone() for k, v in tensors.items()})


def unpack(data: bytes, name: str) -> dict[str, Tensor]:
    """Tensors from safetensors bytes; runs no code, whatever the bytes are."""
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise StorageFault(f"{name} is damaged: {error}") from None


def write_file(path: Path, data: bytes) -> None:
    """Write and sync a file that nobody looks at yet."""
    with path.open("xb") as file:
        half = len(data) // 2
        file.write(data[:half])
        file.flush()
        failpoint(f"write.{path.name}.half")
        file.write(data[half:])
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish_file(path: Path, data: bytes) -> None:
    """Write a file under its name at once or not at all."""
    temporary = path.parent / f".tmp-{path.name}-{secrets.token_hex(4)}"
    try:
        write_file(temporary, data)
        failpoint(f"publish.{path.name}")
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def publish_folder(
    parent: Path, name: str, files: dict[str, bytes], manifest: dict[str, Any]
) -> None:
    """Write a folder of files with a checksummed manifest, under its name at once or not at all."""
    temporary = parent / f".tmp-{name}-{secrets.token_hex(4)}"
    listing = [
        {"name": key, "size": len(data), "sha256": sha256(data)} for key, data in files.items()
    ]
    try:
        temporary.mkdir()
        for key, data in files.items():
            write_file(temporary / key, data)
        failpoint("ckpt.before_manifest")
        full = {"format": FORMAT, "files": listing, **manifest}
        write_file(temporary / MANIFEST, to_json(full))
        sync_folder(temporary)
        failpoint("ckpt.after_manifest")
        if (parent / name).exists():  # Left by a branch of the run that was given up.
            discard(parent / name)
        temporary.rename(parent / name)
        failpoint("ckpt.after_rename")
        sync_folder(parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a published folder, its shape checked."""
    path = folder / MANIFEST
    manifest = parse_json(read_bytes(path), str(path))
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), list):
        raise StorageFault(f"{path} is damaged: not a manifest")
    version = manifest.get("format")
    if version != FORMAT:
        raise UserError(f"{path} has format {version!r}, this release reads format {FORMAT}")
    return manifest


def read_folder(folder: Path, names: set[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and files of a published folder; exactly these names, every checksum verified."""
    manifest = read_manifest(folder)
    rows = manifest["files"]
    if not all(isinstance(r, dict) and isinstance(r.get("name"), str) for r in rows):
        raise StorageFault(f"{folder / MANIFEST} is damaged: not a list of files")
    if sorted(r["name"] for r in rows) != sorted(names):
        raise StorageFault(f"{folder / MANIFEST} is damaged: it lists other files than expected")
    files = {}
    for row in rows:
        path = folder / row["name"]
        data = read_bytes(path)
        if len(data) != row.get("size") or sha256(data) != row.get("sha256"):
            raise StorageFault(f"{path} is damaged: size or checksum differs from the manifest")
        files[row["name"]] = data
    return manifest, files


def discard(path: Path) -> None:
    """Take a folder out of sight in one step, then delete it."""
    trash = path.parent / f".trash-{path.name}-{secrets.token_hex(4)}"
    path.rename(trash)
    failpoint("prune.mid")
    shutil.rmtree(trash, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Delete what interrupted writers left."""
    for path in [*folder.glob(".tmp-*"), *folder.glob(".trash-*")]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class RunLock:
    """A kernel lock on a run folder: one writer, released even by kill -9."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "run.lock").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read(32).strip() or "unknown"
            self._file.close()
            raise UserError(
                f"{folder} is being written by process {holder}; wait for it or change --out"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let the next writer in."""
        self._file.close()
