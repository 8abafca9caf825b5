"""A race on seconds instead of minutes: everybody gets the same, and nothing is run twice."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bridgerl.bench.peers import against_the_clock
from bridgerl.bench.race import file_name, summarise
from bridgerl.cli.main import main
from bridgerl.cli.race import Race, _settings
from bridgerl.runs import store

EVIDENCE = Path(__file__).parents[2] / "evidence/race.zip"
ENV = "InvertedPendulum-v5"
OURS = "small = sac+cdq --critic.hidden 16 16 --actor.hidden 16 16 --train.warmup 100"
SHORT = ["--envs", ENV, "--minutes", "0.02", "--marks", "2", "--episodes", "1"]


@pytest.fixture(autouse=True)
def _keep_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_setaffinity", raising=False)


def _race(folder: Path, *racers: str, seeds: str = "0") -> dict[str, Any]:
    words = ["--racers", *racers, "--seeds", *seeds.split(), "--out", str(folder)]
    assert main(["race", *words, *SHORT]) == 0
    return json.loads((folder / "race.json").read_text())


def test_looks_stop_the_clock_and_fall_on_even_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("time.process_time", lambda: now)
    curve = against_the_clock(lambda: wait(7) or 3, lambda: wait(100) or 5.0, 60, marks=4)
    assert curve["returns"] == [5.0] * 4
    assert [60 * m for m in curve["minutes"]] == pytest.approx([21, 35, 49, 63])
    assert curve["steps"] == [9, 15, 21, 27]


def test_ours_and_a_peer_race_for_the_same_time_and_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    peer = "theirs = sb3:SAC --net-arch 16 16 --learning-starts 100"
    data = _race(tmp_path, OURS, peer)
    assert [row["label"] for row in data["rows"]] == ["small", "theirs"]
    for cell in data["cells"]:
        assert cell["curve"]["minutes"][-1] >= 0.02
        assert len(cell["curve"]["returns"]) == 2
        assert cell["curve"]["steps"][-1] > 0
    assert (tmp_path / "race.png").stat().st_size > 10_000


def test_the_same_command_again_runs_only_what_is_missing(tmp_path: Path) -> None:
    first = _race(tmp_path, OURS)["cells"]
    again = _race(tmp_path, OURS, seeds="0 1")["cells"]
    assert again[0] == first[0]
    assert again[1]["seed"] == 1
    other = _race(tmp_path, OURS.replace("16 16", "8 8", 1))["cells"]
    assert other[0]["what"] != first[0]["what"]


@pytest.mark.parametrize("damage", ["cut", "another cell"])
def test_a_damaged_cell_is_refused_and_stays(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _race(tmp_path, OURS)
    (cell,) = (tmp_path / "cells").iterdir()
    other = store.to_sealed_json(json.loads(cell.read_bytes()) | {"seed": 7})
    cell.write_bytes(cell.read_bytes()[:-9] if damage == "cut" else other)
    before = cell.read_bytes()
    words = ["--racers", OURS, "--seeds", "0", "1", "--out", str(tmp_path)]
    assert main(["race", *words, *SHORT]) == 5
    error = capsys.readouterr().err
    assert f"{cell} is damaged: " in error
    assert error.endswith("; delete it to run this cell again\n")
    assert [*(tmp_path / "cells").iterdir()] == [cell]
    assert cell.read_bytes() == before


def test_stored_cells_are_those_of_the_same_command() -> None:
    stored = set(zipfile.ZipFile(EVIDENCE).namelist())
    command = Race(("sac+dbc", "sac+cdq"), ("HalfCheetah-v5", "Hopper-v5"), (0, 1, 2))
    assert {f"cells/{file_name(*start)}" for start in command.starts()} <= stored


def test_minutes_to_the_best_other_are_those_of_the_mean_curve() -> None:
    def cell(label: str, returns: list[float]) -> dict[str, Any]:
        curve = {"minutes": [1.0, 2.0, 3.0], "steps": [10.0, 20.0, 30.0], "returns": returns}
        return {"env": "e", "label": label, "curve": curve}

    cells = [cell("a", [1, 6, 9]), cell("a", [3, 8, 9]), cell("b", [0, 1, 7])]
    a, b = summarise(cells)
    assert (a["final"], a["minutes_to_best_other"]) == (9.0, 2.0)
    assert (b["final"], b["minutes_to_best_other"]) == (7.0, None)


def test_settings_of_a_peer_are_json_text_or_true() -> None:
    text = "--net-arch 64 32 --ent-coef auto --use-sde --learning-rate 1e-3"
    expected = {"net_arch": [64, 32], "ent_coef": "auto", "use_sde": True, "learning_rate": 1e-3}
    assert _settings(list(text.split())) == expected


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--racers", "dbc"], "needs a pair"),
        (["--racers", "rllib:SAC"], "unknown library"),
        (["--racers", "a = sac+cdq", "a = sac+dbc"], "one label twice"),
        (["--racers", "sac+cdq --critic.hiden 8"], "unknown flag"),
        (["--racers", "a = sac+cdq 'x"], "cannot be read"),
        (["--minutes", "0"], "must be in"),
        (["--workers", "4096"], "a core for each"),
    ],
)
def test_a_wrong_race_is_refused_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    racers = [] if "--racers" in words else ["--racers", OURS]
    assert main(["race", *words, *racers, "--out", str(tmp_path / "race")]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "race").exists()
