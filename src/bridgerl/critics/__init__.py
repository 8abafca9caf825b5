"""The critics by name; a new one is a file beside this and a line below."""

from bridgerl.critics.base import Critic, CriticConfig
from bridgerl.critics.cdq import CDQConfig
from bridgerl.critics.dbc import DBCConfig

CRITICS: dict[str, type[CriticConfig]] = {
    "cdq": CDQConfig,
    "dbc": DBCConfig,
}

__all__ = ["CRITICS", "Critic", "CriticConfig"]
