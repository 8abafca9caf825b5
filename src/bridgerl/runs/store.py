"""Files that survive a kill: hashed, synced, renamed into place, read back with suspicion."""

import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
import secrets
import shutil
from pathlib import Path
from typing import Any, Literal, TypeGuard

from bridgerl.errors import Busy, StorageFault, UserError
from bridgerl.runs.failpoint import failpoint

MANIFEST = "manifest.json"
FORMAT = 1
SEAL = "sha256"
MAX_JSON_BYTES = 64 * 2**20


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
    """The same data with None for NaN and infinity."""
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
    seal = value.pop(SEAL, None)
    require_intact(seal == sha256(to_json(value)), name, "its checksum differs")
    return value


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Read a regular file, or its first bytes; links and missing files are damage."""
    if path.is_symlink() or not path.is_file():
        raise StorageFault(f"{path} is missing or not a regular file")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(size if limit is None else min(size, limit))
    except OSError as error:
        raise StorageFault(f"{path} cannot be read: {error.strerror}") from None


def read_json_bytes(path: Path) -> bytes:
    """Read a file that should hold JSON, but not all of one that is far too large for it."""
    return read_bytes(path, MAX_JSON_BYTES + 1)


def read_json(path: Path) -> Any:
    """The value in a file of strict JSON."""
    return parse_json(read_json_bytes(path), str(path))


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


def write_file(path: Path, data: bytes, name: str | None = None) -> None:
    """Write and sync a file that nobody looks at yet; `name` is what it will be called."""
    with path.open("xb") as file:
        half = len(data) // 2
        file.write(data[:half])
        file.flush()
        failpoint(f"write.{name or path.name}.half")
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
        write_file(temporary, data, path.name)
        failpoint(f"publish.{path.name}")
        if path.is_dir() and not path.is_symlink():  # A file cannot take the place of a folder.
            discard(path)
        temporary.rename(path)
        sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def publish_folder(path: Path, files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    """Write a folder of files with a checksummed manifest, under its name at once or not at all."""
    temporary = path.parent / f".tmp-{path.name}-{secrets.token_hex(4)}"
    listing = [{"name": k, "size": len(v), "sha256": sha256(v)} for k, v in files.items()]
    try:
        temporary.mkdir()
        for key, data in files.items():
            write_file(temporary / key, data)
        failpoint("ckpt.before_manifest")
        full = {"format": FORMAT, "files": listing, **manifest}
        write_file(temporary / MANIFEST, to_sealed_json(full))
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
    for path in [*folder.glob(".tmp-*"), *folder.glob(".trash-*")]:
        _delete(path)
        failpoint("sweep.mid")


def _delete(path: Path) -> None:
    """Delete a folder or a file; what cannot be deleted now is swept at the next start."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


class RunLock:
    """A kernel lock on a file, and so on its folder: one writer, released even by kill -9."""

    def __init__(self, path: Path) -> None:
        self._file = open_owned(path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read(32).decode(errors="replace").strip() or "unknown"
            self._file.close()
            if not isinstance(error, BlockingIOError):
                raise
            what = f"{path.parent} is being written by process {holder}"
            raise Busy(f"{what}; wait for it or change --out") from None
        with contextlib.suppress(OSError):  # On a full disk it is a lock all the same.
            self._file.truncate(0)
            self._file.write(str(os.getpid()).encode())

    def release(self) -> None:
        self._file.close()
