"""The degradation toy: three modes handed on by Bellman backups of a learner's own copy.

A critic fits Z_0, then k = 1, 2, ...: Z_k <- r + discount Z_{k-1}, a few updates each, with Z_{k-1}
its frozen previous self. The truth stays Z_0 moved and shrunk, so every other change is an error.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bridgerl.agent import build_critic
from bridgerl.critics import CriticConfig
from bridgerl.errors import NumericFault
from bridgerl.ops.levels import normal_quantiles
from bridgerl.plots import COLORS, legend_below, panels, save, theme
from bridgerl.runs.versions import versions
from bridgerl.streams import Streams, derive_seed
from bridgerl.training.process import tuned_process
from bridgerl.truth.flow import FlowConfig
from bridgerl.truth.problems import MODES, Array, draw_mixture, mixture_quantile
from bridgerl.truth.settings import Affine, ToyConfig, league_config
from bridgerl.types import Batch, Bootstrap, EnvSpec

N_PARTICLES = 10_000
Z_0 = mixture_quantile((np.arange(N_PARTICLES) + 0.5) / N_PARTICLES)
"""Equally likely draws of the first distribution, ascending: modes at -100, 0 and 100."""
GAUSSIAN = normal_quantiles(N_PARTICLES)[0].double().numpy()
SHOWN = (0, 1, 5, 10)
EDGES = np.linspace(-170, 170, 69)
"""Bins of the pictures, in units of Z_0."""
NAMES = {"flow": "flow matching"}
FIGURES = {
    "w1": ("W1", ".2f"),
    "w1_share": ("W1 / std", ".1%"),
    "std_share": ("spread", ".1%"),
    "kurtosis": ("kurtosis", ".2f"),
    "bimodality": ("Sarle", ".3f"),
    "valley": ("valley", ".1%"),
    "drift_kurtosis": ("drift", ".0%"),
}
"""What is measured of a distribution, its head and its format in the table."""


def critic_config(config: ToyConfig, name: str) -> CriticConfig:
    """A critic whose target is its frozen self: `update_target` copies all of it."""
    flow = FlowConfig(hidden=(config.flow_width,) * 3, sampler_steps=config.flow_steps)
    critic = flow if name == "flow" else league_config(name, config.preset).critic
    return replace(critic, lr=config.lr, polyak=1.0)


def run_toy(config: ToyConfig, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Every critic with every seed, measured after each iteration; `tick` hears every update."""
    with tuned_process(1):
        runs = [_run(config, c, seed, tick) for c in config.critics for seed in config.seeds]
    shapes = {"exact": shape_of(Z_0), "gaussian": shape_of(GAUSSIAN)}
    return {"config": asdict(config), "versions": versions(), "references": shapes, "runs": runs}


def _run(config: ToyConfig, name: str, seed: int, tick: Callable[[], None]) -> dict[str, Any]:
    """One critic with one seed; the draws of Z_0 depend on the seed alone."""
    critic = build_critic(critic_config(config, name), EnvSpec("toy", 1, 1), Streams(seed))
    rng, b = np.random.default_rng(derive_seed(seed, "toy")), config.batch
    obs, action, zeros = torch.ones(b, 1), torch.zeros(b, 1), torch.zeros(b)
    discounts = torch.full((b,), config.discount)
    backup = Batch(obs, action, torch.full((b,), config.reward), discounts, obs)
    iterations = []
    for k in range(config.iterations + 1):
        for _ in range(config.steps_per_iteration if k else config.fit_steps):
            batch = backup
            if k == 0:
                reward = torch.tensor(draw_mixture(b, rng), dtype=torch.float32)
                batch = Batch(obs, action, reward, zeros, obs)
            critic.update(batch, Bootstrap(action, zeros))
            tick()
        critic.update_target()
        z = critic.particles(obs[:1], action[:1], N_PARTICLES, target=True)[0].double().numpy()
        if not np.isfinite(z).all():
            raise NumericFault(f"{name}: returns are not finite after iteration {k}; lower --lr")
        iterations.append({"k": k, **distance_to(np.sort(z), config.exact(k))})
    return {"critic": name, "seed": seed, "iterations": iterations}


def distance_to(z: Array, exact: Affine) -> dict[str, Any]:
    """Distance of an ascending sample (n,) to the exact returns, its shape and its histogram."""
    truth = exact(Z_0)
    w1, std = float(np.abs(z - truth).mean()), float(truth.std())
    shares = {"w1_share": w1 / std, "std_share": float(z.std()) / std}
    shape = shape_of(z)
    drift = gaussian_drift(shape["kurtosis"], shape["bimodality"])
    return {"w1": w1, **shares, **shape, **drift, "density": _density(z, exact).tolist()}


def _density(z: Array, exact: Affine) -> Array:
    """Histogram of a sample over the exact one's bins, (bins,); what lies outside is lost."""
    edges = exact(EDGES)
    return np.histogram(z, edges)[0] / (len(z) * np.diff(edges))


