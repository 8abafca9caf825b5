"""What a person sees while a study runs: a live table on a terminal, lines elsewhere."""

import time
from contextlib import suppress
from datetime import timedelta
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bridgerl.errors import printable
from bridgerl.runs.folder import RunFolder
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.pool import Watcher
from bridgerl.studies.run.work import JobEnd

WIDE = 76
"""Columns from which on there is room for more than names and steps."""
SHOWN = 20
"""Runs under way that the table has room for."""


class Board(Watcher):
    """The state of every job of a study."""

    def __init__(self, jobs: list[Job], *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._is_live = self.console.is_terminal and not quiet
        self._jobs, self._begun = jobs, time.monotonic()
        self._running: dict[Job, tuple[float, int]] = {}
        self._ended: dict[Job, JobEnd] = {}

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def started(self, job: Job) -> None:
        self._running[job] = (time.monotonic(), job.progress())
        if not self._is_live:
            self.say(f"start   {job.name}")

    def waits(self, job: Job, reason: str) -> None:
        self.say(f"waits   {job.name}: {reason}")

    def died(self, job: Job, reason: str) -> None:
        self._running.pop(job, None)
        self.say(f"again   {job.name}: {reason}; it is taken up again")

    def ended(self, job: Job, end: JobEnd) -> None:
        self._running.pop(job, None)
        self._ended[job] = end
        tail = f": {end.reason}" if end.reason else ""
        self.say(f"{end.status:<7} {job.name}{tail}  ({len(self._ended)}/{len(self._jobs)})")

    def refresh(self) -> None:
        if self._is_live:
            with suppress(OSError):
                self._live.update(self._table(), refresh=True)

    def say(self, text: str) -> None:
        # A lost terminal or a full disk must not end the runs.
        with suppress(OSError, SystemExit):
            self.console.print(printable(text), markup=False, soft_wrap=True)

    def _table(self) -> Group:
        table, now = Table(box=None, padding=(0, 2), pad_edge=False), time.monotonic()
        wide = self.console.width >= WIDE
        heads = ("run", "", "step", "steps/s", "left", "last return") if wide else ("run", "step")
        for head in heads:
            side = "left" if head in ("run", "") else "right"
            table.add_column(head, justify=side, overflow="fold")
        steps = {job: job.progress() for job in self._running}
        steps |= {job: job.steps for job, end in self._ended.items() if end.status == "done"}
        share = sum(steps.values()) / max(sum(job.steps for job in self._jobs), 1)
        for job, (since, first) in list(self._running.items())[:SHOWN]:
            step = steps[job]
            speed = (step - first) / (now - since) if now > since else 0.0
            if not wide:
                table.add_row(job.name, f"{step:,}")
                continue
            left = str(timedelta(seconds=round((job.steps - step) / speed))) if speed > 0 else "-"
            shown = f"{speed:.0f}" if speed > 0 else "-"
            bar, last = ProgressBar(job.steps, step, width=20), RunFolder(job.folder).last_return()
            last = "-" if last is None else f"{last:.1f}"
            table.add_row(job.name, bar, f"{step:,}", shown, left, last)
        hidden = len(self._running) - SHOWN
        note = f" ({hidden} more running)" if hidden > 0 else ""
        failed = sum(end.status == "failed" for end in self._ended.values())
        head = f"{len(self._ended)} of {len(self._jobs)} runs ended, {failed} failed, "
        head += f"{len(self._running)} running{note}, {100 * share:.0f} % of all steps, "
        return Group(Text(f"{head}{timedelta(seconds=round(now - self._begun))}"), table)
