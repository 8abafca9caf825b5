"""The picture of two kinds of risk."""

from pathlib import Path

from bridgerl.plots import COLORS, panels, save, theme
from bridgerl.truth.gambles import MEASURES, TRIED, worths, worths_after_a_loss

TWO_STEPS = "cvar:0.25"


def draw_gambles(path: Path) -> None:
    """What actions are worth, measure by measure, and after a loss seen in two ways."""
    figure, (one, two) = panels(2, 1, width=4.2, height=2.4)
    for measure, color in zip(MEASURES, COLORS, strict=False):
        worth = worths(measure)
        best = int(worth.argmax())
        one.plot(TRIED, worth, color=color, label=measure)
        one.plot(TRIED[best], worth[best], "o", color=color)
    one.set(title="One step", xlabel="action", ylabel="worth of what it pays", ylim=(-5, 11))
    one.legend(fontsize=8, ncols=2, loc="lower left", frameon=False)
    views = {"of the return to go": worths, "of the whole (static)": worths_after_a_loss}
    for (name, view), color in zip(views.items(), (theme().accent, COLORS[1]), strict=True):
        worth = view(TWO_STEPS)
        best = int(worth.argmax())
        two.plot(TRIED, worth - worth[best], color=color, label=name)
        two.plot(TRIED[best], 0, "o", color=color)
        two.annotate(f"{TRIED[best]:.2f}", (TRIED[best], 0.2), ha="center", color=color)
    two.axvline(1, color=theme().ink, lw=0.5, ls=":")
    title = f"Second step after a loss, {TWO_STEPS}"
    two.set(title=title, xlabel="action", ylabel="worth, less that of the best", ylim=(-5, 1))
    two.legend(loc="lower left", frameon=False)
    save(figure, path)
