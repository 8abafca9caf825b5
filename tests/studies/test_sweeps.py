"""Sweeps by flags, several seeds of one run, and runs that go on without their flags."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from inline import FLAGS, Inline

from bridgerl.cli.grid import folder_name, read_axis, read_space, words_of
from bridgerl.cli.main import main
from bridgerl.report.load import load
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare
from conftest import environment, started

Capture = pytest.CaptureFixture[str]
VARY = ["--vary", "critic=cdq,tqc", "--seeds", "0", "1"]
SHARED = [word for word in FLAGS if word not in ("--critic", "cdq")]


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridgerl.cli.campaign.Pool", Inline)


def sweep(out: Path, *more: str) -> list[str]:
    return ["sweep", "--env", "toy_envs:Point-v0", *SHARED, "--out", str(out), *(more or VARY)]


def runs(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.glob("*/runs/*/*/*/config.json"))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("critic.lr=1e-4,1e-3", ("1e-4", "1e-3")),
        ("train.n-step=1..3", ("1", "2", "3")),
        ("--train.n_step=-1..1", ("-1", "0", "1")),
        ("critic.lr=1e-4..1e-2:3:log", ("0.0001", "0.001", "0.01")),
        ("train.discount=0.9..0.98:3", ("0.9", "0.94", "0.98")),
        ("critic.hidden=64 64,128 128", ("64 64", "128 128")),
        ('env.kwargs={"a":1,"b":2},{}', ('{"a":1,"b":2}', "{}")),
        ("critic=dbc", ("dbc",)),
    ],
)
def test_lists_and_ranges_become_values(text: str, values: tuple[str, ...]) -> None:
    assert read_axis(text).values == values
    assert read_axis(text).key == text.removeprefix("--").replace("_", "-").partition("=")[0]


def test_values_are_typed_as_train_takes_them() -> None:
    assert words_of("critic.hidden", "64 64") == ["--critic.hidden", "64", "64"]
    assert words_of("train.normalize-obs", "false") == ["--train.no-normalize-obs"]
    assert words_of("train.normalize-obs", "true") == ["--train.normalize-obs"]
    assert words_of("train.normalize-obs", "False") == ["--train.no-normalize-obs"]
    assert words_of("env.kwargs", '{"a": 1}') == ["--env.kwargs", '{"a": 1}']


def test_spaces_of_a_search_are_read_with_their_kinds() -> None:
    assert read_space("critic.lr=1e-4..1e-2:log")[2:] == (1e-4, 1e-2, True, False)
    assert read_space("train.n-step=1..5")[2:] == (1, 5, False, True)
    assert read_space("critic=dbc,iqn").choices == ("dbc", "iqn")


def test_long_names_of_folders_stay_apart() -> None:
    one, other = (folder_name(f"critic.lr={n} {'x' * 90}{n}") for n in (1, 2))
    assert one != other
    assert one is not None
    assert len(one) <= 64


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--vary", "critic.lr"], "--vary must be like critic.lr=1e-4,1e-3"),
        (["--vary", "critic.lr=1,,2"], "has an empty value"),
        (["--vary", "critic.lr=1,1"], "names one twice"),
        (["--vary", "critic.lr=1e-3", "critic.lr=1e-4"], "names one twice"),
        (["--vary", "critic.lr=1e-4..1e-2"], "needs whole numbers, or a range like"),
        (["--vary", "critic.lr=0..1:3:log"], "needs positive ends"),
        (["--vary", "train.n-step=3..1"], "must rise"),
        (["--vary", "seed=0,1"], "use --seeds"),
        (["--vary", "critic.lrr=1"], "did you mean --critic.lr"),
        (["--vary", "critic=cdq,nope"], "unknown critic 'nope'"),
        (["--vary", "train.batch-size=16,32"], "--train.batch-size is given more than once"),
        (["--vary", "critic.lr=1e-3", "--seed", "1"], "use --seeds"),
        (["--vary", "critic.lr=1e-3", "--seeds", "-1"], "--seeds"),
        (["--vary", "critic.lr=1e-3", "--seeds"], "--seeds needs at least one"),
        (["--vary", "critic.lr=1e-3", "--workers", "0"], "--workers"),
        (["--vary", "critic.lr=1e-3", "--name", "a/b"], "--name"),
        (["--vary", "critic.lr=1e-3", "--train.threads", "0"], "--train.threads"),
        (["--vary", "critic.lr=1e-3,2e-3", "--only", "zz"], "--only zz fits no run"),
        (["--vary"], "--vary"),
        ([], "--vary"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: Capture
) -> None:
    base = ["sweep", "--env", "toy_envs:Point-v0", *SHARED, "--out", str(tmp_path / "new")]
    assert main([*base, *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_lists_every_combination_and_writes_nothing(
    tmp_path: Path, capsys: Capture
) -> None:
    more = ["--vary", "env=Pendulum-v1,toy_envs:Point-v0", "critic=cdq,tqc", "--seeds", "0", "1"]
    words = ["sweep", *SHARED, "--out", str(tmp_path / "new"), *more, "--dry-run", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({row["name"] for row in rows}) == 8
    assert rows[0]["name"] == "Pendulum-v1/critic=cdq/seed0"
    assert rows[0]["command"].startswith("bridgerl train --env Pendulum-v1 ")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_trains_all_reports_them_and_leaves_nothing_to_do(
    tmp_path: Path, inline: None, capsys: Capture
) -> None:
    assert main(sweep(tmp_path, *VARY, "--json")) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["runs"], first["ran"], first["finished"], first["failed"]) == (4, 4, 4, {})
    folder = Path(first["folder"])
    source = load(folder)
    assert {run.setting for run in source.runs} == {"critic=cdq", "critic=tqc"}
    text = (folder / "results.md").read_text()
    assert "4 of 4 runs finished" in text
    assert "| toy_envs:Point-v0 | critic=tqc | critic=cdq | best | 2 |" in text.replace("\\_", "_")
    assert main(sweep(tmp_path, *VARY, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 0


def test_other_flags_do_not_mix_into_a_sweep(tmp_path: Path, inline: None, capsys: Capture) -> None:
    few = ["--vary", "critic=cdq", "--no-report", "--name", "few"]
    assert main(sweep(tmp_path, *few)) == 0
    capsys.readouterr()
    assert main(sweep(tmp_path, *few, "--actor.lr", "0.5")) == 2
    assert "give this sweep another --name" in capsys.readouterr().err
    assert main(sweep(tmp_path, *few[:1], "critic=cdq,tqc", *few[2:], "--json")) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 1


def test_a_killed_sweep_ends_as_if_it_had_not_been(tmp_path: Path, inline: None) -> None:
    few = ("--vary", "critic=cdq,tqc", "--no-report", "--workers", "1")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [sys.executable, "-m", "bridgerl", *sweep(broken, *few)]
    with started(command, env=environment(), stderr=subprocess.DEVNULL) as process:
        while not any(broken.glob("*/runs/*/*/*/ckpt/step-*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        for run in runs(broken):  # The run of a dead sweep ends by itself.
            while not _is_free(run):
                time.sleep(0.05)
    assert main(sweep(whole, *few)) == 0
    assert main(sweep(broken, *few)) == 0
    pairs = list(zip(runs(whole), runs(broken), strict=True))
    assert len(pairs) == 2
    assert [compare(a, b) for a, b in pairs] == [None, None]


def _is_free(run: Path) -> bool:
    from bridgerl.errors import Busy

    try:
        RunFolder(run).lock().release()
    except Busy:
        return False
    return True


def train(out: Path, *more: str) -> list[str]:
    return ["train", "--env", "toy_envs:Point-v0", *FLAGS, "--out", str(out), *more]


def test_several_seeds_are_the_runs_that_one_by_one_would_be(
    tmp_path: Path, inline: None, capsys: Capture
) -> None:
    assert main(train(tmp_path / "many", "--seeds", "3", "4", "--workers", "2")) == 0
    assert "over 2 seeds" in capsys.readouterr().out
    assert main(train(tmp_path / "one", "--seed", "4", "--quiet")) == 0
    one, other = (
        tmp_path / f"{kind}/toy_envs_Point-v0/sac-cdq-lite/seed4" for kind in ("one", "many")
    )
    assert compare(one, other) is None


def test_a_run_goes_on_without_its_flags_and_can_be_made_longer(
    tmp_path: Path, capsys: Capture
) -> None:
    short, long = (tmp_path / name / "toy_envs_Point-v0/sac-cdq-lite/seed0" for name in "ab")
    assert main(train(tmp_path / "a", "--quiet")) == 0
    assert main(["train", "--resume", str(short), "--steps", "250", "--quiet"]) == 0
    words = [word if word != "200" else "250" for word in train(tmp_path / "b", "--quiet")]
    assert main(words) == 0
    # The warm-up is that of the flags, so nothing tells the two apart.
    assert compare(short, long) is None
    capsys.readouterr()
    assert main(["train", "--resume", str(short)]) == 0
    assert "already finished at step 250" in capsys.readouterr().out


def test_a_renamed_setting_goes_on_under_its_new_name(tmp_path: Path) -> None:
    assert main(train(tmp_path, "--quiet")) == 0
    setting = tmp_path / "toy_envs_Point-v0" / "sac-cdq-lite"
    run = setting.rename(setting.with_name("mine")) / "seed0"
    assert main(["train", "--resume", str(run), "--steps", "220", "--quiet"]) == 0
    assert (RunFolder(run).done() or {})["step"] == 220


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--env", "Pendulum-v1"], "knows --env of its own"),
        (["--seed", "1"], "knows --seed of its own"),
        (["--out", "x"], "knows --out of its own"),
        (["--seeds", "1"], "leave --seeds out"),
        (["--critic.lr", "0.5"], "critic.lr was"),
        (["--critic.lrr", "0.5"], "did you mean --critic.lr"),
    ],
)
def test_a_resumed_run_stays_what_it_is(
    more: list[str], says: str, tmp_path_factory: pytest.TempPathFactory, capsys: Capture
) -> None:
    run = _one_run(tmp_path_factory)
    capsys.readouterr()
    assert main(["train", "--resume", str(run), *more]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err


_RUNS: list[Path] = []


def _one_run(factory: pytest.TempPathFactory) -> Path:
    if not _RUNS:
        out = factory.mktemp("one")
        assert main(train(out, "--quiet")) == 0
        _RUNS.append(out / "toy_envs_Point-v0" / "sac-cdq-lite" / "seed0")
    return _RUNS[0]


def test_a_strangers_run_imports_no_module_unasked(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run = _one_run(tmp_path_factory)
    monkeypatch.delitem(sys.modules, "toy_envs")
    capsys.readouterr()
    assert main(["train", "--resume", str(run)]) == 2
    assert "add --trust-env toy_envs" in capsys.readouterr().err
    assert "toy_envs" not in sys.modules


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--workers", "2"], "--workers belongs to --seeds"),
        (["--trust-env", "x"], "belongs to --resume"),
        (["--seeds"], "--seeds needs at least one"),
        (["--seeds", "a"], "--seeds takes whole numbers"),
        (["--seeds", "1", "1"], "names one twice"),
        (["--seeds", "1", "--seed", "2"], "cannot stand beside --seed"),
        (["--seeds", "1", "--workers", "0"], "--workers"),
    ],
)
def test_flags_of_train_that_do_not_fit_are_refused(
    more: list[str], says: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(train(tmp_path / "new", *more)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_help_tells_of_the_preset_once_and_gives_the_task_no_default(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    out = capsys.readouterr().out
    assert out.count("--preset") == 1
    assert "default: Ant-v5" not in out
