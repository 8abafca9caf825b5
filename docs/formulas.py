"""Draws the pictures that need no run, light and dark, into docs/pictures: a few seconds.

    python docs/formulas.py

They follow from formulas, and from the cells that evidence/ keeps.
"""

import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bridgerl.bench.race import draw_race
from bridgerl.plots import COLORS, THEMES, legend_below, panels, save, theme, themed
from bridgerl.report.load import load
from bridgerl.runs.archive import unpack
from bridgerl.truth import endpoint
from bridgerl.truth.gamble_plots import draw_gambles
from bridgerl.truth.settings import EndpointConfig

HERE = Path(__file__).parent / "pictures"
EVIDENCE = Path(__file__).parents[1] / "evidence"
CELLS = EVIDENCE / "league-random-1076.zip"
RACE = EVIDENCE / "race.zip"
RACERS = {
    "sac+dbc": "SAC+DBC",
    "sac+cdq": "SAC+CDQ",
    "sbx:SAC": "sbx SAC",
    "sbx SAC, our sizes": "sbx SAC at our sizes",
    "sbx:TQC": "sbx TQC",
    "sb3:SAC": "Stable-Baselines3 SAC",
    "sbx:CrossQ": "sbx CrossQ",
}
EVALUATION = EVIDENCE / "evaluation.zip"
EVALUATED = {
    "M = 1": "DBC, one step",
    "dbc": "DBC",
    "iqn": "IQN",
    "iqn, 6 levels": "IQN, 6 levels",
    "tqc": "TQC",
    "dsac": "DSAC-v1",
    "cdq, one head": "one Q",
    "cdq": "CDQ",
}
PROBLEMS = [f"random:{seed}" for seed in range(1076, 1096)]
CRITICS = {
    "M = 1": "DBC, one step",
    "dbc": "DBC",
    "iqn": "IQN",
    "iqn, own levels": "IQN, own levels",
    "iqn, 6 levels": "IQN, 6 levels",
    "tqc": "TQC",
}
PIECES = EVIDENCE / "lite-ablation.zip"
PIECES_SHOWN = (
    "sac+dbc",
    "learning rate 3e-4",
    "256 units",
    "raw observations",
    "values not divided",
    "no atoms dropped",
)
WEIGHTS = {0.01: COLORS[5], 0.1: COLORS[1]}


def draw_anchor(path: Path) -> None:
    """The level that an anchor makes of a level, and an exponential reward's quantiles under it."""
    figure, (left, right) = panels(1, 2, width=2.1, height=2.1)
    tau = np.linspace(0, 1, 2_001)[:-1]
    left.plot(tau, tau, color=theme().truth, lw=5, label="truth")
    right.plot(tau, -np.log1p(-tau), color=theme().truth, lw=5)
    for weight, color in WEIGHTS.items():
        moved = (tau + weight) / (1 + 2 * weight)
        left.plot(tau, moved, color=color, lw=1.8, label=f"w = {weight:g}")
        right.plot(tau, -np.log1p(-moved), color=color, lw=1.8)
    left.set(title="levels", xlabel="level asked for", ylabel="level learned")
    right.set(title="an exponential reward", xlabel="level asked for", ylabel="quantile learned")
    right.set(ylim=(0, 6))
    legend_below(figure, left, most=3)
    save(figure, path)


def draw_errors(path: Path) -> None:
    """The endpoint error over the number of steps, schedule by schedule."""
    endpoint.draw(endpoint.error_table(EndpointConfig()), path)


def stored_distances() -> dict[str, list[float]]:
    """W1 in per cent of the deviation by critic, problem by problem."""
    found: dict[tuple[str, str], float] = {}
    with zipfile.ZipFile(CELLS) as cells:
        for name in cells.namelist():
            for cell in json.loads(cells.read(name))["cells"]:
                scores = cell["scores"]
                found[cell["setting"], cell["task"]] = 100 * scores["w1"] / scores["std"]
    return {critic: [found[critic, problem] for problem in PROBLEMS] for critic in CRITICS}


def draw_problems(path: Path) -> None:
    """A dot for every problem and a line at the mean, critic by critic."""
    figure, (ax,) = panels(1, 1, width=4.2, height=2.4)
    for row, (critic, distances) in enumerate(stored_distances().items()):
        color = COLORS[5] if "DBC" in CRITICS[critic] else COLORS[1]
        ax.plot(distances, [row] * len(distances), "o", color=color, ms=4, alpha=0.6)
        ax.plot(np.mean(distances), row, "|", color=theme().ink, ms=16, mew=2)
    ax.set_yticks(range(len(CRITICS)), list(CRITICS.values()))
    ax.set(ylim=(len(CRITICS) - 0.5, -0.5), xlim=(0, None))
    ax.set_xlabel("W1 to the truth, % of the return's deviation")
    save(figure, path)


