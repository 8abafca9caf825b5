"""What the lab's verbs share: a progress bar, a folder of results, checks of lists."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bridgerl.errors import StorageFault, UserError, require
from bridgerl.runs import store


@contextmanager
def progress(total: int, what: str) -> Iterator[Progress]:
    """A bar on stderr, so that stdout stays the result's."""
    columns = (TextColumn(what), BarColumn(bar_width=28), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        progress.add_task(what, total=total)
        yield progress


def make_folder(folder: Path) -> None:
    """Make the folder of results, or refuse before any work."""
    try:
        store.make_folder(folder)
    except OSError as error:
        raise UserError(f"--out {folder} cannot be written: {error.strerror}") from None


def require_some(name: str, values: tuple[object, ...]) -> None:
    """Refuse an empty list, and one that names something twice."""
    require(len(values) > 0, name, values, "needs at least one")
    require(len(set(values)) == len(values), name, values, "names one twice")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say where results could not be written."""
    try:
        yield
    except OSError as error:
        raise StorageFault(f"{folder}: results not written: {error}") from error
