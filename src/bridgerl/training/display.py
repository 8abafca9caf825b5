"""What a person sees while a run goes on."""

import os
import sys
import time
from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
)


class Display:
    """A live bar on a terminal, a line per evaluation elsewhere, silence when asked."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self.console = _Console(quiet=quiet, highlight=False)
        self._live = self.console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]} steps/s"),
            TextColumn("eta {task.fields[eta]}"),
            TextColumn("train return {task.fields[result]}"),
            console=self.console,
            disable=not self._live,
        )
        self._task = self._progress.add_task("", total=total, speed="-", eta="-", result="-")
        self._total = total
        self._last = (0.0, 0)
        self._speed = 0.0

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
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
        """Move the bar, at most a few times a second."""
        if not self._live:
            return
        now = time.monotonic()
        then, before = self._last
        if now - then < 0.5:
            return
        self._last = (now, step)
        if then == 0.0:
            return
        # An average that forgets within seconds: warm-up steps are much faster than the others.
        latest = (step - before) / (now - then)
        self._speed = latest if self._speed == 0.0 else 0.8 * self._speed + 0.2 * latest
        left = (self._total - step) / self._speed if self._speed > 0 else 0.0
        self._progress.update(
            self._task,
            completed=step,
            speed=f"{self._speed:.0f}",
            eta=str(timedelta(seconds=round(left))),
            result="-" if last_return is None else f"{last_return:.1f}",
        )

    def finish(self, step: int) -> None:
        """Leave the bar at the last step."""
        self._progress.update(self._task, total=step, completed=step, eta="done")


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
