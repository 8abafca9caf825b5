"""The picture of a bench: what a step is made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bridgerl.bench.clock import PARTS
from bridgerl.plots import COLORS, panels, save

PEER = "#BBBBBB"


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
                axis.barh(at, total, color=PEER)
            else:
                for part, color in zip(PARTS, COLORS, strict=True):
                    axis.barh(at, row[f"{part}_ms"], left=left, color=color)
                    left += row[f"{part}_ms"]
            axis.text(total, at, f" {total:.1f}", va="center", fontsize=8)
        axis.set_yticks(range(len(mine)), names)
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("milliseconds per environment step")
        axis.set_title(f"{n} thread{'s' * (n > 1)}")
    for part, color in zip(PARTS, COLORS, strict=True):
        axes[0].barh([0], [0], color=color, label=part)
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8)
    save(figure, path)
