"""Draws the pictures of README, start page and method, light and dark, into docs/pictures.

    bridgerl league --critics dbc "dsac = dsac --td-bound 1000" cdq --seeds 0 --no-plot \
        --out runs/hero --tasks mixture-chain bernoulli-loop heavy-tail two-point
    python docs/pictures.py runs/hero

The first picture shows that league, with DSAC's bound so wide that it is fitted. The others show a
critic that is trained here, in a minute.
"""

import argparse
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bridgerl import Streams, build_critic, resolve
from bridgerl.bridge.schedule import Constant, xi
from bridgerl.bridge.walk import Walk, step_weights, uniform_times
from bridgerl.critics.dbc import DBC
from bridgerl.plots import COLORS, THEMES, Theme, legend_below, panels, save, themed
from bridgerl.truth.league import CURVE, N_PARTICLES, problem_of

HERE = Path(__file__).parent / "pictures"
Array = NDArray[np.float64]
PROBLEM = "mixture-chain"
UPDATES, BATCH, RATE = 2_500, 128, 15
TITLES = {
    "mixture-chain": "three modes",
    "bernoulli-loop": "a coin at every step",
    "heavy-tail": "a heavy tail",
    "two-point": "all or nothing",
}
BLUE, RED, GREEN = COLORS[5], COLORS[1], COLORS[2]


def density(ax: Any, returns: Array, edges: Array, **how: Any) -> None:
    """Returns as a filled or outlined histogram."""
    inside = returns[(returns > edges[0]) & (returns < edges[-1])]
    ax.hist(inside, edges, density=True, **how)


