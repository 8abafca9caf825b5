"""Files that survive a kill: hashed, synced, renamed into place, read back with suspicion."""

import contextlib
import fcntl
import glob
import hashlib
import io
import json
import math
import os
import re
import secrets
import shutil
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeGuard

import psutil

from bridgerl.errors import StorageFault, UserError
from bridgerl.runs.failpoint import failpoint

MANIFEST = "manifest.json"
FORMAT = 1
SEAL = "sha256"
MAX_JSON_BYTES = 64 * 2**20
MAX_LOG_BYTES = 2**30
SMALL = 64 * 2**20
"""Bytes that are read without a look at the memory that is left."""
LEFTOVER = re.compile(r"\.(tmp|trash)-.+-[0-9a-f]{8}", re.DOTALL)


def sha256(data: bytes) -> str:
    """Hex digest of the bytes."""
    return hashlib.sha256(data).hexdigest()


def require_intact(ok: bool, where: Path | str, why: str) -> None:
    """Refuse what no writer of ours leaves behind."""
    if not ok:
        raise StorageFault(f"{where} is damaged: {why}")


def to_json(data: Any) -> bytes:
    """Canonical JSON: sorted keys, no NaN."""
    return json.dumps(data, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"


def is_count(value: object) -> TypeGuard[int]:
    """Whether this is a whole number from 0 on, and no bool."""
    return type(value) is int and value >= 0


def finite(data: Any) -> Any:
    """Data with None in place of NaN and infinity."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def plain(data: Any) -> Any:
    """A value as it reads back from JSON: tuples become lists."""
    return json.loads(to_json(data))


def parse_json(data: bytes, name: str) -> Any:
    """Strict JSON: no duplicate keys, no NaN, no bombs; the fault names the file."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("duplicate keys")
        return result

    def finite(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"{word} is not a finite number")
        return value

    try:
        if len(data) > MAX_JSON_BYTES:
            raise ValueError("too large")
        return json.loads(
            data.decode(), object_pairs_hook=distinct, parse_float=finite, parse_constant=finite
        )
    except (ValueError, RecursionError) as error:
        raise StorageFault(f"{name} is damaged: {error}") from None


def to_sealed_json(data: dict[str, Any]) -> bytes:
    """Canonical JSON of an object that carries the checksum of its other fields."""
    return to_json({**data, SEAL: sha256(to_json(data))})


def open_sealed_json(data: bytes, name: str) -> dict[str, Any]:
    """The object behind `to_sealed_json`, proven to be unchanged."""
    value = parse_json(data, name)
    require_intact(isinstance(value, dict), name, "not a JSON object")
    value.pop(SEAL, None)
    require_intact(data == to_sealed_json(value), name, "its checksum differs")  # To the byte.
    return value


def require_room(size: int, path: Path) -> None:
    """Refuse to read more than there is memory for, before any of it is asked for."""
    if size > SMALL and size > psutil.virtual_memory().available:
        raise StorageFault(f"{path} cannot be read: its {size:,} bytes do not fit into memory")


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Read a regular file, or its first bytes; links and missing files are damage."""
    if path.is_symlink() or not path.is_file():
        raise StorageFault(f"{path} is missing or not a regular file")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            size = size if limit is None else min(size, limit)
            require_room(size, path)
            return file.read(size)
    except OSError as error:
        raise StorageFault(f"{path} cannot be read: {error.strerror}") from None


def read_log(path: Path, limit: int | None = None) -> bytes:
    """Read a log, or its first bytes; one that is far too large to be ours is refused unread."""
    size = path.stat().st_size if path.is_file() else 0
    ok = min(size, size if limit is None else limit) <= MAX_LOG_BYTES
    require_intact(ok, path, f"it has more than {MAX_LOG_BYTES:,} bytes")
    return read_bytes(path, limit)


def read_json_bytes(path: Path) -> bytes:
    """Read a file that should hold JSON, but not all of one that is far too large for it."""
    return read_bytes(path, MAX_JSON_BYTES + 1)


def open_owned(path: Path, mode: Literal["a+b", "ab"]) -> io.FileIO:
    """Open a file of the run folder for appending; never through a link to somewhere else."""
    flags = os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    flags |= os.O_RDWR if "+" in mode else os.O_WRONLY
    try:
        return io.FileIO(os.open(path, flags, 0o666), mode)
    except OSError as error:
        raise StorageFault(f"{path} cannot be written: {error.strerror}") from None


def make_folder(path: Path) -> None:
    """Make a folder and its parents durable."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def refuse_links(path: Path, root: Path) -> None:
    """Refuse a place behind a link below the root: what is written there would be elsewhere."""
    for place in takewhile(lambda p: p != root, (path, *path.parents)):
        if place.is_symlink():
            raise StorageFault(f"{place} is a link, and nothing is written through one; remove it")


def _write(file: BinaryIO, data: bytes, name: str) -> None:
    """Write and sync a file that nobody looks at yet; `name` is what it will be called."""
    half = len(data) // 2
    file.write(data[:half])
    file.flush()
    failpoint(f"write.{name}.half")
    file.write(data[half:])
    file.flush()
    os.fsync(file.fileno())


def _write_inside(folder: Path, name: str, data: bytes) -> None:
    with (folder / name).open("xb") as file:
        _write(file, data, name)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish_file(path: Path, data: bytes) -> None:
    """Write a file under its name at once or not at all; a folder of that name stays."""
    _sweep_before(path)
    temporary = path.parent / f".tmp-{path.name}-{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as file:
            with contextlib.suppress(OSError):  # Some file systems have no locks.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(file, data, path.name)
            failpoint(f"publish.{path.name}")
            temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _sweep_before(path: Path) -> None:
    """Delete what killed writers of a file left; one at work holds a lock on its own."""
    for old in path.parent.glob(f".tmp-{glob.escape(path.name)}-{8 * '[0-9a-f]'}"):
        with contextlib.suppress(OSError):
            handle = os.open(old, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                old.unlink()


def publish_folder(path: Path, files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    """Write a folder of files with a checksummed manifest, under its name at once or not at all."""
    temporary = path.parent / f".tmp-{path.name}-{secrets.token_hex(4)}"
    listing = [{"name": k, "size": len(v), "sha256": sha256(v)} for k, v in files.items()]
    try:
        temporary.mkdir()
        for key, data in files.items():
            _write_inside(temporary, key, data)
        failpoint("ckpt.before_manifest")
        full = {"format": FORMAT, "files": listing, **manifest}
        _write_inside(temporary, MANIFEST, to_sealed_json(full))
        sync_folder(temporary)
        failpoint("ckpt.after_manifest")
        if os.path.lexists(path):  # Left by a branch of the run that was given up.
            discard(path)
        temporary.rename(path)
        failpoint("ckpt.after_rename")
        sync_folder(path.parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a published folder, proven unchanged, its format known."""
    if folder.is_symlink() or not folder.is_dir():
        raise StorageFault(f"{folder} is missing or not a folder")
    path = folder / MANIFEST
    data = read_json_bytes(path)
    plain = parse_json(data, str(path))
    version = plain.get("format") if isinstance(plain, dict) else None
    # Before the checksum: a later release may seal otherwise, and its work must not be skipped.
    if type(version) is int and version > FORMAT:
        raise UserError(f"{path} has format {version}, this release reads format {FORMAT}")
    manifest = open_sealed_json(data, str(path))
    ok = version == FORMAT and isinstance(manifest.get("files"), list)
    require_intact(ok, path, "not a manifest")
    return manifest


def read_folder(folder: Path, names: set[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and files of a published folder; exactly these names, every checksum verified."""
    manifest = read_manifest(folder)
    rows, where, files = manifest["files"], folder / MANIFEST, {}
    ok = all(isinstance(r, dict) and isinstance(r.get("name"), str) for r in rows)
    require_intact(ok, where, "not a list of files")
    ok = sorted(r["name"] for r in rows) == sorted(names)
    require_intact(ok, where, "it lists other files than expected")
    for row in rows:
        path, size = folder / row["name"], row.get("size")
        require_intact(is_count(size), where, "a size is not a size")
        data = files[row["name"]] = read_bytes(path, size + 1)
        ok = len(data) == size and sha256(data) == row.get("sha256")
        require_intact(ok, path, "size or checksum differs from the manifest")
    return manifest, files


def discard(path: Path) -> None:
    """Take a folder out of sight in one step, then delete it."""
    trash = path.parent / f".trash-{path.name}-{secrets.token_hex(4)}"
    path.rename(trash)
    failpoint("prune.mid")
    _delete(trash)


def sweep(folder: Path) -> None:
    """Delete what interrupted writers left."""
    for path in [p for p in folder.iterdir() if LEFTOVER.fullmatch(p.name)]:
        _delete(path)
        failpoint("sweep.mid")


def _delete(path: Path) -> None:
    """Delete a folder or a file; what cannot be deleted now is swept at the next start."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
