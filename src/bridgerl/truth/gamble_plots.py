"""Pictures of gambles: two kinds of risk, and what pairs of actors and critics learn."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bridgerl.plots import COLORS, panels, save, theme
from bridgerl.truth.gambles import TRIED, best_action, worths, worths_after_a_loss
from bridgerl.truth.settings import CLOSE, RISKS

TWO_STEPS = "cvar:0.25"


def draw_gambles(path: Path) -> None:
    """What actions are worth, measure by measure, and after a loss seen in two ways."""
    figure, (one, two) = panels(2, 1, width=4.2, height=2.4)
    for measure, color in zip(RISKS, COLORS, strict=False):
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


def draw_learnt(actions: Mapping[tuple[str, str], Sequence[float]], path: Path) -> None:
    """A panel per measure, a row per pair, a dot per seed: actions by pair and measure.

    A line marks the best action, a band what counts as close to it.
    """
    pairs, measures = (list(dict.fromkeys(names)) for names in zip(*actions, strict=True))
    actors = list(dict.fromkeys(pair.partition("+")[0] for pair in pairs))
    low = min([0.0, *(a for found in actions.values() for a in found)]) - 0.05
    figure, axes = panels(1, len(measures), width=1.7, height=0.9 + 0.2 * len(pairs))
    for ax, measure in zip(axes, measures, strict=True):
        best = best_action(measure)
        ax.axvspan(best - CLOSE, best + CLOSE, color=theme().truth, alpha=0.5, lw=0)
        ax.axvline(best, color=theme().ink, lw=0.8)
        for row, pair in enumerate(pairs):
            color = COLORS[actors.index(pair.partition("+")[0]) % len(COLORS)]
            found = actions.get((pair, measure), ())
            ax.plot(found, [row] * len(found), "o", color=color, ms=4, alpha=0.6)
        ax.set(title=f"{measure}\nbest {best:.3f}", xlabel="learned action", xlim=(low, 1.05))
        ax.set_ylim(len(pairs) - 0.5, -0.5)
        ax.set_yticks(range(len(pairs)), pairs if ax is axes[0] else [""] * len(pairs))
    save(figure, path)
