"""Is a run's return distribution right? Learned quantiles against returns of forked episodes."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.ops.levels import midpoint_levels
from bridgerl.plots import COLORS, legend_below, panels, save, theme
from bridgerl.runs.folder import RunFolder, Which
from bridgerl.training.play import playing
from bridgerl.truth import scores
from bridgerl.truth.forks import Forks, Plan, fork, policy_of

SHOWN = 3
"""States whose distributions are drawn."""
CLOSE = 0.02
"""Relative error of values up to which they are called right."""


def calibrate(
    run: Path,
    weights: Which,
    shape: tuple[int, int],
    seed: int,
    *,
    recalibrate: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Fork (states, returns of each), score the critic, leave the result in the run's folder.

    With `recalibrate` the shifts of every second state are kept for `load_agent`, and the figures
    are those of the other states, before and after.
    """
    with playing(run, weights, 1, seed) as player:
        train, longest = player.config.train, player.config.eval.max_steps
        plan = Plan(
            player.task.recipe,
            *shape,
            train.discount,
            seed,
            cost_every=train.n_step,
            longest=longest,
        )
        forks = fork(policy_of(player.agent), plan, tick)
        raw = read_quantiles(player.agent, forks)
    learned = np.sort(raw, 1)
    result: dict[str, Any] = {"weights": weights, "step": player.step, "seed": seed}
    looks, drawn = {"learned": learned}, forks.returns
    if recalibrate:
        shifts = scores.conformal_shifts(raw[::2], drawn[::2])
        result["shifts"], drawn = shifts.tolist(), drawn[1::2]
        looks = {"learned": learned[1::2], "recalibrated": np.sort(raw[1::2] + shifts, 1)}
        result["after"] = scores.score(looks["recalibrated"], drawn)
    result |= {"figures": scores.score(looks["learned"], drawn)}
    result |= {"shown": _shown(looks | {"played": np.sort(drawn, 1)})}
    with suppress(OSError):  # A run that cannot be written to is judged all the same.
        RunFolder(run).write_calibration(result)
    return result


@torch.no_grad()
def read_quantiles(agent: Agent, forks: Forks) -> np.ndarray:
    """Learned quantiles at midpoint levels, which may cross: (p, k)."""
    obs, action = (torch.from_numpy(x).to(agent.device) for x in (forks.obs, forks.action))
    tau = midpoint_levels(scores.LEVELS)[None]
    return agent.quantiles(obs, action, tau).cpu().double().numpy()


def _shown(looks: dict[str, np.ndarray]) -> list[dict[str, list[float]]]:
    """Quantiles of a few states, from a low to a high return."""
    order = np.argsort(looks["played"].mean(1))
    picked = order[np.linspace(0, len(order) - 1, min(SHOWN, len(order))).round().astype(int)]
    return [{name: z[i].round(3).tolist() for name, z in looks.items()} for i in picked]


def say(figures: dict[str, Any]) -> str:
    """What the figures mean, in words."""
    value, truth, width = (figures[key] for key in ("value", "return", "width"))
    off = (value - truth) / abs(truth) if truth else 0.0
    words = [
        f"values are right to {CLOSE:.0%}"
        if abs(off) <= CLOSE
        else f"values are {abs(off):.0%} too {'low' if off < 0 else 'high'}"
    ]
    if figures["certain"]:
        return f"{words[0]}; the return of a state is certain here"
    if width < 1e-6:
        return f"{words[0]}; the critic knows no distribution"
    close = 0.9 < width < 1.1
    words.append(f"intervals are {'' if close else f'{width:.2g} times '}as wide as they should be")
    covered = figures["coverage"]["0.8"]
    words.append(f"the 80 % interval covers {covered:.0%} of the returns")
    parts = {name: figures[name] for name in ("location", "scale", "shape")}
    if max(parts.values()) > 0:
        words.append(f"most of the error is in the {max(parts, key=parts.__getitem__)}")
    return "; ".join(words)


def draw_calibration(result: dict[str, Any], path: Path) -> None:
    """Transforms with their band, coverage, and learned against drawn distributions."""
    shown = result["shown"]
    figure, axes = panels(1, 2 + len(shown), width=3.0, height=2.8)
    looks = [result["figures"], *([result["after"]] if "after" in result else [])]
    for figures, color in zip(looks, COLORS, strict=False):
        axes[0].stairs(figures["pit"], np.linspace(0, 1, scores.BINS + 1), color=color, lw=1.5)
        shares = [0.0, *(float(share) for share in figures["coverage"]), 1.0]
        axes[1].plot(shares, [0.0, *figures["coverage"].values(), 1.0], "o-", color=color)
    n, p = result["figures"]["states"] * result["figures"]["returns"], 1 / scores.BINS
    reach = 1.96 * np.sqrt(p * (1 - p) / n)
    axes[0].axhspan(p - reach, p + reach, color=theme().ink, alpha=0.15, lw=0)
    axes[0].set(title="where returns fall", xlabel="level of the return", ylabel="share")
    axes[1].plot([0, 1], [0, 1], color=theme().ink, lw=0.8)
    axes[1].set(title="coverage", xlabel="width of the interval", ylabel="returns inside")
    for axis, state in zip(axes[2:], shown, strict=True):
        for (name, z), color in zip(
            state.items(), (*COLORS[: len(state) - 1], theme().ink), strict=True
        ):
            axis.plot((np.arange(len(z)) + 0.5) / len(z), z, color=color, lw=1.5, label=name)
        axis.set(title="one state", xlabel="level", ylabel="return")
    legend_below(figure, axes[-1], most=3)
    save(figure, path)
