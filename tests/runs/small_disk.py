"""Small disks in memory, to be filled."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


class NoDisk(Exception):
    """A small disk cannot be had here; the message says why."""


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system in memory for the length of a block, e.g. of `size=80k`."""
    if os.geteuid() != 0:
        raise NoDisk("only root can mount a small disk")
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", size, "none", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise NoDisk(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        unmount(place)


def enlarge(place: Path) -> None:
    """Make space."""
    subprocess.run(["mount", "-o", "remount,size=50m,nr_inodes=10000", str(place)], check=True)


def unmount(place: Path) -> None:
    """Also while files are open."""
    subprocess.run(["umount", "-l", str(place)], check=True)
