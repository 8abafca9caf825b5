"""Distributional critics for continuous control."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgerl.actors import ACTORS
    from bridgerl.agent import Agent, build_agent, build_critic, build_normalizer
    from bridgerl.config import RunConfig
    from bridgerl.critics import CRITICS
    from bridgerl.errors import BridgeError
    from bridgerl.presets import resolve
    from bridgerl.streams import Streams
    from bridgerl.training.callbacks import Callback
    from bridgerl.training.loop import Stopped, train
    from bridgerl.training.play import evaluate, load_agent
    from bridgerl.training.policy import Policy, load_policy
    from bridgerl.types import Batch, Bootstrap, EnvSpec

__version__ = "0.2.0"

# Loaded when asked for: help, lists and reports need no torch, which takes a second to import.
_MODULES = {
    "actors": "ACTORS",
    "agent": "Agent build_agent build_critic build_normalizer",
    "config": "RunConfig",
    "critics": "CRITICS",
    "errors": "BridgeError",
    "presets": "resolve",
    "streams": "Streams",
    "training.callbacks": "Callback",
    "training.loop": "Stopped train",
    "training.play": "evaluate load_agent",
    "training.policy": "Policy load_policy",
    "types": "Batch Bootstrap EnvSpec",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

# In pieces that type checkers can read.
__all__ = ["ACTORS", "CRITICS", "Agent", "Batch", "Bootstrap", "BridgeError", "Callback"]
__all__ += ["EnvSpec", "Policy", "RunConfig", "Stopped", "Streams", "__version__", "build_agent"]
__all__ += ["build_critic", "build_normalizer", "evaluate", "load_agent", "load_policy"]
__all__ += ["resolve", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bridgerl' has no attribute {name!r}")
    return getattr(import_module(f"bridgerl.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
