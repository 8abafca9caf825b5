"""What a person sees while a run goes on."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)


class Display:
    """A live bar on a terminal, a line per evaluation elsewhere, silence when asked."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self.console = Console(stderr=False, quiet=quiet, highlight=False)
        self._live = self.console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]} steps/s"),
            TextColumn("eta"),
            TimeRemainingColumn(),
            TextColumn("return {task.fields[result]}"),
            console=self.console,
            disable=not self._live,
        )
        self._task = self._progress.add_task("", total=total, speed="-", result="-")
        self._last = (0.0, 0)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, soft_wrap=True, markup=False)

    def warn(self, text: str) -> None:
        """Print a warning to stderr, whatever else is silent."""
        self._progress.stop()
        print(f"bridgerl: warning: {text}", file=sys.stderr)
        self._progress.start()

    def update(self, step: int, last_return: float | None) -> None:
        """Move the bar, at most a few times a second."""
        if not self._live:
            return
        now = time.monotonic()
        then, before = self._last
        if now - then < 0.5:
            return
        self._last = (now, step)
        result = "-" if last_return is None else f"{last_return:.1f}"
        speed = "-" if then == 0.0 else f"{(step - before) / (now - then):.0f}"
        self._progress.update(self._task, completed=step, speed=speed, result=result)
