"""A search by Optuna: killed and started again it does exactly what was missing."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from inline import FLAGS, Inline

from bridgerl.cli.main import main
from bridgerl.runs import store
from bridgerl.runs.verify import compare
from bridgerl.studies.run.tuning import TRIALS, Space
from conftest import environment, started

Capture = pytest.CaptureFixture[str]
SEARCH = ["--search", "critic.lr=1e-4..1e-2:log", "train.n-step=1..3", "actor.lr=1e-3,1e-4"]
NAME = "search"


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridgerl.cli.tune.Pool", Inline)


def tune(out: Path, *more: str) -> list[str]:
    own = ["--out", str(out), "--name", NAME, "--workers", "1", "--no-report", *SEARCH, *more]
    return ["tune", "--env", "toy_envs:Point-v0", *FLAGS, *own]


def chosen(out: Path) -> list[dict[str, Any]]:
    path = out / NAME / TRIALS
    return json.loads(path.read_text())["trials"] if path.exists() else []


def runs(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.glob("*/runs/*/*/*/DONE"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trials, one after the other, in this process."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridgerl.cli.tune.Pool", Inline)
        assert main(tune(out, "--trials", "3")) == 0
    return out


def test_killed_and_started_again_it_finishes_exactly_the_missing_trials(
    tmp_path: Path, undisturbed: Path, inline: None, capsys: Capture
) -> None:
    command = [sys.executable, "-m", "bridgerl", *tune(tmp_path, "--trials", "3")]
    with started(command, env=environment(), stderr=subprocess.DEVNULL) as process:
        while len(runs(tmp_path)) < 1 or len(chosen(tmp_path)) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
    before = {path: path.stat().st_mtime_ns for path in runs(tmp_path)[0].rglob("*")}
    assert main(tune(tmp_path, "--trials", "3", "--json")) == 0
    assert 1 <= json.loads(capsys.readouterr().out)["ran"] <= 2
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert chosen(tmp_path) == chosen(undisturbed)
    pairs = list(zip(runs(tmp_path), runs(undisturbed), strict=True))
    assert [compare(a, b) for a, b in pairs] == [None] * 3


def test_the_second_time_nothing_is_left_and_more_trials_can_be_asked_for(
    undisturbed: Path, inline: None, capsys: Capture
) -> None:
    first = chosen(undisturbed)
    for count, ran in (("3", 0), ("4", 1)):
        assert main(tune(undisturbed, "--trials", count)) == 0
        out = capsys.readouterr().out
        assert f"{count} of {count} runs finished" in out
        assert "best: trial 00" in out
        assert "bridgerl train --env toy_envs:Point-v0" in out
        assert len(chosen(undisturbed)) == 3 + ran
    assert chosen(undisturbed)[:3] == first


def test_every_trial_stays_within_the_search(undisturbed: Path) -> None:
    for trial in chosen(undisturbed):
        assert 1e-4 <= trial["critic.lr"] <= 1e-2
        assert trial["train.n-step"] in (1, 2, 3)
        assert trial["actor.lr"] in ("1e-3", "1e-4")


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (lambda data: data["trials"][0].update({"critic.lr": 5.0}), 5, "is damaged"),
        (lambda data: data["trials"][0].update({"out": "/elsewhere"}), 5, "is damaged"),
        (lambda data: data.update(trials=3), 5, "is damaged"),
        (lambda data: data["search"].update(seed=7), 2, "another --search"),
    ],
)
def test_a_strangers_trials_choose_nothing_beyond_the_search(
    change: Any, code: int, says: str, tmp_path: Path, undisturbed: Path, capsys: Capture
) -> None:
    path = tmp_path / NAME / TRIALS
    path.parent.mkdir()
    data = store.open_sealed_json((undisturbed / NAME / TRIALS).read_bytes(), TRIALS)
    change(data)
    path.write_bytes(store.to_sealed_json(data))
    assert main(tune(tmp_path)) == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert runs(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--search", "critic.lr=1e-2..1e-4"], "must rise"),
        (["--search", "critic.lr=0..1:log"], "needs positive ends"),
        (["--search", "critic.lr=a..b"], "needs two numbers"),
        (["--search", "critic.lrr=1..2"], "did you mean --critic.lr"),
        (["--search", "train.discount=0.9..1.5"], "--train.discount must be in"),
        (["--search", "critic.lr=1e-4..1e-2", "--trials", "0"], "--trials"),
        (["--search", "critic.lr=1e-4..1e-2", "--seeds", "0", "0"], "--seeds"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: Capture
) -> None:
    base = ["tune", "--env", "toy_envs:Point-v0", *FLAGS, "--out", str(tmp_path / "new")]
    assert main([*base, *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_without_optuna_the_command_to_install_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(tune(tmp_path / "new")) == 2
    assert "pip install -c constraints.txt -e '.[tune]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_drawn_number_is_short_and_within_its_ends() -> None:
    space = Space("critic.lr", (), 1.23456e-4, 9.87654e-3, log=True)
    assert space.rounded(0.00123456789) == 0.001235
    assert space.rounded(1.23457e-4) == pytest.approx(1.23456e-4, rel=1e-3)
    assert all(space.has(space.rounded(end)) for end in (space.low, space.high))
