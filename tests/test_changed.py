"""Settings of a run and of its sections are changed by one call, which refuses what is none."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bridgerl.errors import UserError
from bridgerl.presets import resolve

CONFIG = resolve("Hopper-v5", "sac", "cdq")
UNKNOWN = [
    ({"stepz": 1}, "config has no setting 'stepz'; did you mean steps?"),
    ({"eval": {"episode": 1}}, "eval has no setting 'episode'; did you mean episodes?"),
    ({"critic": {"lr": "fast"}}, "config field critic.lr cannot be 'fast'"),
    ({"critic": {"lr": 2.0}}, "--critic.lr must be in (0, 1), got 2.0"),
    ({"critic": 3}, "config field config.critic cannot be 3"),
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
