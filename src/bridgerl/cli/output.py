"""What verbs share: a progress bar, and a folder of results."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bridgerl.errors import StorageFault, UserError
from bridgerl.runs import store


@contextmanager
def progress(total: int, what: str) -> Iterator[Progress]:
    """A bar on stderr, so that stdout stays the result's."""
    columns = (TextColumn(what), BarColumn(bar_width=28), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=total)
        yield bar


def make_folder(out: Path, inside: str = ".") -> None:
    """Make the folder of results and one inside of it, or refuse before any work."""
    folder = out / inside
    store.refuse_links(folder, out)
    try:
        store.make_folder(folder)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be written: {error.strerror}") from None
    for place in {out, folder.parent, folder} if folder != out else {out}:
        if not os.access(place, os.W_OK | os.X_OK):
            raise UserError(f"--out {place} is not writable")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say where results could not be written."""
    try:
        yield
    except OSError as error:
        raise StorageFault(f"{folder}: results not written: {error}") from error
