"""What a report reads of many runs, in one small file: logs and scores, no weights, no replay."""

import io
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path, PurePosixPath

from bridgerl.errors import StorageFault, UserError
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.search import walk

MADE_AGAIN = "results.json"
"""The file that `report` makes anew, so that no archive needs it."""
MOST_BYTES = 2**30
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every entry's time, so that equal scores make equal files."""
NOT_OURS = (zipfile.BadZipFile, LZMAError, zlib.error, EOFError, NotImplementedError, ValueError)


def pack(folder: Path, out: Path) -> int:
    """Write an archive of a folder of runs, studies or races; returns how many files it holds."""
    files = [path / name for path, names in walk(folder) for name in sorted(names) if _kept(name)]
    if not files:
        raise UserError(f"{folder} holds no runs, results or races to pack")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compresslevel=9) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, store.read_bytes(path))
    store.publish_file(out, data.getvalue())
    return len(files)


def unpack(archive: Path, folder: Path) -> int:
    """Put the files of an archive below a folder; returns how many. Files that differ stay."""
    entries = _read(archive)
    for name, data in entries.items():
        path = folder / name
        if path.exists() and store.read_bytes(path) != data:
            raise UserError(f"{path} is there already and differs; unpack into another folder")
    for name, data in entries.items():
        path = folder / name
        if not path.exists():
            store.make_folder(path.parent)
            store.publish_file(path, data)
    return len(entries)


def _read(archive: Path) -> dict[str, bytes]:
    """Every entry, if all of them are what `pack` writes."""
    data = store.read_bytes(archive, MOST_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            entries = file.infolist()
            if sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise StorageFault(f"{archive} is too large")
            for entry in entries:
                _require_ours(entry.filename, archive)
            return {entry.filename: file.read(entry) for entry in entries}
    except NOT_OURS as error:
        raise StorageFault(f"{archive} is no archive of scores: {error}") from None


def _require_ours(name: str, archive: Path) -> None:
    """Refuse all but files that reports read, and what would lie outside the folder."""
    path = PurePosixPath(name)
    plain = path.as_posix() == name and not path.is_absolute() and name.isprintable()
    inside = not any(part.startswith(".") or "\\" in part for part in path.parts)
    store.require_intact(plain and inside and _kept(path.name), archive, f"odd entry {name!r:.80}")


def _kept(name: str) -> bool:
    done = RunFolder(Path()).done_file.name
    return name == done or (name.endswith((".json", ".jsonl")) and name != MADE_AGAIN)
