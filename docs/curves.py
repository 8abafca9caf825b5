"""Draws learning curves of stored runs, light and dark, into docs/pictures.

python docs/curves.py evidence/main-cpu.zip cpu/runs returns
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bridgerl.plots import CRITICS, THEMES, critic_color, legend_below, panels, save, themed
from bridgerl.report.curves import draw_curves
from bridgerl.report.load import Run, load
from bridgerl.runs.archive import unpack

HERE = Path(__file__).parent / "pictures"


def critic_of(setting: str) -> str:
    """The critic of a setting such as sac-dbc-lite."""
    return next(critic for critic in CRITICS if critic in setting)


def draw(runs: list[Run]) -> Any:
    """A panel a task: every seed thin, their mean thick."""
    settings = sorted({p.setting for run in runs for p in run.parts}, key=critic_of)
    tasks = draw_curves("", runs, settings)
    figure, axes = panels(1, len(tasks), width=2.6, height=2.2)
    for ax, task in zip(axes, tasks, strict=True):
        for curve in sorted(task["curves"], key=lambda c: CRITICS.index(critic_of(c["setting"]))):
            critic = critic_of(curve["setting"])
            color = critic_color(critic)
            thousands = [step / 1000 for step in curve["steps"]]
            ax.plot(thousands, curve["mean"], color=color, lw=2.2, label=f"SAC+{critic.upper()}")
            for part in (p for run in runs for p in run.parts):
                if (part.task, part.setting) == (task["task"], curve["setting"]):
                    steps, values = part.curve
                    ax.plot([s / 1000 for s in steps], values, color=color, lw=0.8, alpha=0.6)
        ax.set(title=task["task"], xlabel="thousand steps")
    axes[0].set_ylabel("return")
    legend_below(figure, axes[0], most=3)
    return figure


def main() -> None:
    """Draw one archive in both themes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", help="of the runs in it")
    parser.add_argument("stem", help="of the pictures' names")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        unpack(args.archive, Path(scratch) / "kept")
        runs = load(Path(scratch) / "kept" / args.folder).runs
    for name in THEMES:
        with themed(name):
            save(draw(runs), HERE / f"{args.stem}-{name}.png")


if __name__ == "__main__":
    main()
