"""The critics by name; a new one is a file beside this and a line below."""

from bridgerl.critics.settings import CriticConfig
from bridgerl.registry import Registry

CRITICS: Registry[CriticConfig] = Registry(
    CriticConfig,
    "bridgerl.critics",
    {
        "cdq": "bridgerl.critics.cdq:CDQConfig",
        "dsac": "bridgerl.critics.dsac:DSACConfig",
        "iqn": "bridgerl.critics.iqn:IQNConfig",
        "tqc": "bridgerl.critics.tqc:TQCConfig",
        "vf": "bridgerl.critics.vf:VFConfig",
        "vdrl": "bridgerl.critics.vdrl:VDRLConfig",
        "dbc": "bridgerl.critics.dbc:DBCConfig",
    },
)

__all__ = ["CRITICS", "CriticConfig"]
