"""An episode as a video or a filmstrip: what the policy does beside what its critic expects."""

import importlib.util
import io
import math
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.envs.task import Task
from bridgerl.errors import UserError, install
from bridgerl.ops.levels import midpoint_levels
from bridgerl.runs import store
from bridgerl.runs.folder import Which
from bridgerl.show.panel import SIZE, Panel, Prediction
from bridgerl.show.screen import check_gl, choose_backend, picture, set_mode
from bridgerl.show.strip import save_strip
from bridgerl.streams import derive_seed
from bridgerl.training.evaluate import play_episode
from bridgerl.training.play import Player, playing

ENDINGS = (".mp4", ".gif", ".webp", ".png")
MOST_RATE = {".mp4": 30, ".gif": 12.5, ".webp": 30}
"""Frames a second; of a faster environment steps are left out."""
USUAL_RATE = 30
"""Steps a second of an environment that does not say."""
N_LEVELS = 100
STILLS = 4
"""Pictures on a filmstrip."""


class Episode(NamedTuple):
    """An episode that was played: its key, what was seen and done, and what every step paid."""

    key: tuple[int, ...]
    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def check_film(path: Path) -> None:
    """Refuse before any work what could not be written after it."""
    encoder = () if path.suffix in (".png", ".webp") else ("imageio", "imageio_ffmpeg")
    for name in ("matplotlib", *encoder):
        if importlib.util.find_spec(name) is None:
            raise UserError(f"videos need {name}: {install('video')}")


def film(
    run: Path,
    path: Path,
    weights: Which = "best",
    seed: int = 0,
    *,
    seconds: float | None = None,
    tick: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Write the first episode that `evaluate` plays, or its first seconds, by the ending.

    Endings are .mp4, .gif, .webp, and .png for a filmstrip. `tick` is told how much of it is done.
    """
    check_film(path)
    backend = choose_backend()
    with playing(run, weights, 1, seed) as player:
        env, name = player.task.env, player.config.env
        check_gl(env, backend)
        set_mode(env, name, "rgb_array")
        rate = float(env.metadata.get("render_fps") or USUAL_RATE)
        player.task.reset(0, 0)
        picture(env, name)  # Now, rather than after the episode.
        most = player.config.eval.max_steps
        most = most if seconds is None else min(most, max(1, math.ceil(seconds * rate)))
        episode = _play(player, seed, most)
        n = len(episode.rewards)
        if path.suffix == ".png":
            shown = np.linspace(0, n - 1, min(STILLS, n)).round().astype(int)
            said = predict(player, episode, np.arange(n))
            pictures = [frame for _, frame in replay(player.task, episode, shown)]
            save_strip(path, pictures, said, shown)
            return {"file": str(path), "steps": n, "frames": len(shown)}
        stride = max(1, math.ceil(rate / MOST_RATE[path.suffix] - 0.5))
        shown = np.arange(0, n, stride)
        said = predict(player, episode, shown)
        frames = _composed(player.task, episode, shown, said, tick)
        store.publish_file(path, encode(frames, path.suffix, rate / stride))
    return {"file": str(path), "steps": n, "frames": len(shown), "rate": rate / stride}


def _play(player: Player, seed: int, most: int) -> Episode:
    """The first episode of `evaluate`, by the same draws."""
    agent, key = player.agent, (0, 0)
    draws = torch.Generator(agent.device).manual_seed(derive_seed(seed, "eval-actions", 0))
    act = partial(agent.act, generator=draws)
    steps = play_episode(player.task, key, act, most)
    assert steps  # Nothing stops it on the way.
    obs = np.stack([seen for seen, _ in steps])
    rewards = np.array([out.reward for _, out in steps])
    return Episode(key, obs, np.stack(player.task.actions), rewards)


def predict(player: Player, episode: Episode, shown: np.ndarray) -> Prediction:
    """What the critic says of the states and actions at some steps."""
    agent, known = player.agent, player.config.critic.distributional
    levels = midpoint_levels(N_LEVELS) if known else torch.tensor([0.5])
    obs, action = (torch.from_numpy(x[shown]) for x in (episode.obs, episode.actions))
    returns = _quantiles(agent, obs.to(agent.device), action.to(agent.device), levels)
    return Prediction(shown, levels.numpy(), returns, known)


def _quantiles(
    agent: Agent, obs: torch.Tensor, action: torch.Tensor, levels: torch.Tensor
) -> np.ndarray:
    parts = zip(obs.split(256), action.split(256), strict=True)
    z = torch.cat([agent.quantiles(o, a, levels[None].to(o)) for o, a in parts])
    return z.sort(-1).values.cpu().double().numpy()


def replay(task: Task, episode: Episode, shown: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The pictures of an episode at some steps, played again from its key and its actions."""
    wanted, name = set(shown.tolist()), task.spec.env_id
    task.reset(*episode.key)
    for i, action in enumerate(episode.actions):
        if i in wanted:
            yield i, picture(task.env, name)
        task.step(action)


def _composed(
    task: Task,
    episode: Episode,
    shown: np.ndarray,
    said: Prediction,
    tick: Callable[[float], None],
) -> Iterator[np.ndarray]:
    """Every frame: the picture, and the panel beside it."""
    panel, totals = Panel(said), np.append(0.0, episode.rewards.cumsum())
    for at, (i, frame) in enumerate(replay(task, episode, shown)):
        side = panel.draw(at, f"step {i}, return so far {totals[i]:.0f}")
        yield np.concatenate([_fitted(frame), side], 1)
        tick((at + 1) / len(shown))


def _fitted(frame: np.ndarray) -> np.ndarray:
    """A picture as high as the panel, its width a multiple of 16."""
    from PIL import Image

    height, width, _ = frame.shape
    wide = max(16, 16 * round(SIZE * width / height / 16))
    return np.asarray(Image.fromarray(frame).resize((wide, SIZE), Image.Resampling.LANCZOS))


def encode(frames: Iterator[np.ndarray], ending: str, rate: float) -> bytes:
    """Frames as a video file."""
    if ending == ".webp":
        return _encode_webp(frames, rate)
    import imageio.v2 as imageio

    how: dict[str, Any] = {"format": "FFMPEG", "fps": rate, "codec": "libx264", "quality": 7}
    if ending == ".gif":
        how = {"format": "GIF", "duration": 1000 / rate, "loop": 0}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"film{ending}"
        writer: Any = imageio.get_writer(file, mode="I", **how)
        with writer:
            for frame in frames:
                writer.append_data(frame)
        return file.read_bytes()


def _encode_webp(frames: Iterator[np.ndarray], rate: float) -> bytes:
    from PIL import Image

    first, *others = map(Image.fromarray, frames)
    data = io.BytesIO()
    how: dict[str, Any] = {"duration": round(1000 / rate), "loop": 0, "quality": 70, "method": 4}
    first.save(data, "WEBP", save_all=True, append_images=others, **how)
    return data.getvalue()
