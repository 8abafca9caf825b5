"""Named defaults as data: per preset, per actor-critic pair, per environment."""

import shlex
from typing import Any, TypeVar

from bridgerl.actors import ACTORS, ActorConfig
from bridgerl.config import SECTIONS, RunConfig, encode
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import choose, require
from bridgerl.registry import Registry
from bridgerl.settings.codec import takes
from bridgerl.settings.lengths import save_every_of, warmup_of

T = TypeVar("T")
Overrides = dict[str, Any]

PAPER_TASKS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")

_ACTOR = {"hidden": (128, 128), "lr": 1e-3}

PRESETS: dict[str, Overrides] = {
    # The paper's tables; its gaps filled as DECISIONS.md tells.
    "paper": {},
    # What a person runs on a CPU. One size, rate and scale for every critic, other packages' too as
    # far as they have such fields, so that two settings differ by their critics alone; chosen by
    # return after minutes of one core.
    "lite": {
        "train": {"normalize_obs": True},
        "actor.sac": _ACTOR,
        "actor.td3": _ACTOR,
        "actor.qvpo": {"hidden": (128, 128), "diffusion_steps": 10}
        | {"n_train": 8, "n_play": 8, "n_uniform": 4},
        "critic": {"hidden": (128, 128), "lr": 1e-3, "z_scale": 30.0},
        "critic.iqn": {"merged": (64,), "n_target": 16, "n_online": 16, "n_actor": 8, "n_rank": 8}
        | {"stratified": True, "shared_levels": True},
        "critic.vf": {"velocity_weight": 0.1, "discounted_velocity": True, "masked_velocity": True},
        # Its denoiser runs at every step of every draw.
        "critic.vdrl": {"hidden": (64, 64), "z_scale": 100.0, "diffusion_steps": 10}
        | {"bounded": True, "n_target": 4, "n_actor": 2, "n_rank": 2},
        "critic.dbc": {"network": "factored", "particle": (16, 16)}
        | {"n_target": 12, "n_online": 12, "n_actor": 4, "n_rank": 8, "actor_steps": 1}
        | {"stratified": True, "shared_levels": True}
        | {"bridge_input": "self", "anchor_weight": 0.0},
        # The paper drops none here; at this learning rate values then ran away (decision 66).
        "family.HalfCheetah": {"critic.dbc": {"drop": 12 / 128}},
        "env.InvertedPendulum-v5": {"steps": 30_000}
        | {"actor.qvpo": {"hidden": (64, 64), "lr": 1e-3}}
        | {"train": {"warmup": 1_000}, "eval": {"every": 1_000}, "save": {"every": 5_000}},
        "env.InvertedDoublePendulum-v5": {"steps": 60_000}
        | {"train": {"warmup": 1_000}, "eval": {"every": 2_000}, "save": {"every": 10_000}},
    },
}

# What holds under every preset: the paper's drop counts d, of DBC's 128 target atoms and TQC's 25.
# Tasks it does not name get the critic's own default.
TASKS: dict[str, Overrides] = {
    "Ant": {"critic.dbc": {"drop": 12 / 128}, "critic.tqc": {"drop": 2 / 25}},
    "HalfCheetah": {"critic.dbc": {"drop": 0.0}, "critic.tqc": {"drop": 0.0}},
    "Hopper": {"critic.dbc": {"drop": 32 / 128}, "critic.tqc": {"drop": 5 / 25}},
    "Humanoid": {"critic.dbc": {"drop": 12 / 128}, "critic.tqc": {"drop": 2 / 25}},
    "Walker2d": {"critic.dbc": {"drop": 14 / 128}, "critic.tqc": {"drop": 2 / 25}},
    # Distributions are learnt without pessimism, in thousands of updates instead of millions.
    "league": {"critic": {"lr": 1e-3, "polyak": 0.01}}
    | {"critic.dbc": {"drop": 0.0}, "critic.tqc": {"drop": 0.0}}
    | {"critic.iqn": {"heads": "mean"}, "critic.vdrl": {"n_heads": 1}},
}

