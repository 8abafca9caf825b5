"""What a person sees while a run goes on."""

import os
import sys
import time

from rich import progress
from rich.console import Console
from rich.text import Text

from bridgerl.errors import printable

NARROW, WIDE = 60, 76
"""Columns of a terminal from which on there is room for speed and time, and for a bar."""


class Display(progress.Progress):
    """A live bar on a terminal, a line per evaluation elsewhere, silence when asked."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        console = _Console(quiet=quiet, highlight=False)
        super().__init__(
            *_columns(console.width),
            console=console,
            disable=quiet or not console.is_terminal,
            speed_estimate_period=10.0,  # Warm-up steps are much faster than the others.
        )
        self._bar = self.add_task("", total=total, result="-")
        self._due = 0.0

    def say(self, text: str) -> None:
        """Print a line above the bar; a run outlives the reader of its output."""
        try:
            self.console.print(printable(text), soft_wrap=True, markup=False)
        except OSError:
            self.console.quiet = True

    def warn(self, text: str) -> None:
        """Print to stderr, whatever else is silent."""
        self.stop()
        print(f"bridgerl: warning: {printable(text)}", file=sys.stderr)
        self.start()

    def show(self, step: int, last_return: float | None) -> None:
        """Move the bar, at most twice a second."""
        if not self.disable and time.monotonic() >= self._due:
            self._due = time.monotonic() + 0.5
            result = "-" if last_return is None else f"{last_return:.1f}"
            self.update(self._bar, completed=step, result=result)

    def finish(self, step: int) -> None:
        self.update(self._bar, total=step, completed=step)


def _columns(width: int) -> list[progress.ProgressColumn]:
    """What there is room for: first goes the bar, then words; the counter is never cut."""
    counter, left = progress.MofNCompleteColumn(), progress.TimeRemainingColumn()
    if width < NARROW:
        return [counter, progress.TextColumn("{task.fields[result]}")]
    columns = [progress.SpinnerColumn(), counter, _Speed(), progress.TextColumn("eta"), left]
    if width < WIDE:
        return [*columns, progress.TextColumn("return {task.fields[result]}")]
    words = progress.TextColumn("train return {task.fields[result]}")
    bar = progress.BarColumn(bar_width=min(28, width - 68))
    return [columns[0], bar, *columns[1:], words]


class _Speed(progress.ProgressColumn):
    def render(self, task: progress.Task) -> Text:
        return Text(f"{task.speed or 0:.0f} steps/s")


class _Console(Console):
    """A console that falls silent when nobody reads it any more, where rich would exit."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence_stdout()


def silence_stdout() -> None:
    """Send stdout nowhere: Python flushes it once more at exit, which must not fail again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)
