"""Presets are data: every name in them is read, and what is said of all critics is of all."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from bridgerl.actors import ACTORS
from bridgerl.config import SECTIONS
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.critics.tqc import TQCConfig
from bridgerl.errors import UserError
from bridgerl.presets import PAIRS, PRESETS, TASKS, Overrides, resolve
from bridgerl.streams import Streams
from bridgerl.types import EnvSpec

TABLES = {"actor": ACTORS, "critic": CRITICS}


def fields_by_section() -> dict[str, set[str]]:
    """What may stand in each section of a layer; in those of all critics, what any of them has."""
    known = {name: {f.name for f in fields(kind)} for name, kind in SECTIONS.items()}
    for part, table in TABLES.items():
        own = {f"{part}.{name}": {f.name for f in fields(table[name])} for name in table}
        known |= own | {part: set().union(*own.values())}
    return known


def unknown(layer: Overrides) -> Iterator[str]:
    """Names in a layer that nothing reads."""
    known = fields_by_section()
    for key, values in layer.items():
        if key.startswith(("env.", "family.")):
            yield from unknown(values)
        elif key != "steps":
            yield from (f"{key}: {name}" for name in values if name not in known.get(key, set()))


def test_every_name_in_presets_tasks_and_pairs_is_read_by_something() -> None:
    layers = (*PRESETS.values(), *TASKS.values(), *PAIRS.values())
    assert [name for layer in layers for name in unknown(layer)] == []
    assert all(actor in ACTORS and critic in CRITICS for actor, critic in PAIRS)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ({"critic.dcb": {"lr": 1e-3}}, "critic.dcb: lr"),
        ({"critic": {"z_scal": 30.0}}, "critic: z_scal"),
        ({"family.Hopper": {"critic.dbc": {"dorp": 0.0}}}, "critic.dbc: dorp"),
        ({"env.Hopper-v5": {"trian": {"warmup": 1}}}, "trian: warmup"),
    ],
)
def test_a_misspelt_name_is_seen(layer: Overrides, name: str) -> None:
    assert list(unknown(layer)) == [name]


@dataclass(frozen=True)
class OwnConfig(CriticConfig):
    """A critic of another package."""

    hidden: tuple[int, ...] = (512,)
    """Widths of its layers."""

    def build(self, spec: EnvSpec, streams: Streams) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class OneWidthConfig(CriticConfig):
    """One whose fields of our names mean something else."""

    hidden: int = 64
    """Width of its only layer."""

    def build(self, spec: EnvSpec, streams: Streams) -> Any:
        raise NotImplementedError


def test_a_field_of_another_type_keeps_its_own_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CRITICS, "own", OneWidthConfig)
    own = resolve("Hopper-v5", critic="own").critic
    assert own == OneWidthConfig(lr=resolve("Hopper-v5", critic="dsac").critic.lr)


def test_a_critic_of_another_package_gets_the_sizes_and_rates_that_it_has_fields_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CRITICS, "own", OwnConfig)
    ours = resolve("Hopper-v5", critic="dsac").critic
    assert resolve("Hopper-v5", critic="own").critic == OwnConfig(hidden=(128, 128), lr=ours.lr)
    assert resolve("Hopper-v5", critic="own", preset="paper").critic == OwnConfig()
    assert resolve("league", critic="own", preset="paper").critic == OwnConfig(lr=1e-3, polyak=0.01)


def test_a_config_stands_for_itself_and_its_name_for_the_pair() -> None:
    given = TQCConfig(n_heads=2)
    ours = resolve("Hopper-v5", critic=given, preset="paper")
    assert ours == replace(resolve("Hopper-v5", critic="tqc", preset="paper"), critic=given)
    td3 = resolve("Hopper-v5", ACTORS["td3"](delay=3), "cdq")
    assert td3.critic == resolve("Hopper-v5", "td3", "cdq").critic
    assert resolve("Hopper-v5", critic=OwnConfig()).critic == OwnConfig()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"critic": TQCConfig}, "unknown critic <class 'bridgerl.critics.tqc.TQCConfig'>"),
        ({"critic": ACTORS["td3"]()}, "unknown critic TD3Config("),
        ({"actor": 3}, "unknown actor 3 (known: sac, "),
        ({"preset": None}, "unknown preset None"),
        ({"env": 3}, "--env must be an id like 'Hopper-v5'; what is made goes into train(config, "),
    ],
)
def test_what_is_no_name_and_no_config_is_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(**{"env": "Hopper-v5", **asked})
    assert says in str(caught.value)
