"""What verbs share: a progress bar, a folder of results, and a file of one's own choice."""

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bridgerl.errors import StorageFault, UserError
from bridgerl.runs import store


class Bar(Progress):
    """A progress bar of one task."""

    def tick(self) -> None:
        """One more is done."""
        self.advance(self.task_ids[0])

    def reach(self, share: float) -> None:
        """So much of the whole is done."""
        task = self.tasks[0]
        self.update(task.id, completed=round(share * (task.total or 0)))


@contextmanager
def progress(total: int, what: str) -> Iterator[Bar]:
    """A bar on stderr, so that stdout stays the result's."""
    columns = (TextColumn(what), BarColumn(bar_width=28), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
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


def check_file(flag: str, path: Path, endings: Collection[str], *, force: bool) -> None:
    """Refuse before any work a file that cannot be written, or is there already."""
    if path.suffix not in endings:
        raise UserError(f"{flag} {path} must end in {' or '.join(sorted(endings))}")
    if not os.path.isdir(path.parent):
        raise UserError(f"{flag} {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(f"{flag} {path}: {path.parent} is not writable")
    if os.path.lexists(path) and (not force or os.path.isdir(path)):
        raise UserError(f"{flag} {path} is there already; choose another name or add --force")


def counted(n: int, what: str) -> str:
    """`1 episode`, `10 episodes`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def tell_not_kept(folder: Path) -> None:
    """Say that figures were only shown."""
    print(f"{folder} is not writable: nothing was kept", file=sys.stderr)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say where results could not be written."""
    try:
        yield
    except OSError as error:
        raise StorageFault(f"{folder}: results not written: {error}") from error
