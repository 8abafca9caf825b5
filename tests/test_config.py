"""A run as data: JSON there and back, strict reading, what decides a trajectory, folder names."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgerl.actors import ACTORS
from bridgerl.cli.train import Train
from bridgerl.config import RunConfig, SaveConfig, decode, encode, identity
from bridgerl.critics import CRITICS
from bridgerl.critics.dbc import DBCConfig
from bridgerl.errors import UserError
from bridgerl.presets import PRESETS, command_of, environments, resolve

CHOICES = [(a, c, p) for a in ACTORS for c in CRITICS for p in PRESETS]


def encoded() -> dict[str, Any]:
    """A default config as it reads back from disk."""
    return json.loads(json.dumps(encode(resolve("Hopper-v5", "td3", "cdq", "lite"))))


@pytest.mark.parametrize(("actor", "critic", "preset"), CHOICES)
def test_config_survives_json(actor: str, critic: str, preset: str) -> None:
    config = resolve("Hopper-v5", actor, critic, preset)
    config = config.changed(name="a.b", eval={"stop_at": -1.5}, out=Path("a folder/ü"))
    assert decode(json.loads(json.dumps(encode(config), allow_nan=False))) == config


@pytest.mark.parametrize("env", environments())
def test_every_environment_with_defaults_of_its_own_resolves(env: str) -> None:
    config = resolve(env, "sac", "cdq", "lite")
    assert config.warmup < config.steps
    assert decode(json.loads(json.dumps(encode(config)))) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_td3_climbs_the_first_head_and_sac_the_minimum(preset: str) -> None:
    assert encode(resolve("Hopper-v5", "td3", "cdq", preset))["critic"]["actor_q"] == "first"
    assert encode(resolve("Hopper-v5", "sac", "cdq", preset))["critic"]["actor_q"] == "min"


WRONG_VALUES = [
    (("steps",), "1000"),
    (("steps",), 1e6),
    (("steps",), True),
    (("steps",), None),
    (("seed",), -1),
    (("out",), 3),
    (("out",), "a\0b"),
    (("name",), "../x"),
    (("preset",), "../x"),
    (("env",), ""),
    (("train", "discount"), "0.99"),
    (("train", "discount"), True),
    (("train", "discount"), 10**400),
    (("train", "discount"), float("nan")),
    (("train", "batch_size"), 256.0),
    (("train",), []),
    (("train",), None),
    (("eval", "stop_at"), float("inf")),
    (("log", "tensorboard"), 1),
    (("actor",), "td3"),
    (("actor", "type"), "tdd3"),
    (("actor", "type"), ["td3"]),
    (("actor", "hidden"), 256),
    (("actor", "hidden"), [256, "256"]),
    (("actor", "hidden"), [0]),
    (("critic", "actor_q"), "second"),
    (("critic", "actor_q"), ["min"]),
    (("critic", "grad_clip"), "None"),
    (("critic", "type"), "td3"),
]


@pytest.mark.parametrize(("path", "value"), WRONG_VALUES, ids=repr)
def test_wrong_values_are_refused(path: tuple[str, ...], value: object) -> None:
    data = encoded()
    section = data
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    with pytest.raises(UserError):
        decode(data)


SECTIONS = ("actor", "critic", "train", "eval", "log", "save")


@pytest.mark.parametrize("section", [None, *SECTIONS])
def test_unknown_fields_are_refused_by_name(section: str | None) -> None:
    data = encoded()
    (data if section is None else data[section])["surprise"] = 1
    with pytest.raises(UserError, match="surprise"):
        decode(data)


@pytest.mark.parametrize("name", ["env", "actor", "critic"])
def test_what_has_no_default_must_not_be_missing(name: str) -> None:
    data = encoded()
    del data[name]
    with pytest.raises(UserError, match=name):
        decode(data)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_config_from_before_a_field_came_gets_its_default(section: str) -> None:
    data = encoded()
    name = sorted(set(data[section]) - {"type"})[0]
    del data[section][name]
    part = getattr(decode(data), section)
    assert getattr(part, name) == getattr(type(part)(), name)


@pytest.mark.parametrize("data", [None, [], "config", 3])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(UserError, match="JSON object"):
        decode(data)


def changed(**values: Any) -> RunConfig:
    return resolve("Hopper-v5", "sac", "cdq", "lite").changed(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"steps": 2_000_000},
        {"eval": {"every": 7, "episodes": 3, "stop_at": 1.0}},
        {"log": {"every": 7, "tensorboard": False}},
        {"save": {"every": 7, "keep": 1, "weights_every": 7, "require_exact": True}},
        {"out": Path("elsewhere")},
        {"name": "other"},
    ],
    ids=lambda values: next(iter(values)),
)
def test_identity_ignores_what_leaves_the_trajectory_alone(values: dict[str, Any]) -> None:
    assert identity(encode(changed(**values))) == identity(encode(changed()))


def test_identity_tells_apart_what_changes_the_trajectory() -> None:
    base = changed()
    others = [
        changed(env="Ant-v5"),
        changed(seed=1),
        changed(train={"discount": 0.5}),
        changed(train={"threads": 2}),
        changed(actor={"lr": 2e-3}),
        changed(critic={"polyak": 0.5}),
        resolve("Hopper-v5", "td3", "cdq", "lite"),
    ]
    assert all(identity(encode(other)) != identity(encode(base)) for other in others)
    assert identity(encode(base))["train.discount"] == 0.99


WARMUPS = [(5, 1), (3_000, 300), (99_990, 9_999), (100_000, 10_000), (1_000_000, 10_000)]


@pytest.mark.parametrize(("steps", "warmup"), WARMUPS)
def test_a_warmup_that_nobody_chose_is_at_most_a_tenth_of_the_run(steps: int, warmup: int) -> None:
    assert changed(steps=steps).warmup == warmup


def test_a_warmup_that_was_chosen_stays_in_a_short_run() -> None:
    assert changed(steps=3_000, train={"warmup": 2_999}).warmup == 2_999
    assert resolve("InvertedPendulum-v5").warmup == 1_000


def test_a_presets_warmup_makes_way_for_a_short_run_on_the_command_line() -> None:
    def typed(*words: str) -> int:
        return Train.read(["--env", "InvertedPendulum-v5", *words]).config.warmup

    assert typed() == typed("--steps", "1001") == 1_000
    assert typed("--steps", "1000") == typed("--steps=1000") == 100
    with pytest.raises(UserError, match="leaves nothing"):
        typed("--steps", "500", "--train.warmup", "1000")


def test_help_shows_no_default_for_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Train.read(["--help"])
    assert "my_module:MyEnv-v0. (required)" in " ".join(capsys.readouterr().out.split())


def test_identity_knows_the_warmup_by_its_number() -> None:
    left_open = identity(encode(changed(steps=3_000)))
    chosen = changed(train={"warmup": 300})
    assert left_open["train.warmup"] == 300
    assert left_open == identity(encode(chosen))
    assert left_open != identity(encode(changed(steps=6_000)))


def test_the_command_of_a_run_names_only_a_warmup_of_its_own() -> None:
    def command(steps: int, warmup: int | None) -> str:
        return command_of(changed(steps=steps, train={"warmup": warmup}))

    assert command(3_000, None) == command(3_000, 300)
    assert "warmup" not in command(3_000, 300)
    assert command(6_000, 300).endswith("--steps 6000 --train.warmup 300")


SAVES = [(5, 1_000), (5_000, 1_000), (20_000, 4_000), (250_000, 50_000), (1_000_000, 50_000)]


@pytest.mark.parametrize(("steps", "every"), SAVES)
def test_a_killed_run_loses_at_most_a_fifth_of_its_steps_though_nobody_chose(
    steps: int, every: int
) -> None:
    assert changed(steps=steps).save_every == every


def test_steps_between_checkpoints_that_were_chosen_stay() -> None:
    chosen = changed(steps=3_000, save=SaveConfig(every=50_000))
    assert chosen.save_every == decode(encode(chosen)).save_every == 50_000
    assert resolve("InvertedPendulum-v5").save_every == 5_000
    with pytest.raises(UserError, match=r"save\.every must be at least 1"):
        SaveConfig(every=0)


def test_the_command_of_a_run_names_only_checkpoints_of_its_own() -> None:
    def command(every: int | None) -> str:
        return command_of(changed(steps=10_000, save=SaveConfig(every=every)))

    assert command(None) == command(2_000)
    assert "save" not in command(None)
    assert command(50_000).endswith("--save.every 50000")


def test_folder_names_the_setting() -> None:
    config = changed(seed=4, out=Path("o"))
    assert config.folder == Path("o/Hopper-v5/sac-cdq-lite/seed4")
    named = config.changed(name="mine")
    assert named.folder == Path("o/Hopper-v5/mine/seed4")


@pytest.mark.parametrize(
    "env",
    [
        "my_module:Env-v0",
        "space/Env-v0",
        "..",
        ".",
        "...",
        "../../x",
        "/etc",
        "a b",
        "ü",
        "a\0b",
        "~",
    ],
)
def test_folder_of_any_environment_stays_inside_out(env: str) -> None:
    config = changed(env=env, out=Path("o"))
    first, name, *rest = config.folder.parts
    assert (first, rest) == ("o", ["sac-cdq-lite", "seed0"])
    assert name.isascii()
    assert not name.startswith(".")
    assert not set("/\\\0 :~") & set(name)


PAPER_TRAIN = {"batch_size": 256, "buffer_size": 1_000_000, "discount": 0.99}
PAPER_ACTOR = {"hidden": (256, 256, 256), "lr": 3e-4, "adam_eps": 1e-8, "grad_clip": 1.0}
PAPER_CRITIC = {"lr": 3e-4, "adam_eps": 1e-5, "grad_clip": 1.0, "polyak": 0.005, "target_every": 1}
PAPER_ACTORS = {
    "sac": {"delay": 1, "temperature": 1.0, "temperature_lr": 3e-4, "target_entropy": None},
    "td3": {"delay": 2, "polyak": 0.005, "explore_noise": 0.1}
    | {"target_noise": 0.2, "target_noise_clip": 0.5},
}
PAPER_CRITICS = {"cdq": {"hidden": (512, 512, 512), "n_heads": 2}}


@pytest.mark.parametrize("env", ["Ant-v5", "InvertedPendulum-v5"])
@pytest.mark.parametrize("actor", PAPER_ACTORS)
@pytest.mark.parametrize("critic", PAPER_CRITICS)
def test_preset_paper_has_every_number_of_the_papers_tables(
    env: str, actor: str, critic: str
) -> None:
    config = resolve(env, actor, critic, "paper")
    wanted: list[tuple[object, dict[str, object]]] = [
        (config, {"steps": 1_000_000, "warmup": 10_000}),
        (config.train, PAPER_TRAIN),
        (config.eval, {"every": 10_000, "episodes": 10}),
        (config.actor, PAPER_ACTOR | PAPER_ACTORS[actor]),
        (config.critic, PAPER_CRITIC | PAPER_CRITICS[critic]),
    ]
    for part, numbers in wanted:
        assert {name: getattr(part, name) for name in numbers} == numbers


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "HalfCheetah-v4", "Noisy/HalfCheetah-v5"])
def test_what_a_preset_says_of_a_family_holds_for_every_form_of_the_task(env: str) -> None:
    lite, paper = (resolve(env, "sac", "dbc", preset).critic for preset in ("lite", "paper"))
    assert [critic.n_drop for critic in (lite, paper) if isinstance(critic, DBCConfig)] == [2, 0]