def stored_race() -> list[dict[str, Any]]:
    """Every start of the race, ours first, with the names that readers know."""
    with zipfile.ZipFile(RACE) as file:
        names = [name for name in file.namelist() if name.startswith("cells/")]
        cells = [json.loads(file.read(name)) for name in names]
    order = list(RACERS)
    cells.sort(key=lambda cell: (cell["env"], order.index(cell["label"]), cell["seed"]))
    return [cell | {"label": RACERS[cell["label"]]} for cell in cells]


def draw_stored_race(path: Path) -> None:
    """Return against minutes of one core."""
    draw_race(stored_race(), path)


def stored_evaluations() -> dict[tuple[str, str], dict[int, dict[str, float]]]:
    """Scores of policy evaluation by (critic, task) and seed."""
    found: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    with zipfile.ZipFile(EVALUATION) as file:
        for name in file.namelist():
            if name.endswith("/result.json"):
                for cell in json.loads(file.read(name))["cells"]:
                    by_seed = found.setdefault((cell["setting"], cell["task"]), {})
                    by_seed[cell["seed"]] = cell["scores"]
    return found


def draw_evaluation(path: Path) -> None:
    """Distance to the truth and coverage, critic by critic: a dot for every task, and the mean."""
    scores = stored_evaluations()
    tasks = sorted({task for _, task in scores})
    figure, (left, right) = panels(1, 2, width=2.6, height=2.7)
    for row, critic in enumerate(EVALUATED):
        color = COLORS[5] if "DBC" in EVALUATED[critic] else COLORS[1]
        for ax, score in ((left, "w1"), (right, "covers_0.8")):
            known = [scores[critic, task].values() for task in tasks]
            means = [100 * float(np.mean([s[score] for s in seeds])) for seeds in known]
            ax.plot(means, [row] * len(means), "o", color=color, ms=4, alpha=0.6)
            ax.plot(np.mean(means), row, "|", color=theme().ink, ms=14, mew=2)
    left.set_yticks(range(len(EVALUATED)), list(EVALUATED.values()))
    right.set_yticks(range(len(EVALUATED)), [])
    right.axvline(80, color=theme().ink, lw=1, ls=":")
    for ax in (left, right):
        ax.set(ylim=(len(EVALUATED) - 0.5, -0.5), xlim=(0, None))
    left.set_xlabel("W1 to the truth,\n% of the deviation")
    right.set_xlabel("80 % interval covers,\n% of the returns")
    save(figure, path)


def stored_pieces() -> dict[str, list[float]]:
    """The last return of every seed of the ablation, setting by setting."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(PIECES, Path(scratch) / "kept")
        runs = [run for run in load(Path(scratch) / "kept").runs if run.finished]
    found: dict[str, list[float]] = {setting: [] for setting in PIECES_SHOWN}
    for part in (part for run in runs for part in run.parts):
        if part.setting in found:
            found[part.setting].append(part.curve[1][-1])
    return found


def draw_pieces(path: Path) -> None:
    """What is left of the return without a piece of `lite`: a dot for every seed, and the mean."""
    figure, (ax,) = panels(1, 1, width=4.2, height=2.4)
    for row, returns in enumerate(stored_pieces().values()):
        color = COLORS[1] if row else theme().accent
        ax.plot(returns, [row] * len(returns), "o", color=color, ms=5, alpha=0.7)
        ax.plot(np.mean(returns), row, "|", color=theme().ink, ms=16, mew=2)
    ax.set_yticks(range(len(PIECES_SHOWN)), ["lite", *PIECES_SHOWN[1:]])
    ax.set(ylim=(len(PIECES_SHOWN) - 0.5, -0.5), xlim=(0, None))
    ax.set_xlabel("return after 60,000 steps of HalfCheetah-v5")
    save(figure, path)


DRAWN: dict[str, Callable[[Path], None]] = {
    "risk": draw_gambles,
    "bridge-error": draw_errors,
    "anchor": draw_anchor,
    "problems": draw_problems,
    "race": draw_stored_race,
    "evaluation": draw_evaluation,
    "pieces": draw_pieces,
}


def main() -> None:
    """Draw everything in both themes."""
    for name in THEMES:
        with themed(name):
            for stem, draw in DRAWN.items():
                draw(HERE / f"{stem}-{name}.png")


if __name__ == "__main__":
    main()
