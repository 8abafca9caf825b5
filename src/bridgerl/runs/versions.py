"""Releases and hardware that a run depends on."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path


def versions() -> dict[str, str]:
    """Releases that decide a trajectory, recorded in every run."""
    names = ("bridgerl", "torch", "numpy", "gymnasium", "mujoco")
    return {name: importlib.metadata.version(name) for name in names}


def usable_cores() -> list[int]:
    """The numbers of the machine's cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def processor() -> str:
    """The CPU's model, as Linux names it."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(errors="replace") if info.is_file() else ""
    model = re.search("^model name[^:]*:(.*)", text, re.MULTILINE)
    return model[1].strip() if model else platform.processor()
