"""Distributional critics for continuous control."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgerl.actors import ACTORS
    from bridgerl.agent import Agent, build_agent, build_critic
    from bridgerl.config import RunConfig
    from bridgerl.critics import CRITICS
    from bridgerl.errors import BridgeError
    from bridgerl.presets import resolve
    from bridgerl.streams import Streams
    from bridgerl.training.loop import Stopped, train
    from bridgerl.training.play import load_agent
    from bridgerl.types import Batch, Bootstrap, EnvSpec

__version__ = "0.1.0"

# Loaded when asked for: help, lists and reports need no torch, which takes a second to import.
_HOME = {
    "ACTORS": "actors",
    "CRITICS": "critics",
    "Agent": "agent",
    "Batch": "types",
    "Bootstrap": "types",
    "BridgeError": "errors",
    "EnvSpec": "types",
    "RunConfig": "config",
    "Stopped": "training.loop",
    "Streams": "streams",
    "build_agent": "agent",
    "build_critic": "agent",
    "load_agent": "training.play",
    "resolve": "presets",
    "train": "training.loop",
}

__all__ = [
    "ACTORS",
    "CRITICS",
    "Agent",
    "Batch",
    "Bootstrap",
    "BridgeError",
    "EnvSpec",
    "RunConfig",
    "Stopped",
    "Streams",
    "__version__",
    "build_agent",
    "build_critic",
    "load_agent",
    "resolve",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bridgerl' has no attribute {name!r}")
    return getattr(import_module(f"bridgerl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
