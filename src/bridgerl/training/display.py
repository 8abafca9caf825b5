"""What a person sees while a run goes on."""

import os
import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Display:
    """A live bar on a terminal, a line per evaluation elsewhere, silence when asked."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self.console = _Console(quiet=quiet, highlight=False)
        self._live = self.console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            _Speed(),
            TextColumn("eta"),
            TimeRemainingColumn(),
            TextColumn("train return {task.fields[result]}"),
            console=self.console,
            disable=not self._live,
            speed_estimate_period=10.0,  # Warm-up steps are much faster than the others.
        )
        self._task = self._progress.add_task("", total=total, result="-")
        self._due = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar; a run outlives the reader of its output."""
        try:
            self.console.print(text, soft_wrap=True, markup=False)
        except OSError:
            self.console.quiet = True

    def warn(self, text: str) -> None:
        """Print a warning to stderr, whatever else is silent."""
        self._progress.stop()
        print(f"bridgerl: warning: {text}", file=sys.stderr)
        self._progress.start()

    def update(self, step: int, last_return: float | None) -> None:
        """Move the bar, at most twice a second."""
        if self._live and time.monotonic() >= self._due:
            self._due = time.monotonic() + 0.5
            result = "-" if last_return is None else f"{last_return:.1f}"
            self._progress.update(self._task, completed=step, result=result)

    def finish(self, step: int) -> None:
        """Leave the bar at the last step."""
        self._progress.update(self._task, total=step, completed=step)


class _Speed(ProgressColumn):
    """Steps a second of late."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.0f} steps/s")


class _Console(Console):
    """A console that falls silent when nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        """Go on without output, where rich would end the process."""
        self.quiet = True
        silence_stdout()


def silence_stdout() -> None:
    """Send stdout nowhere: Python flushes it once more at exit, which must not fail again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)
