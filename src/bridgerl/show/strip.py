"""A filmstrip: pictures of an episode above the return distribution that was learned."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bridgerl.plots import COLORS, panels, save, theme
from bridgerl.show.panel import GRID, Prediction, draw_fan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 1.15
"""Inches of a picture's width."""
LOWER = 1.6
"""Inches of the quantiles' height at least, however flat the pictures are."""
VIOLIN = 0.12
"""Width of a distribution as a share of the episode."""


def save_strip(path: Path, pictures: list[np.ndarray], said: Prediction, shown: np.ndarray) -> None:
    """Pictures at some steps in a row; below, quantiles over the episode and densities there."""
    n, first = len(pictures), pictures[0]
    above = SIDE * first.shape[0] / first.shape[1]
    below = max(1.5 * above, LOWER)
    figure, axes = panels(2, n, width=SIDE, height=(above + below) / 2)
    figure.set_layout_engine("constrained", w_pad=0.01, h_pad=0.04, wspace=0.01)
    for ax, frame, i in zip(axes, pictures, shown, strict=False):
        ax.imshow(frame)
        ax.set_axis_off()
        ax.set_title(f"step {i}")
    grid = axes[n].get_gridspec()
    for ax in axes[n:]:
        ax.remove()
    assert grid is not None
    grid.set_height_ratios((above, below))
    lower = figure.add_subplot(grid[1, :])
    lower.spines[["top", "right"]].set_visible(False)
    draw_fan(lower, said)
    _draw_violins(lower, said, shown)
    lower.set(xlabel="step", xlim=(0, max(said.steps[-1], 1)), ylim=said.limits())
    lower.set_ylabel("predicted\nreturn from here" if said.known else "predicted\nvalue from here")
    save(figure, path)


def _draw_violins(ax: "Axes", said: Prediction, shown: np.ndarray) -> None:
    """The distribution at each picture, beside its step."""
    returns = np.linspace(*said.limits(), GRID)
    width = VIOLIN * max(float(said.steps[-1]), 1.0)
    for i in shown:
        left = i >= shown[-1]  # There is no room to the right of the last.
        ax.axvline(i, color=theme().ink, lw=0.6, ls=":")
        if said.known:
            side = (-width if left else width) * said.density(int(i), returns)
            ax.fill_betweenx(returns, i, i + side, color=COLORS[1], alpha=0.55, lw=0)
