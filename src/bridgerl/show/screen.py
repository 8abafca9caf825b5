"""Where pictures come from: an OpenGL that works here, and an environment told to draw."""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from bridgerl.errors import UserError

VARIABLE = "MUJOCO_GL"
BACKENDS = ("egl", "osmesa", "glfw")
"""What can draw: a graphics card, software, a window; the first that does is taken."""
# In a process of its own: a backend that fails can neither be taken back nor be replaced.
PROBE = """
import mujoco
from mujoco.{} import GLContext
context = GLContext(16, 16)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_50)
print("drawn", flush=True)
"""
FREE, FOLLOWING = -1, "track"
"""Gymnasium's number of a camera that stands still, and its name of one that goes along."""
NO_GL = (
    "MuJoCo finds no OpenGL to draw with; install software rendering, apt-get install libosmesa6, "
    "or the driver of your graphics card"
)
NO_WINDOW = "there is no window to watch in, as DISPLAY is not set; try --video out.mp4"
PYGAME = "pip install 'gymnasium[classic-control]'"


@cache
def works(backend: str) -> bool:
    """Whether MuJoCo can draw by it."""
    command = [sys.executable, "-c", PROBE.format(backend)]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return False
    return b"drawn" in ended.stdout


def choose_backend() -> str | None:
    """Set MUJOCO_GL to what draws here, unless it is set; None if nothing does.

    To be called before an environment is made, as some read it then.
    """
    if (chosen := os.environ.get(VARIABLE)) is not None:
        if chosen not in BACKENDS:
            raise UserError(f"{VARIABLE} is {chosen!r}; it can be {', '.join(BACKENDS)}, or unset")
        return chosen if works(chosen) else None
    found = next(filter(works, BACKENDS), None)
    if found is not None:
        os.environ[VARIABLE] = found
    return found


def check_window() -> None:
    """Refuse before any work to open a window where there is none."""
    named = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if sys.platform == "linux" and not named:
        raise UserError(NO_WINDOW)


def has_pygame() -> bool:
    """Whether Gymnasium's classic tasks can be drawn."""
    return importlib.util.find_spec("pygame") is not None


def set_mode(env: gym.Env[Any, Any], name: str, mode: Literal["human", "rgb_array"]) -> None:
    """Let an environment that was made for play draw, or refuse if it cannot."""
    modes = env.metadata.get("render_modes") or []
    if mode not in modes:
        raise UserError(f"{name} cannot be drawn: it has no render mode {mode!r}")
    classic = type(env.unwrapped).__module__.startswith("gymnasium.envs.classic_control")
    if classic and not has_pygame():
        raise UserError(f"{name} is drawn by pygame, which is not installed: {PYGAME}")
    # Gymnasium's environments look at it whenever they draw.
    env.unwrapped.render_mode = mode
    _follow(env)


def _follow(env: gym.Env[Any, Any]) -> None:
    """Let the camera of a MuJoCo task follow its body, unless somebody chose another view.

    Gymnasium 1.4 leaves it where the episode began, and whoever runs is soon out of sight.
    """
    renderer: Any = getattr(env.unwrapped, "mujoco_renderer", None)
    chosen = env.spec is not None and "default_camera_config" in env.spec.kwargs
    if renderer is None or renderer.camera_id != FREE or chosen:
        return
    names = [renderer.model.camera(i).name for i in range(renderer.model.ncam)]
    if FOLLOWING in names:
        renderer.camera_id = names.index(FOLLOWING)


def check_gl(env: gym.Env[Any, Any], backend: str | None) -> None:
    """Refuse an environment of MuJoCo where nothing draws."""
    data: Any = getattr(env.unwrapped, "data", None)
    if backend is None and type(data).__module__.startswith("mujoco"):
        raise UserError(NO_GL)


def picture(env: gym.Env[Any, Any], name: str) -> np.ndarray:
    """What an environment looks like now, (height, width, 3) in bytes."""
    try:
        drawn: Any = env.render()
        frame = np.asarray(drawn[-1] if isinstance(drawn, list) else drawn)
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{name} cannot be drawn: {text}") from error
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise UserError(f"{name} cannot be drawn: it gives {frame.shape}, no picture")
    return frame.astype(np.uint8)
