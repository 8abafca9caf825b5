"""Bad input: exit code 2, one line that names the flag, and nothing created or changed."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bridgerl import __version__
from bridgerl.actors import ACTORS
from bridgerl.cli.main import VERBS, main
from bridgerl.critics import CRITICS
from bridgerl.presets import PRESETS, environments
from bridgerl.settings.measures import KINDS
from bridgerl.studies import SCALES, STUDIES
from cli.bad_lines import TABLE, TOY, snapshot, words
from conftest import TINY, Run, finished


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a file and an empty folder in it."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def same_process() -> Iterator[None]:
    """Commands in this process leave its signals and torch's threads alone."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads
    assert [signal.getsignal(number) for number in numbers] == handlers


@pytest.mark.parametrize(("line", "fragment"), TABLE, ids=[line[:70] for line, _ in TABLE])
def test_bad_input_is_refused_in_one_line_and_changes_nothing(
    line: str, fragment: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(workplace)
    code = main(words(line))
    out, err = capsys.readouterr()
    assert fragment in err
    assert code == 2
    assert err.startswith("bridgerl: error: ")
    assert err.count("\n") == 1
    assert len(err) < 700 + len(line)  # Libraries list all that they know.
    assert "Traceback" not in err
    assert out == ""
    assert snapshot(workplace) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"train {TOY} --train.batch-size x",
            "--train.batch-size takes INT, got 'x' (see bridgerl train --help)",
        ),
        (f"train {TOY} --critic.polyak 2", "--critic.polyak must be in (0, 1], got 2.0"),
        ("evaluate nowhere", "nowhere is not a run folder: it has no config.json"),
    ],
)
def test_bad_input_to_the_real_program_exits_2(
    line: str, message: str, workplace: Path, cli: Run
) -> None:
    before = snapshot(workplace)
    # A narrow terminal must not break the line.
    result = cli(*words(line), cwd=workplace, COLUMNS="20")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"bridgerl: error: {message}\n"
    assert snapshot(workplace) == before


def test_bad_input_reads_the_same_on_a_narrow_colour_terminal(workplace: Path) -> None:
    terminal, program_side = os.openpty()
    args = [sys.executable, "-m", "bridgerl", "evaluate", "empty", "--weights", "bst"]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "20", "OMP_NUM_THREADS": "1"}
    code = finished(args, env=env, stdout=program_side, stderr=program_side).returncode
    text = os.read(terminal, 10_000).decode()
    os.close(program_side)
    os.close(terminal)
    assert code == 2
    wanted = "invalid choice 'bst' for argument '--weights'. Expected one of ('best', 'last')."
    assert text == f"bridgerl: error: {wanted} (see bridgerl evaluate --help)\r\n"


def test_another_config_in_the_same_folder_is_refused(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--quiet"]) == 0
    before = snapshot(workplace)
    capsys.readouterr()
    assert main([*TINY, "--quiet", "--train.discount", "0.5"]) == 2
    err = capsys.readouterr().err
    assert "train.discount was 0.99, now 0.5" in err
    assert err.count("\n") == 1
    assert snapshot(workplace) == before


def test_equals_signs_and_odd_folders_are_fine(workplace: Path) -> None:
    out = "a folder/größe 木"
    assert main([*TINY, "--quiet", f"--out={out}", "--seed=3", "--actor=td3"]) == 0
    run = workplace / out / "toy_envs_Point-v0" / "td3-cdq-lite" / "seed3"
    assert json.loads((run / "DONE").read_bytes())["step"] == 600
    assert main(["verify", str(run)]) == 0
    assert main(["compare", str(run), str(run)]) == 0
    assert main(["evaluate", str(run), "--episodes=1", "--json"]) == 0


@pytest.mark.parametrize("line", ["verify ~/file", f"train {TOY} --out=~/file", "toy --out ~/file"])
def test_a_tilde_that_the_shell_left_is_the_home_folder(
    line: str,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(workplace))
    assert main(words(line)) == 2
    assert f"{workplace}/file" in capsys.readouterr().err
    assert not (workplace / "~").exists()


ASKED = {verb: [verb, "--help"] for verb in VERBS} | {"tune": ["help", "tune"]}


@pytest.mark.parametrize("verb", ASKED)
def test_help_of_every_verb_shows_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(ASKED[verb])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert f"Example: bridgerl {verb}" in out
    assert err == ""


def test_help_of_train_shows_the_flags_of_the_chosen_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--actor", "td3", "--critic", "cdq", "--steps", "x", "--help"])
    out = capsys.readouterr().out
    wanted = ["--actor.explore-noise", "--critic.n-heads", "--quiet"]
    for flag, names in (("--actor", ACTORS), ("--critic", CRITICS), ("--preset", PRESETS)):
        wanted.append(f"{flag} {{{','.join(names)}}}")
    assert [text for text in wanted if text not in out] == []
    assert "--actor.temperature" not in out


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"], ["help", "help"]])
def test_overview_names_every_verb(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    out = capsys.readouterr().out
    assert [verb for verb in VERBS if f"  {verb} " not in out] == []
    assert "Example: bridgerl train" in out


def test_list_prints_the_registries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "actors": list(ACTORS),
        "critics": list(CRITICS),
        "presets": list(PRESETS),
        "studies": list(STUDIES),
        "risk": [f"{name}:{kind.example:g}" for name, kind in KINDS.items()],
        "scales": list(SCALES),
        "environments": environments(),
    }


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bridgerl {__version__}\n"
