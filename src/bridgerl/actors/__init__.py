"""The actors by name; a new one is a file beside this and a line below."""

from bridgerl.actors.base import Actor, ActorConfig
from bridgerl.actors.sac import SACConfig
from bridgerl.actors.td3 import TD3Config

ACTORS: dict[str, type[ActorConfig]] = {
    "sac": SACConfig,
    "td3": TD3Config,
}

__all__ = ["ACTORS", "Actor", "ActorConfig"]