def shape_of(z: Array) -> dict[str, float | None]:
    """Excess kurtosis, Sarle's bimodality (skewness^2 + 1) / kurtosis, and mass in the valleys.

    A valley is the middle half of the way between two modes, for a sample that was given Z_0's
    mean and deviation: 0.9 % of Z_0, 41 % of a Gaussian. A point has no shape.
    """
    if np.ptp(z) == 0:
        return {"kurtosis": None, "bimodality": None, "valley": None}
    unit = (z - z.mean()) / z.std()
    skewness, kurtosis = float((unit**3).mean()), float((unit**4).mean())
    middles, spacing = (MODES[1:] + MODES[:-1]) / 2, np.diff(MODES).min()
    away = np.abs((Z_0.mean() + Z_0.std() * unit)[:, None] - middles).min(1)
    valley, bimodality = float((away < spacing / 4).mean()), (skewness**2 + 1) / kurtosis
    return {"kurtosis": kurtosis - 3, "bimodality": bimodality, "valley": valley}


def gaussian_drift(kurtosis: float | None, bimodality: float | None) -> dict[str, float | None]:
    """How far of the way to a Gaussian a shape has gone, by both measures: 0 not at all, 1 all."""
    if kurtosis is None or bimodality is None:
        return {"drift_kurtosis": None, "drift_bimodality": None}
    exact, gaussian = shape_of(Z_0), shape_of(GAUSSIAN)

    def share(name: str, value: float) -> float:
        start, end = exact[name], gaussian[name]
        assert start is not None
        assert end is not None
        return (value - start) / (end - start)

    both = {"kurtosis": kurtosis, "bimodality": bimodality}
    return {f"drift_{name}": share(name, value) for name, value in both.items()}


def join_toys(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Results of one budget, of different critics and seeds, as one."""
    runs = [run for result in results for run in result["runs"]]
    names = {"critics": "critic", "seeds": "seed"}
    chosen = {key: list(dict.fromkeys(r[name] for r in runs)) for key, name in names.items()}
    return results[0] | {"config": results[0]["config"] | chosen, "runs": runs}


def draw_toy(result: dict[str, Any], path: Path) -> None:
    """A row per critic, a column per shown iteration: a line per seed over the exact one."""
    config, columns = ToyConfig(**result["config"]), _shown(result)
    figure, axes = panels(len(config.critics), len(columns), width=2.5, height=2.2)
    cells = itertools.product(enumerate(config.critics), columns)
    for ax, ((row, name), k) in zip(axes, cells, strict=True):
        exact, color, seeds = config.exact(k), COLORS[row % len(COLORS)], _cells(result, name, k)
        edges, truth = exact(EDGES), _density(exact(Z_0), exact)
        if k == columns[0]:
            ax.set_ylabel(NAMES.get(name, name.upper()), color=color, fontsize=12)
        if row == len(config.critics) - 1:
            ax.set_xlabel("return")
        ax.stairs(truth, edges, fill=True, color=theme().ink, alpha=0.2, lw=0, label="exact")
        for i, seed in enumerate(seeds):
            ax.stairs(seed["density"], edges, color=color, lw=1.2, alpha=0.4 if i else 1)
        ax.stairs(seeds[0]["density"], edges, fill=True, color=color, alpha=0.2, lw=0)
        share = f"$W_1$ = {np.mean([s['w1_share'] for s in seeds]):.1%} of std"
        after = f"{k} backup{'' if k == 1 else 's'}"
        ax.set_title(share if row else f"{after}\n{share}")
        # One that collapses is cut off; the exact one would vanish beneath it.
        ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.5 * truth.max()), yticks=[])
    axes[0].plot([], [], color=theme().ink, lw=1.2, label="learned, a line per seed")
    legend_below(figure, axes[0], most=2)
    save(figure, path)


def show_toy(result: dict[str, Any]) -> None:
    """A line per critic and shown iteration, means over seeds; then the shapes to compare with."""
    config, columns = ToyConfig(**result["config"]), _shown(result)
    table = Table("distribution", title=f"{config.iterations} backups, {len(config.seeds)} seed(s)")
    for head in ("k", *(head for head, _ in FIGURES.values())):
        table.add_column(head, justify="right")

    def add(name: str, k: str, cells: list[dict[str, Any]]) -> None:
        texts = []
        for key, (_, style) in FIGURES.items():
            known = [cell[key] for cell in cells if cell.get(key) is not None]
            texts.append(f"{np.mean(known):{style}}" if known else "")
        table.add_row(name, k, *texts)

    for critic in config.critics:
        for k in columns:
            add(critic, str(k), _cells(result, critic, k))
        table.add_section()
    for name, shape in result["references"].items():
        add(name, "", [shape])
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "spread: standard deviation over the exact one; valley: mass between the modes; "
        "drift: share of the way to a Gaussian's kurtosis"
    )


def _cells(result: dict[str, Any], critic: str, k: int) -> list[dict[str, Any]]:
    return [run["iterations"][k] for run in result["runs"] if run["critic"] == critic]


def _shown(result: dict[str, Any]) -> list[int]:
    """Iterations worth a column: a few early ones, and the last."""
    last = result["config"]["iterations"]
    return [*(k for k in SHOWN if k < last), last]
