"""Named defaults as data: per preset, per actor-critic pair, per environment."""

import dataclasses
from typing import Any

from bridgerl.actors import ACTORS
from bridgerl.config import RunConfig
from bridgerl.critics import CRITICS
from bridgerl.errors import choose

Overrides = dict[str, Any]

PAPER_TASKS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")

PRESETS: dict[str, dict[str, Overrides]] = {
    # The paper's tables; its gaps filled as DECISIONS.md tells.
    "paper": {},
    # What a person runs on a CPU.
    "lite": {
        "actor": {"hidden": (256, 256)},
        "critic.cdq": {"hidden": (256, 256)},
        "critic.dbc": {
            "network": "factored",
            "hidden": (256, 256),
            "particle": (32, 32),
            "n_target": 16,
            "n_online": 16,
            "n_actor": 8,
            "stratified": True,
            "shared_levels": True,
            "bridge_input": "self",
        },
        "env.InvertedPendulum-v5": {
            "steps": 30_000,
            "actor": {"lr": 1e-3},
            "critic": {"lr": 1e-3},
            "train": {"warmup": 1_000},
            "eval": {"every": 1_000},
            "save": {"every": 5_000},
        },
        "env.InvertedDoublePendulum-v5": {
            "steps": 60_000,
            "train": {"warmup": 1_000},
            "eval": {"every": 2_000},
            "save": {"every": 10_000},
        },
    },
}

PAIRS: dict[tuple[str, str], Overrides] = {
    # TD3's authors let the policy climb the first head, SAC's the minimum.
    ("td3", "cdq"): {"actor_q": "first"},
}


def environments() -> list[str]:
    """The paper's tasks, and those a preset has settings for."""
    named = [key.removeprefix("env.") for p in PRESETS.values() for key in p if key[:4] == "env."]
    return [*PAPER_TASKS, *named]


def resolve(env: str, actor: str = "sac", critic: str = "cdq", preset: str = "lite") -> RunConfig:
    """The defaults of one actor-critic pair on one environment, before flags."""
    values = choose("preset", preset, PRESETS)
    actor_config = choose("actor", actor, ACTORS)(**values.get("actor", {}))
    critic_values = values.get(f"critic.{critic}", {}) | PAIRS.get((actor, critic), {})
    critic_config = choose("critic", critic, CRITICS)(**critic_values)
    config = RunConfig(env=env, actor=actor_config, critic=critic_config, preset=preset)
    changes: Overrides = {}
    for key, value in values.get(f"env.{env}", {}).items():
        section: Any = getattr(config, key)
        nested = isinstance(value, dict)
        changes[key] = dataclasses.replace(section, **value) if nested else value
    return dataclasses.replace(config, **changes)
