"""A whole bench: contenders in turns, medians, ratios; as a table, a picture and JSON."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bridgerl.bench import peers
from bridgerl.bench.clock import PARTS, Setting
from bridgerl.bench.ours import FILL, isolated, measure
from bridgerl.config import RunConfig
from bridgerl.errors import UserError
from bridgerl.plots import COLORS, panels, save
from bridgerl.runs.versions import processor, versions

PEERS = {
    ("sac", "cdq"): (("stable-baselines3", "SAC"), ("sbx", "SAC")),
    ("td3", "cdq"): (("stable-baselines3", "TD3"), ("sbx", "TD3")),
    ("sac", "tqc"): (("sb3-contrib", "TQC"), ("sbx", "TQC")),
}
"""Our pairs by the names that other libraries give them."""
ROUND = 50
"""Steps between two looks of a peer at the clock."""


class Contender(NamedTuple):
    """Somebody who is measured, and the one of ours it is a peer of."""

    label: str
    run: Callable[[Setting], dict[str, float]]
    peer_of: str | None = None


def installed(python: Path) -> list[str]:
    """The libraries that an interpreter has."""
    return ask(python, {})


def contenders(pairs: Mapping[str, RunConfig], python: Path) -> list[Contender]:
    """Our pairs by label, and behind each its peers of equal sizes that an interpreter has."""
    has = installed(python)
    found = []
    for label, pair in pairs.items():
        found.append(Contender(label, partial(isolated, label, measure, pair)))
        hidden = getattr(pair.critic, "hidden", ())
        if hidden != pair.actor.hidden:  # Theirs share one shape; ours must have it too.
            continue
        for library, algorithm in PEERS.get((pair.actor_name, pair.critic_name), ()):
            if library in has:
                request = {"library": library, "algorithm": algorithm, "hidden": list(hidden)}
                run = partial(_measure_peer, python, request)
                found.append(Contender(f"{library} {algorithm}", run, label))
    return found


def run_bench(
    rivals: Sequence[Contender], settings: Sequence[Setting], repeats: int, tick: Callable[[], None]
) -> list[dict[str, Any]]:
    """One row per contender and setting: medians, and ratios of speed within the same turn."""
    rows = []
    for setting in settings:
        found: dict[str, list[dict[str, float]]] = {rival.label: [] for rival in rivals}
        for rival in [*rivals] * repeats:
            found[rival.label].append(rival.run(setting))
            tick()
        for rival in rivals:
            mine, others = found[rival.label], found[rival.peer_of or rivals[0].label]
            speeds = [turn["steps_per_second"] for turn in mine]
            base = [turn["steps_per_second"] for turn in others]
            ratio = median(b / a for a, b in zip(speeds, base, strict=True))
            row = {"label": rival.label, "peer_of": rival.peer_of, **asdict(setting)}
            row |= {key: median(turn[key] for turn in mine) for key in mine[0]}
            compared = "time_over_first" if rival.peer_of is None else "ours_over_it"
            rows.append(row | {"all_steps_per_second": speeds, compared: ratio})
    return rows


def describe() -> dict[str, str]:
    """What a reader must know to compare figures."""
    simd = torch.backends.cpu.get_cpu_capability()
    return {**versions(), "simd": simd, "processor": processor()}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows, one table per number of threads."""
    # Wrapped cells cannot be read: a narrow terminal gets long lines instead.
    console = Console(highlight=False, width=max(Console().width, 160))
    for threads in sorted({row["threads"] for row in rows}):
        mine = [row for row in rows if row["threads"] == threads]
        title = f"{mine[0]['env']}, batch {mine[0]['batch']}, {threads} thread(s)"
        table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1), pad_edge=False)
        table.add_column(no_wrap=True)
        for column in ("steps/s", *PARTS, "ms/step", "GFLOP", "of peak", "MB", "ratio"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in mine:
            table.add_row(*_cells(row))
        console.print(table)
    note = "Parts in milliseconds per step. Ratio: time per step over the first row's; "
    console.print(f"{note}for a peer, how many times faster ours is.", markup=False)


def draw_parts(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Bars of milliseconds per step: ours by part, peers as one; a panel per thread count."""
    threads = sorted({row["threads"] for row in rows})
    height = 1.2 + 0.32 * sum(row["threads"] == threads[0] for row in rows)
    figure, axes = panels(1, len(threads), width=6.5, height=height)
    for axis, n in zip(axes, threads, strict=True):
        mine = [row for row in rows if row["threads"] == n]
        names = [row["label"] if row["peer_of"] is None else f"({row['label']})" for row in mine]
        for at, row in enumerate(mine):
            total, left = 1e3 / row["steps_per_second"], 0.0
            if row["peer_of"] is not None:
                axis.barh(at, total, color="#BBBBBB")
            else:
                for part, color in zip(PARTS, COLORS, strict=True):
                    axis.barh(at, row[f"{part}_ms"], left=left, color=color)
                    left += row[f"{part}_ms"]
            axis.text(total, at, f" {total:.1f}", va="center", fontsize=8)
        axis.set_yticks(range(len(mine)), names)
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set(xlabel="milliseconds per environment step", title=f"{n} thread{'s' * (n > 1)}")
    for part, color in zip(PARTS, COLORS, strict=True):
        axes[0].barh([0], [0], color=color, label=part)
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8)
    save(figure, path)


def _cells(row: dict[str, Any]) -> list[str]:
    speed, total = f"{row['steps_per_second']:.1f}", f"{1e3 / row['steps_per_second']:.2f}"
    if row["peer_of"] is not None:
        ratio, empty = f"ours {row['ours_over_it']:.2f}x", [""] * len(PARTS)
        return [f"  {row['label']}", speed, *empty, total, "", "", "", ratio]
    parts = [f"{row[f'{part}_ms']:.2f}" for part in PARTS]
    rest = [f"{row['gflop']:.2f}", f"{100 * row['peak_share']:.0f} %", f"{row['memory_mb']:.0f}"]
    return [row["label"], speed, *parts, total, *rest, f"{row['time_over_first']:.2f}"]


def _measure_peer(python: Path, request: dict[str, Any], setting: Setting) -> dict[str, float]:
    shared = {**asdict(setting), "cores": setting.cores, "fill": FILL, "round": ROUND}
    return ask(python, request | shared)


def ask(python: Path, request: dict[str, Any]) -> Any:
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
