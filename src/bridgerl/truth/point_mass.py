"""Where policies lead the point mass: python -m bridgerl.truth.point_mass MAP.png RUN RUN ..."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from bridgerl.envs.risky import POINT_MASS, PointMass
from bridgerl.envs.task import Outcome
from bridgerl.errors import BridgeError, UserError
from bridgerl.plots import COLORS, panels, save, theme
from bridgerl.runs.folder import RunFolder
from bridgerl.training.evaluate import play_episode
from bridgerl.training.play import playing

Way = np.ndarray
"""Places of one episode in order: (n, 2)."""
EPISODES = 100


def ways_of(run: Path, episodes: int = EPISODES, seed: int = 0) -> list[Way]:
    """The ways that a run's last policy takes."""
    with playing(run, "last", episodes, seed) as player:
        if player.config.env != POINT_MASS:
            raise UserError(f"{run} was trained on {player.config.env}, not on {POINT_MASS}")
        generator = torch.Generator().manual_seed(seed)
        act = partial(player.agent.act, generator=generator)
        most = player.config.eval.max_steps
        played = [play_episode(player.task, (0, i), act, most) for i in range(episodes)]
    return [_places(steps) for steps in played if steps is not None]


def _places(steps: Sequence[tuple[np.ndarray, Outcome]]) -> Way:
    return np.stack([*(obs for obs, _ in steps), steps[-1][1].obs])[:, :2]  # A target may follow.


def enters_disc(way: Way) -> bool:
    """Whether a step of it was in danger; where it begins costs nothing."""
    return bool((np.linalg.norm(way[1:], axis=1) < PointMass.RADIUS).any())


def draw_ways(by_policy: Mapping[str, Sequence[Way]], picture: Path) -> None:
    """A map for each policy, with the disc, the goal, and how many episodes keep out."""
    from matplotlib.patches import Circle

    figure, axes = panels(1, len(by_policy), width=3.4, height=2.6)
    for ax, (name, ways), color in zip(axes, by_policy.items(), COLORS, strict=False):
        ax.add_patch(Circle((0, 0), PointMass.RADIUS, color=COLORS[1], alpha=0.15, lw=0))
        ax.add_patch(
            Circle(tuple(PointMass.GOAL), PointMass.REACH, color=theme().ink, alpha=0.3, lw=0)
        )
        for way in ways:
            ax.plot(*way.T, color=color, lw=0.6, alpha=0.4)
        out = sum(not enters_disc(way) for way in ways)
        ax.set(title=f"{name}: {out} of {len(ways)} keep out", aspect="equal")
        ax.set(xlim=(-1.2, 1.2), ylim=(-0.95, 0.95))
    save(figure, picture)


class _Words(argparse.ArgumentParser):
    """A command line whose refusal is one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; type {self.prog} MAP.png RUN RUN ...")


def main(words: Sequence[str] | None = None) -> None:
    """Play every run, print how many episodes keep out of the disc, and draw them."""
    known = _Words(prog="python -m bridgerl.truth.point_mass", description=main.__doc__)
    known.add_argument("picture", type=Path, metavar="MAP.png", help="file of the map")
    runs = "run folders, a map for each"
    known.add_argument("runs", type=Path, metavar="RUN", nargs="+", help=runs)
    typed = known.parse_args(words)
    if typed.picture.suffix != ".png":
        known.error(f"{typed.picture} must end in .png")
    by_policy = {}
    for run in typed.runs:
        config = RunFolder(run).read_config()
        name = f"{config.actor_name}+{config.critic_name}, {config.actor.risk}"
        ways = by_policy[name] = ways_of(run)
        kept = sum(not enters_disc(way) for way in ways)
        print(f"{name}: {kept} of {len(ways)} episodes keep out of the disc")
    draw_ways(by_policy, typed.picture)


if __name__ == "__main__":
    try:
        main()
    except BridgeError as error:
        print(f"bridgerl: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
