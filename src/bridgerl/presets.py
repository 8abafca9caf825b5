"""Named defaults as data: per preset, per actor-critic pair, per environment."""

import dataclasses
from typing import Any

from bridgerl.actors import ACTORS
from bridgerl.config import RunConfig
from bridgerl.critics import CRITICS
from bridgerl.errors import choose

Overrides = dict[str, Any]

PRESETS: dict[str, dict[str, Overrides]] = {
    # The paper's tables; its gaps filled as DECISIONS.md tells.
    "paper": {},
    # What a person runs on a CPU.
    "lite": {
        "actor": {"hidden": (256, 256)},
        "critic.cdq": {"hidden": (256, 256)},
    },
}

PAIRS: dict[tuple[str, str], Overrides] = {
    # TD3's authors let the policy climb the first head, SAC's the minimum.
    ("td3", "cdq"): {"actor_q": "first"},
}

ENVS: dict[str, Overrides] = {
    "Ant-v5": {},
    "HalfCheetah-v5": {},
    "Hopper-v5": {},
    "Humanoid-v5": {},
    "Walker2d-v5": {},
    "InvertedPendulum-v5": {
        "steps": 30_000,
        "actor": {"lr": 1e-3},
        "critic": {"lr": 1e-3},
        "train": {"warmup": 1_000},
        "eval": {"every": 1_000},
        "save": {"every": 5_000},
    },
    "InvertedDoublePendulum-v5": {
        "steps": 60_000,
        "train": {"warmup": 1_000},
        "eval": {"every": 2_000},
        "save": {"every": 10_000},
    },
}


def resolve(env: str, actor: str, critic: str, preset: str) -> RunConfig:
    """The defaults of one actor-critic pair on one environment, before flags."""
    values = choose("preset", preset, PRESETS)
    actor_config = choose("actor", actor, ACTORS)(**values.get("actor", {}))
    critic_values = values.get(f"critic.{critic}", {}) | PAIRS.get((actor, critic), {})
    critic_config = choose("critic", critic, CRITICS)(**critic_values)
    config = RunConfig(env=env, actor=actor_config, critic=critic_config, preset=preset)
    changes: Overrides = {}
    for key, value in ENVS.get(env, {}).items():
        section: Any = getattr(config, key)
        nested = isinstance(value, dict)
        changes[key] = dataclasses.replace(section, **value) if nested else value
    return dataclasses.replace(config, **changes)