def draw_hero(colors: Theme, cells: list[dict[str, Any]]) -> Any:
    """True distributions, and what a point, a Gaussian and DBC make of them."""
    figure, axes = panels(2, 2, width=2.1, height=1.6)
    tau = np.linspace(0.5 / N_PARTICLES, 1 - 0.5 / N_PARTICLES, CURVE)
    fine = (np.arange(4_000) + 0.5) / 4_000
    for ax, (name, title) in zip(axes, TITLES.items(), strict=True):
        truth = problem_of(name).queries[0].quantile(fine)
        low, high = truth[8], truth[-40]
        room = 0.15 * (high - low)
        edges = np.linspace(low - room, high + room, 36)
        density(ax, truth, edges, color=colors.truth, label="truth")
        learned = {c["entrant"]: np.array(c["curves"][0]) for c in cells if c["problem"] == name}
        top = ax.get_ylim()[1]
        ax.axvline(learned["cdq"].mean(), color=GREEN, lw=2, label="CDQ: a point")
        curve = learned["dsac"]
        mean, std = curve.mean(), (curve[150] - curve[50]) / 1.349
        fit = np.linspace(edges[0], edges[-1], 201)
        bell = np.exp(-0.5 * ((fit - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        ax.plot(fit, bell, color=RED, lw=1.5, label="DSAC: a Gaussian")
        dbc = np.interp(fine, tau, learned["dbc"])
        density(ax, dbc, edges, histtype="step", color=BLUE, lw=1.8, label="DBC: a distribution")
        ax.set(title=title, yticks=[], ylim=(0, 1.15 * top), xlim=(edges[0], edges[-1]))
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
    for ax in axes[2:]:
        ax.set_xlabel("return")
    legend_below(figure, axes[0], most=2)
    return figure


def trained() -> DBC:
    """DBC of `lite` on a problem whose return has three modes."""
    torch.set_num_threads(1)
    problem, rng = problem_of(PROBLEM), np.random.default_rng(0)
    critic = build_critic(resolve("league").critic, problem.spec, Streams(0))
    for _ in range(UPDATES):
        critic.update(*problem.draw(BATCH, rng))
        critic.update_target()
    assert isinstance(critic, DBC)
    return critic


def walk_of(critic: DBC, tau: Array) -> tuple[Array, Array]:
    """Where walks from these levels stand before each step and at the end: times, (M + 1, k)."""
    problem = problem_of(PROBLEM)
    obs, action = problem.observe([0]), torch.zeros(1, 1)
    level = torch.tensor(tau, dtype=torch.float32)[None, None]
    whole = critic._walk
    places = []
    for n in range(len(whole.weights) + 1):
        prefix = Walk(whole.times[:n], whole.weights[:n])
        with torch.no_grad():
            places.append(critic._atoms(obs, action, level, prefix, target=False).mean((0, 1)))
    times = np.linspace(0, 1, len(places))
    return times, torch.stack(places).numpy().astype(np.float64)


def draw_return(colors: Theme, critic: DBC) -> Any:
    """One: a return is a distribution, and a distribution is a curve from level to quantile."""
    figure, (left, right) = panels(1, 2, width=2.1, height=1.9)
    tau = (np.arange(4_000) + 0.5) / 4_000
    truth = problem_of(PROBLEM).queries[0].quantile(tau)
    density(left, truth, np.linspace(-90, 90, 61), color=BLUE)
    left.set(title="how likely a return is", xlabel="return", yticks=[])
    right.plot(tau, truth, color=BLUE, lw=2)
    at = truth[3_000]
    right.plot([0.75, 0.75, 0], [-90, at, at], color=RED, lw=1, ls="--")
    right.text(0.05, at + 5, r"$Z_{0.75}$", color=RED)
    right.set(title="the same as a curve", xlabel=r"level $\tau$", ylabel=r"quantile $Z_\tau$")
    right.set(xlim=(0, 1), ylim=(-90, 90))
    return figure


def draw_bridge(colors: Theme, critic: DBC) -> Any:
    """Two: bridges leave from levels and arrive at quantiles."""
    figure, (ax,) = panels(1, 1, width=4.2, height=2.5)
    t = torch.linspace(0, 1, 101, dtype=torch.float64)
    share = xi(Constant(1.0), t).numpy()
    levels = np.linspace(0.05, 0.95, 13)
    ends = problem_of(PROBLEM).queries[0].quantile(levels)
    for level, end in zip(levels, ends, strict=True):
        ax.plot(t, share * level + (1 - share) * end, color=BLUE, lw=1.2)
        ax.plot(1, end, "o", color=BLUE, ms=4)
    ax.plot(0, 0.5, "o", color=RED, ms=7)
    ax.text(0.0, -62, "all levels lie\nbetween 0 and 1", color=RED)
    ax.set(xlabel="bridge time t", ylabel="place on the bridge", xlim=(-0.02, 1.03))
    return figure


def draw_walk(colors: Theme, critic: DBC) -> Any:
    """Three: at each step the network says where the walk should end."""
    figure, (ax,) = panels(1, 1, width=4.2, height=2.5)
    tau = np.array([0.9])
    times, places = walk_of(critic, tau)
    weights = np.array(critic._walk.weights)
    ends = tau + np.diff(places[:, 0]) / weights
    truth = float(problem_of(PROBLEM).queries[0].quantile(tau)[0])
    ax.axhline(truth, color=colors.truth, lw=3, label="true quantile, level 0.9")
    ax.plot(times, places[:, 0], "o-", color=BLUE, lw=2, label="the walk")
    for i, end in enumerate(ends):
        label = "predicted end" if i == 0 else None
        way = ([times[i], 1], [places[i, 0], end])
        ax.plot(*way, color=RED, lw=1, ls=":", label=label)
        ax.plot(1, end, "x", color=RED, ms=6)
    ax.set(xlabel="bridge time t", ylabel="place on the bridge", xlim=(-0.02, 1.03))
    ax.legend(loc="lower right", frameon=False)
    return figure


def draw_steps(colors: Theme, critic: DBC) -> Any:
    """Four: Euler's steps miss the end, exact ones do not."""
    figure, (ax,) = panels(1, 1, width=4.2, height=2.4)
    steps = np.arange(1, 13)
    for rule, color, name in (
        ("left", RED, "Euler, left ends"),
        ("exact", BLUE, "exact weights"),
        ("right", GREEN, "Euler, right ends"),
    ):
        sums = [
            float(step_weights(Constant(1.0), uniform_times(int(m)), rule).sum()) for m in steps
        ]
        ax.plot(steps, sums, "o-", color=color, ms=4, label=name)
    ax.set(xlabel="steps M of the walk", ylabel="how far it gets\n(1 is the end)")
    ax.legend(frameon=False)
    return figure


def draw_inputs(colors: Theme, critic: DBC) -> Any:
    """Five: in training the printed walk stands before a label, that of lite before itself."""
    figure, axes = panels(1, 2, width=2.1, height=1.9)
    rng, t = np.random.default_rng(1), np.linspace(0, 1, 51)
    share = xi(Constant(1.0), torch.tensor(t)).numpy()
    labels = 100 * rng.integers(0, 2, 12) + 0.5 * 200 * 0.75  # r + Z_0.75 / 2 of a coin's loop.
    for label in labels:
        axes[0].plot(t, share * 0.75 + (1 - share) * label, color=RED, lw=1, alpha=0.6)
    for ax in axes:
        ax.axhline(150, color=colors.truth, lw=3)
        ax.set(xlabel="bridge time t", ylim=(-5, 200))
    axes[1].plot(t, share * 0.75 + (1 - share) * 150, color=BLUE, lw=2)
    axes[0].set(title="printed: labels", ylabel="training input")
    axes[1].set(title="lite: its answer", yticklabels=[])
    axes[1].text(0.02, 160, r"true $Z_{0.75}$")
    return figure


def draw_frames(colors: Theme, critic: DBC) -> bytes:
    """An animation: levels walk to quantiles, and their histogram becomes the return's."""
    from PIL import Image

    tau = (np.arange(400) + 0.5) / 400
    times, places = walk_of(critic, tau)
    truth = problem_of(PROBLEM).queries[0].quantile(tau)
    edges, frames = np.linspace(-90, 90, 46), []
    for at in np.linspace(0, 1, 31):
        figure, (left, right) = panels(1, 2, width=2.1, height=2.0)
        now = np.array([np.interp(at, times, column) for column in places.T])
        for k in range(5, 400, 13):
            shown = np.append(times[times < at], at)
            left.plot(shown, np.interp(shown, times, places[:, k]), color=BLUE, lw=1)
            left.plot(at, now[k], "o", color=BLUE, ms=2.5)
        left.set(xlim=(0, 1.02), ylim=(-90, 90), xlabel="bridge time t", title="30 walks")
        how = {"orientation": "horizontal"}
        density(right, truth, edges, color=colors.truth, **how)
        density(right, now, edges, histtype="step", color=BLUE, lw=1.5, **how)
        right.set(xlim=(0, 0.022), ylim=(-90, 90), xticks=[], yticklabels=[], title="their returns")
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=130)
        frames.append(Image.open(data).convert("RGB").quantize(48, dither=Image.Dither.NONE))
    out = io.BytesIO()
    waits = [1000 // RATE] * (len(frames) - 1) + [2_000]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=waits, loop=0)
    return out.getvalue()


FIVE: dict[str, Callable[[Theme, DBC], Any]] = {
    "return": draw_return,
    "bridge": draw_bridge,
    "walk": draw_walk,
    "steps": draw_steps,
    "inputs": draw_inputs,
}


def main() -> None:
    """Draw everything in both themes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("league", type=Path, help="folder of the league of the first picture")
    cells = json.loads((parser.parse_args().league / "league.json").read_text())["cells"]
    critic = trained()
    for name in THEMES:
        with themed(name) as colors:
            save(draw_hero(colors, cells), HERE / f"hero-{name}.png")
            for stem, draw in FIVE.items():
                save(draw(colors, critic), HERE / f"{stem}-{name}.png")
            (HERE / f"frames-{name}.gif").write_bytes(draw_frames(colors, critic))


if __name__ == "__main__":
    main()
