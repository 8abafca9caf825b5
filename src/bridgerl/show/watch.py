"""Episodes in a window."""

from pathlib import Path

from bridgerl.runs.folder import Which
from bridgerl.show.screen import check_window, set_mode
from bridgerl.training.evaluate import play_episodes
from bridgerl.training.play import playing


def watch(run: Path, weights: Which, episodes: int, seed: int) -> None:
    """Play the episodes of `evaluate` where somebody can see them."""
    check_window()
    with playing(run, weights, episodes, seed) as player:
        set_mode(player.task.env, player.config.env, "human")
        play_episodes(player.agent, player.task, player.config.eval, seed=seed, key=0)
