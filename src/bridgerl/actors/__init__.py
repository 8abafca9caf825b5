"""The actors by name; a new one is a file beside this and a line below."""

from bridgerl.actors.settings import ActorConfig
from bridgerl.registry import Registry

ACTORS: Registry[ActorConfig] = Registry(
    ActorConfig,
    "bridgerl.actors",
    {
        "sac": "bridgerl.actors.sac:SACConfig",
        "td3": "bridgerl.actors.td3:TD3Config",
        "qvpo": "bridgerl.actors.qvpo:QVPOConfig",
    },
)

__all__ = ["ACTORS", "ActorConfig"]
