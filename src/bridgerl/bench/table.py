"""A whole bench: contenders in turns, medians, ratios; as a table and as JSON."""

import json
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bridgerl.bench import peers
from bridgerl.bench.clock import PARTS, Setting
from bridgerl.bench.ours import FILL, isolated, measure
from bridgerl.cli.entrants import Pair
from bridgerl.errors import UserError
from bridgerl.training.envs import versions

PEERS = {
    ("sac", "cdq"): (("stable-baselines3", "SAC"), ("sbx", "SAC")),
    ("td3", "cdq"): (("stable-baselines3", "TD3"), ("sbx", "TD3")),
    ("sac", "tqc"): (("sb3-contrib", "TQC"), ("sbx", "TQC")),
}
"""What other libraries call our pairs."""
WIDE = 160
"""Columns in which the table has room."""
ROUND = 50
"""Steps between two looks of a peer at the clock."""


@dataclass(frozen=True)
class Contender:
    """Somebody who is measured, and the one of ours it is a peer of."""

    label: str
    run: Callable[[Setting], dict[str, float]]
    peer_of: str | None = None


def contenders(pairs: Sequence[Pair], python: Path) -> list[Contender]:
    """Our pairs, and behind each its peers of equal sizes that an interpreter has."""
    has = _ask(python, {})
    found = []
    for pair in pairs:
        found.append(Contender(pair.label, lambda s, p=pair: isolated(measure, p, s)))
        hidden = getattr(pair.critic_config, "hidden", ())
        if hidden != pair.actor_config.hidden:  # Theirs share one shape; ours must have it too.
            continue
        for library, algorithm in PEERS.get((pair.actor, pair.critic), ()):
            if library in has:
                request = {"library": library, "algorithm": algorithm, "hidden": list(hidden)}
                label = f"{library} {algorithm}"
                found.append(Contender(label, _peer(python, request), pair.label))
    return found


def run_bench(
    rivals: Sequence[Contender],
    settings: Sequence[Setting],
    repeats: int,
    tick: Callable[[], None],
) -> list[dict[str, Any]]:
    """One row per contender and setting: medians, and ratios of speed within the same turn."""
    rows = []
    for setting in settings:
        turns: list[dict[str, dict[str, float]]] = []
        for _ in range(repeats):
            turns.append({})
            for rival in rivals:
                turns[-1][rival.label] = rival.run(setting)
                tick()
        for rival in rivals:
            mine = [turn[rival.label] for turn in turns]
            base = rival.peer_of or rivals[0].label
            speeds = [m["steps_per_second"] for m in mine]
            others = [turn[base]["steps_per_second"] for turn in turns]
            ratio = statistics.median(b / a for a, b in zip(speeds, others, strict=True))
            rows.append(
                {
                    "label": rival.label,
                    "peer_of": rival.peer_of,
                    **asdict(setting),
                    **{k: statistics.median(m[k] for m in mine) for k in mine[0]},
                    "all_steps_per_second": speeds,
                    "time_over_first" if rival.peer_of is None else "ours_over_it": ratio,
                }
            )
    return rows


def describe() -> dict[str, str]:
    """What a reader must know to compare figures."""
    return {**versions(), "simd": torch.backends.cpu.get_cpu_capability()}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows, one table per number of threads."""
    # Wrapped cells cannot be read: a narrow terminal gets long lines instead.
    console = Console(highlight=False, width=max(Console().width, WIDE))
    for threads in sorted({row["threads"] for row in rows}):
        mine = [row for row in rows if row["threads"] == threads]
        title = f"{mine[0]['env']}, batch {mine[0]['batch']}, {threads} thread(s)"
        table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1), pad_edge=False)
        columns = ("", "steps/s", *PARTS, "ms/step", "GFLOP", "of peak", "MB", "ratio")
        for i, column in enumerate(columns):
            table.add_column(column, justify="right" if i else "left", no_wrap=True)
        for row in mine:
            table.add_row(*_cells(row))
        console.print(table)
    console.print(
        "Parts in milliseconds per step. Ratio: time per step over the first row's; "
        "for a peer, how many times faster ours is.",
        markup=False,
    )


def _cells(row: dict[str, Any]) -> list[str]:
    speed, total = f"{row['steps_per_second']:.1f}", f"{1e3 / row['steps_per_second']:.2f}"
    if row["peer_of"] is not None:
        return [f"  {row['label']}", speed, *[""] * len(PARTS), total, "", "", "", _x(row)]
    parts = [f"{row[f'{part}_ms']:.2f}" for part in PARTS]
    rest = [f"{row['gflop']:.2f}", f"{100 * row['peak_share']:.0f} %", f"{row['memory_mb']:.0f}"]
    return [row["label"], speed, *parts, total, *rest, _x(row)]


def _x(row: dict[str, Any]) -> str:
    if row["peer_of"] is None:
        return f"{row['time_over_first']:.2f}"
    return f"ours {row['ours_over_it']:.2f}x"


def _peer(python: Path, request: dict[str, Any]) -> Callable[[Setting], dict[str, float]]:
    """Steps per second of another library's algorithm."""

    def run(setting: Setting) -> dict[str, float]:
        shared = {**asdict(setting), "cores": setting.cores, "fill": FILL, "round": ROUND}
        return _ask(python, request | shared)

    return run


def _ask(python: Path, request: dict[str, Any]) -> Any:
    """The last line of a peer process, as JSON."""
    command = [str(python), "-W", "ignore", peers.__file__, json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"--peers {python} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"{request.get('library', 'peers')} under {python} failed: {reason}")
    return json.loads(done.stdout.strip().splitlines()[-1])
