"""Settings of a run and of its sections are changed by one call, which refuses what is none."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgerl.config import checked
from bridgerl.errors import UserError
from bridgerl.presets import resolve

CONFIG = resolve("Hopper-v5", "sac", "cdq")
UNKNOWN = [
    ({"stepz": 1}, "config has no setting 'stepz'; did you mean steps?"),
    ({"eval": {"episode": 1}}, "eval has no setting 'episode'; did you mean episodes?"),
    ({"critic": {"lr": "fast"}}, "config field critic.lr cannot be 'fast'"),
    ({"critic": {"lr": 2.0}}, "--critic.lr must be in (0, 1), got 2.0"),
    ({"critic": 3}, "config field config.critic cannot be 3"),
    ({"critic": "cdq"}, "config.critic cannot be 'cdq'; begin with resolve(..., critic='cdq')"),
    ({"actor": "td3"}, "config.actor cannot be 'td3'; begin with resolve(..., actor='td3')"),
    ({"steps": 1e3}, "config.steps cannot be 1000.0; it takes a whole number (int)"),
    ({"seed": np.int64(3)}, "config.seed cannot be np.int64(3); it takes a whole number (int)"),
    ({"critic": {"lr": True}}, "critic.lr cannot be True; it takes a number (float)"),
    ({"critic": {"hidden": [8.0]}}, "cannot be 8.0; it takes a whole number (int)"),
    ({"train": {"gamma": 0.9}}, "train has no setting 'gamma'; did you mean discount?"),
    ({"critic": {"learning_rate": 0.1}}, "no setting 'learning_rate'; did you mean lr?"),
    ({"discount": 0.9}, "no setting 'discount'; did you mean train={'discount': ...}?"),
    ({"gamma": 0.9}, "no setting 'gamma'; did you mean train={'discount': ...}?"),
    ({"env_kwargs": {"a": {1}}}, "--env-kwargs cannot be written as JSON"),
    ({"env_kwargs": 3}, "--env-kwargs must be a JSON object in braces, got '3'"),
    ({"seed": -1}, "--seed must be from 0"),
]


@pytest.mark.parametrize(("values", "says"), UNKNOWN, ids=repr)
def test_a_change_that_no_run_can_have_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        CONFIG.changed(**values)
    assert says in str(caught.value)


def test_settings_of_sections_change_and_others_stay() -> None:
    ours = CONFIG.changed(steps=1000, eval={"episodes": 1}, critic={"hidden": [8]}, out="there")
    assert (ours.steps, ours.eval.episodes, ours.out) == (1000, 1, Path("there"))
    assert ours.critic == dataclasses.replace(CONFIG.critic, hidden=(8,))
    assert ours.eval == dataclasses.replace(CONFIG.eval, episodes=1)
    assert (ours.actor, ours.train, CONFIG.steps) == (CONFIG.actor, CONFIG.train, 1_000_000)
    assert CONFIG.changed(critic=ours.critic).critic == ours.critic


def test_arguments_of_an_environment_are_given_as_a_dictionary() -> None:
    ours = CONFIG.changed(env_kwargs={"b": 1, "a": [2]})
    assert ours.env_kwargs == '{"a": [2], "b": 1}'
    assert ours.changed(env_kwargs=None) == CONFIG


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert CONFIG.changed(out="~/x").out == tmp_path / "x"
    assert checked(dataclasses.replace(CONFIG, out=Path("~/x"))).out == tmp_path / "x"
