"""One writer at a time for a folder."""

import contextlib
import fcntl
import os
from pathlib import Path

from bridgerl.errors import Busy
from bridgerl.runs.store import open_owned


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
