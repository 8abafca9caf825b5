"""Distributional critics for continuous control."""

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
