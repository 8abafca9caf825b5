"""Releases of what a run depends on."""

import importlib.metadata


def versions() -> dict[str, str]:
    """Releases that decide a trajectory, recorded in every run."""
    names = ("bridgerl", "torch", "numpy", "gymnasium", "mujoco")
    return {name: importlib.metadata.version(name) for name in names}