PAIRS: dict[tuple[str, str], Overrides] = {
    # TD3's authors let the policy maximise the first head, SAC's the minimum.
    ("td3", "cdq"): {"critic.cdq": {"actor_q": "first"}},
}


def environments() -> list[str]:
    """The paper's tasks, and those a preset has settings for."""
    named = [key.removeprefix("env.") for p in PRESETS.values() for key in p if key[:4] == "env."]
    return list(dict.fromkeys((*PAPER_TASKS, *named)))


def resolve(
    env: str,
    actor: ActorConfig | str = "sac",
    critic: CriticConfig | str = "dbc",
    preset: str = "lite",
) -> RunConfig:
    """The defaults of one actor-critic pair on one environment, before flags.

    Actor and critic go by their names, or are configs, which stay as they are.
    """
    rule = "must be an id like 'Hopper-v5'; what is made goes into train(config, make_env=...)"
    require(isinstance(env, str), "env", env, rule)
    values = choose("preset", preset, PRESETS)
    family = (env.rpartition("-v")[0] or env).rpartition("/")[2]
    # The names of configs count, too: something may be said of the pair.
    names = (_name(actor, ACTORS), _name(critic, CRITICS))
    pair, task = PAIRS.get(names, {}), TASKS.get(family, {})
    own = (values.get(f"family.{family}", {}), values.get(f"env.{env}", {}))
    layers = [values, pair, task, *own]
    steps = [layer["steps"] for layer in layers if "steps" in layer]
    return RunConfig(
        env=env,
        actor=_part(layers, "actor", actor, ACTORS),
        critic=_part(layers, "critic", critic, CRITICS),
        preset=preset,
        steps=(steps or [RunConfig.steps])[-1],
        **{name: section(**_merged(layers, name)) for name, section in SECTIONS.items()},
    )


def _name(part: T | str, table: Registry[T]) -> str:
    return part if isinstance(part, str) else table.name_of(part) or ""


def _part(layers: list[Overrides], part: str, name: T | str, table: Registry[T]) -> T:
    """The actor or critic of a name; later layers win, and in a layer what is said of it alone.

    Of what is said of all, it takes the fields that it has, if they are of the same type.
    """
    if isinstance(name, table.kind):
        return name
    kind = choose(part, name, table)
    values: Overrides = {}
    for layer in layers:
        values |= {k: v for k, v in layer.get(part, {}).items() if takes(kind, k, v)}
        values |= layer.get(f"{part}.{name}", {})
    return kind(**values)


def _merged(layers: list[Overrides], key: str) -> Overrides:
    """One section's values; later layers win."""
    return {k: v for layer in layers for k, v in layer.get(key, {}).items()}


def command_of(config: RunConfig) -> str:
    """The command that repeats a training: what differs from the preset, as flags."""
    actor, critic = config.actor_name, config.critic_name
    base = resolve(config.env, actor, critic, config.preset)
    words = [f"bridgerl train --env {shlex.quote(config.env)} --actor {actor} --critic {critic}"]
    words += [] if config.preset == "lite" else [f"--preset {config.preset}"]
    now, then = encode(config), encode(base)
    # A run has settled what the preset leaves open; only a number of its own is typed.
    now["train"]["warmup"], now["save"]["every"] = config.warmup, config.save_every
    then["train"]["warmup"] = warmup_of(base.train.warmup, config.steps)
    then["save"]["every"] = save_every_of(base.save.every, config.steps)
    return " ".join([*words, *flags(now, then)])


def flags(now: dict[str, Any], base: dict[str, Any], prefix: str = "--") -> list[str]:
    """What differs from a base, section by section, as it is typed."""
    words: list[str] = []
    for key, value in now.items():
        name = key.replace("_", "-")
        if isinstance(value, dict):
            words += flags(value, base[key], f"{prefix}{name}.")
        elif isinstance(value, bool) and value != base[key]:
            words.append(f"{prefix}{'' if value else 'no-'}{name}")
        elif value != base[key]:
            values = value if isinstance(value, list | tuple) else [value]
            words.append(" ".join([f"{prefix}{name}", *(shlex.quote(str(v)) for v in values)]))
    return words
