"""Break what can be broken for so many minutes, and say what came of it.

Example: PYTHONPATH=src:tests python -m chaos --minutes 30 --out runs/chaos
Killed and started again it goes on; more minutes add to what is there.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos.faults import FAULTS
from chaos.tally import Tally, table, total
from chaos.worker import describe, work
from conftest import environment, started

LOOK = 30.0
"""Seconds between two lines of progress."""


def main(words: Sequence[str]) -> int:
    """Run the workers, or be one; 1 when a promise was broken."""
    args = _arguments(words)
    names = args.only or [fault.name for fault in FAULTS]
    if args.worker is not None:
        work(args.out / f"worker-{args.worker}", args.worker, args.seed, 60 * args.minutes, names)
        return 0
    about = describe(args.seed)
    folders = [args.out / f"worker-{k}" for k in range(args.workers)]

    def tallies() -> list[Tally]:
        return [Tally(folder / "tally.json", about) for folder in folders]

    tallies()  # Refuses a folder of other code.
    failed = _run_workers(args, words, tallies)
    rows = total(tallies(), names)
    text = table(rows)
    minutes = sum(tally.seconds for tally in tallies()) / 60 / args.workers
    title = f"{minutes:.1f} minutes, {args.workers} workers, seed {args.seed}"
    (args.out / "chaos.md").write_text(f"{title}\n\n{text}\n")
    print(f"\n{title}\n\n{text}")
    return 1 if failed or any(row.failures for row in rows.values()) else 0


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="in all, with earlier starts")
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"), help="holds the tally")
    parser.add_argument("--workers", type=int, default=2, help="processes, one to a core")
    parser.add_argument("--seed", type=int, default=0)
    choices = [fault.name for fault in FAULTS]
    parser.add_argument("--only", action="append", choices=choices, help="faults, one or more")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _run_workers(
    args: argparse.Namespace, words: Sequence[str], tallies: Callable[[], list[Tally]]
) -> bool:
    """Wait for all workers, with a line now and then; whether one failed."""
    command = [sys.executable, "-m", "chaos", *words]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(started([*command, "--worker", str(k)], env=environment()))
            for k in range(args.workers)
        ]
        shown = time.monotonic()
        while any(worker.poll() is None for worker in running):
            time.sleep(0.2)
            if time.monotonic() - shown > LOOK:
                shown = time.monotonic()
                print(_progress(tallies(), args.minutes), flush=True)
        return any(worker.returncode != 0 for worker in running)


def _progress(tallies: list[Tally], minutes: float) -> str:
    rows = total(tallies, []).values()
    tries, failures = sum(row.tries for row in rows), sum(row.failures for row in rows)
    spent = max(tally.seconds for tally in tallies) / 60
    return f"{spent:.1f} of {minutes:g} minutes: {tries:,} tries, {failures} failures"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
