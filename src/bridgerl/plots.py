"""One look for every picture; matplotlib is an extra and loaded only when something is drawn."""

import importlib.util
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bridgerl.errors import UserError, install
from bridgerl.runs import store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers, and in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C510A")


class Theme(NamedTuple):
    """Colours that must suit the page around a picture."""

    ink: str
    paper: str
    truth: str
    """Colour of areas that are true distributions."""
    accent: str
    """Colour of the one thing that a picture is about."""


THEMES = {
    "light": Theme("#222222", "#ffffff", "#c8c8c8", COLORS[0]),
    "dark": Theme("#dddddd", "#131416", "#555a60", COLORS[5]),
}
CRITICS = ("dbc", "tqc", "cdq", "iqn", "dsac", "vf", "vdrl")
"""Critics in the order of their colours; DBC's is the accent."""
_theme = ContextVar("theme", default=THEMES["light"])

# Where a point's name may stand, in points: right, left, and ever higher and lower.
_SPOTS = [(6 * x, y * d) for d in range(0, 60, 3) for x in (1, -1) for y in (1, -1)]

_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.dpi": 150,
}


def theme() -> Theme:
    """The colours to draw with here."""
    return _theme.get()


def critic_color(critic: str) -> str:
    """The colour that a critic has in every picture."""
    return (theme().accent, *COLORS[1:])[CRITICS.index(critic)]


@contextmanager
def themed(name: str) -> Iterator[Theme]:
    """Ink and paper, "light" or "dark", for whatever is drawn inside."""
    from matplotlib import rc_context

    chosen = THEMES[name]
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    colors = dict.fromkeys(inks, chosen.ink) | dict.fromkeys(papers, chosen.paper)
    before = _theme.set(chosen)
    try:
        with rc_context(_STYLE | colors):
            yield chosen
    finally:
        _theme.reset(before)


def can_plot() -> bool:
    """Whether pictures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def check_plotting() -> None:
    """Refuse before any work what could not be drawn after it."""
    if not can_plot():
        raise UserError(f"pictures need matplotlib: {install('plot')}, or add --no-plot")


def panels(rows: int, columns: int, *, width: float, height: float) -> "tuple[Figure, list[Axes]]":
    """A figure of panels of this size in inches each, read row by row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure((columns * width, rows * height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def legend_below(figure: "Figure", ax: "Axes", *, most: int) -> None:
    """The names of one panel's lines below all panels, at most so many beside each other."""
    handles, labels = ax.get_legend_handles_labels()
    columns = min(most, len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def save(figure: "Figure", path: Path) -> None:
    """Write a PNG under its name at once or not at all."""
    from matplotlib import rc_context

    data = io.BytesIO()
    with rc_context(_STYLE):
        # Tight: a long label widens the picture instead of being cut.
        figure.savefig(data, format="png", bbox_inches="tight")
    store.publish_file(path, data.getvalue())


def name_points(
    ax: "Axes", points: Sequence[tuple[float, float, str]], colors: Sequence[str]
) -> None:
    """Write each point's name beside it, where it covers no other point or name."""
    from matplotlib.transforms import Bbox

    ax.figure.draw_without_rendering()  # pyright: ignore[reportAttributeAccessIssue]  # Settles the layout.
    dots = ax.transData.transform([(x, y) for x, y, _ in points])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    for (x, y, name), color in zip(points, colors, strict=True):
        text = ax.annotate(name, (x, y), (0, 0), textcoords="offset points", va="center")
        text.set(fontsize=7, color=color)
        for dx, dy in _SPOTS:
            text.set(position=(dx, dy), ha="left" if dx > 0 else "right")
            if not any(text.get_window_extent().overlaps(box) for box in taken):
                break
        taken.append(text.get_window_extent())
