"""Whether a policy that minds bad cases leads the point mass around the disc."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bridgerl import resolve, train
from bridgerl.envs.risky import POINT_MASS
from bridgerl.errors import BridgeError, UserError
from bridgerl.truth.point_mass import draw_ways, enters_disc, main, ways_of


def straight(height: float) -> np.ndarray:
    return np.stack([np.linspace(-1, 1, 20), np.full(20, height)], 1)


def test_a_way_through_the_disc_is_told_from_one_around_it() -> None:
    assert enters_disc(straight(0.0))
    assert enters_disc(straight(0.59))
    assert not enters_disc(straight(0.61))


def test_where_an_episode_begins_is_no_step_in_danger() -> None:
    assert not enters_disc(np.array([[0.0, 0.0], [0.9, 0.0]]))


def test_the_map_is_drawn(tmp_path: Path) -> None:
    draw_ways({"bold": [straight(0.0)], "careful": [straight(0.7)]}, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_of_another_task_is_refused(tmp_path: Path) -> None:
    config = replace(resolve("Pendulum-v1"), steps=300, out=tmp_path)
    with pytest.raises(UserError, match="not on Risky/PointMass-v0"):
        ways_of(train(config, quiet=True), episodes=1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: MAP.png, RUN"),
        (["map.png"], "required: RUN"),
        (["runs/here", "runs/there"], "runs/here must end in .png"),
        (["map.png", "nowhere"], "nowhere"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(words: list[str], says: str) -> None:
    with pytest.raises(BridgeError) as caught:
        main(words)
    assert says in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_an_averse_policy_goes_around_and_a_neutral_one_through(seed: int, tmp_path: Path) -> None:
    base = resolve(POINT_MASS, critic="dbc").changed(steps=30_000, seed=seed)
    kept = {}
    for risk in ("cvar:0.1", "mean"):
        config = base.changed(out=tmp_path / risk, actor={"risk": risk})
        ways = ways_of(train(config, quiet=True), episodes=100)
        kept[risk] = sum(not enters_disc(way) for way in ways)
    assert kept["cvar:0.1"] >= 95
    assert kept["mean"] < 50
