"""The learned return distribution over an episode, as a panel that is redrawn for every frame."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bridgerl.plots import panels, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 400
"""Pixels of a side; a multiple of 16, as video wants it."""
DPI = 100
GRID = 160
"""Points of a density."""
NARROWEST = 0.012
"""Share of the axis by which a return is smoothed at least, so that a certain one can be seen."""
BANDS = ((0.05, 0.95, 0.25), (0.25, 0.75, 0.35))
"""Bands of quantiles, each from level to level, and how opaque."""
LARGE, SMALL = 15, 13
"""Sizes of letters; a page may show a film at half its size."""


class Prediction(NamedTuple):
    """What a critic said on the way: levels (k,), returns (n, k) at the steps (n,)."""

    steps: np.ndarray
    levels: np.ndarray
    returns: np.ndarray
    known: bool
    """Whether it knows a distribution, or a value alone."""

    def at(self, level: float) -> np.ndarray:
        """One quantile at every step: (n,)."""
        return self.returns[:, int(np.abs(self.levels - level).argmin())]

    def limits(self) -> tuple[float, float]:
        """An axis on which all of it can be seen."""
        low, high = float(self.at(0.05).min()), float(self.at(0.95).max())
        pad = max(0.12 * (high - low), 0.02 * max(abs(low), abs(high)), 1e-6)
        return low - pad, high + pad

    def density(self, i: int, at: np.ndarray) -> np.ndarray:
        """Smoothed density of the return at one step, its top at 1: (len(at),)."""
        z = self.returns[i]
        # Half of Scott's rule for samples: quantiles have no noise to be smoothed away, only modes.
        smooth = 0.5 * float(z.std()) * len(z) ** -0.2
        width = max(smooth, NARROWEST * float(np.ptp(at)))
        density = np.exp(-0.5 * np.square((at[:, None] - z) / width)).sum(1)
        return density / max(float(density.max()), 1e-12)


def draw_fan(ax: "Axes", said: Prediction) -> None:
    """Median and bands over the episode."""
    color = theme().accent
    for low, high, alpha in BANDS if said.known else ():
        ax.fill_between(said.steps, said.at(low), said.at(high), color=color, alpha=alpha, lw=0)
    ax.plot(said.steps, said.at(0.5), color=color, lw=2)


class Panel:
    """Left the quantiles so far, right the distribution now, on one axis of returns."""

    def __init__(self, said: Prediction) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.patches import Rectangle

        self._said, colors = said, theme()
        figure, (past, now) = panels(1, 2, width=SIZE / DPI / 2, height=SIZE / DPI)
        figure.set_dpi(DPI)
        self._canvas: Any = FigureCanvasAgg(figure)
        low, high = said.limits()
        last = max(float(said.steps[-1]), 1.0)
        self._grid = np.linspace(low, high, GRID)
        self._lay_out(figure, past, now, last)
        draw_fan(past, said)
        self._cover = Rectangle((0, low), last, high - low, color=colors.paper, zorder=3)
        past.add_patch(self._cover)
        self._now = past.axvline(0, color=colors.ink, lw=1, zorder=4)
        self._shape = now.fill_betweenx(
            self._grid, 0 * self._grid, color=colors.accent, alpha=0.35, lw=0
        )
        widths = [2 if level == 0.5 else 1 for level in self._levels]
        self._marks = [now.axhline(low, color=colors.accent, lw=width) for width in widths]
        how = {"ha": "right", "va": "bottom", "fontsize": LARGE, "fontweight": "bold"}
        self._words = now.text(1.1, low, "", color=colors.ink, **how)
        self._head = figure.text(0.03, 0.97, "", fontsize=LARGE, va="top", color=colors.ink)
        moving = [self._cover, self._now, self._shape, *self._marks, self._words, self._head]
        for artist in moving:
            artist.set_animated(True)
        self._moving = moving
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)

    @property
    def _levels(self) -> tuple[float, ...]:
        return (0.05, 0.5, 0.95) if self._said.known else (0.5,)

    def _lay_out(self, figure: Any, past: "Axes", now: "Axes", last: float) -> None:
        figure.set_layout_engine("none")
        low, high = self._grid[0], self._grid[-1]
        past.set_position((0.17, 0.18, 0.44, 0.63))
        now.set_position((0.64, 0.18, 0.33, 0.63))
        for ax in (past, now):
            ax.grid(visible=False)
            ax.set_ylim(low, high)
            ax.tick_params(labelsize=SMALL)
        past.set_xlim(0, 1.01 * last)  # Or the end of the fan shows beside its cover.
        past.set_xticks([0, last])
        past.set_xlabel("step", fontsize=SMALL, labelpad=-10)
        past.locator_params(axis="y", nbins=4)
        now.set_xlim(0, 1.15)
        now.set_xticks([])
        now.set_yticks([])
        what = "predicted return from here" if self._said.known else "predicted value from here"
        color = theme().accent
        figure.text(0.03, 0.89, what, fontsize=LARGE, va="top", color=color, fontweight="bold")
        if self._said.known:
            figure.text(0.03, 0.02, "median, middle 50 % and 90 %", fontsize=SMALL, color=color)

    def draw(self, i: int, head: str) -> np.ndarray:
        """The panel at one of the steps: (SIZE, SIZE, 3) in bytes."""
        said, step = self._said, float(self._said.steps[i])
        low, high = self._grid[0], self._grid[-1]
        self._cover.set_bounds(step, low, 1.1 * float(said.steps[-1]) + 1, high - low)
        self._now.set_xdata([step, step])
        if said.known:
            top = np.concatenate([[0], said.density(i, self._grid), [0]])
            around = np.concatenate([[low], self._grid, [high]])
            self._shape.set_verts([np.column_stack([top, around])])
        values = [float(said.at(level)[i]) for level in self._levels]
        for mark, value in zip(self._marks, values, strict=True):
            mark.set_ydata([value, value])
        middle = values[len(values) // 2]
        self._words.set(text=f"{middle:.4g}", y=middle)
        self._head.set_text(head)
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            self._canvas.figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()
