"""Runs found below a folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bridgerl.runs.folder import PARTS, RunFolder


def walk(
    root: Path, onerror: Callable[[OSError], None] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Folders below a root with their files, in a fixed order; no links, nothing inside runs."""
    for path, children, files in os.walk(root, onerror=onerror):
        children[:] = sorted(c for c in children if c not in PARTS and c[0] != ".")
        yield Path(path), files


def find_runs(root: Path, onerror: Callable[[OSError], None]) -> list[RunFolder]:
    """Our runs below a root, and other people's folders with evaluations alone."""
    found = []
    for path, files in walk(root, onerror):
        run = RunFolder(path)
        ours = {run.config_file.name, run.metrics_file.name} <= set(files)
        if ours or run.evaluations_file.name in files:
            found.append(run)
    return found
