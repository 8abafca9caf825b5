"""A study from a file outside the package: planned, run, reported, or refused in one line."""

import json
import shutil
from pathlib import Path

import pytest
from inline import Inline

from bridgerl.cli.main import main
from bridgerl.report.build import build_report
from bridgerl.studies.own import read_study

Capture = pytest.CaptureFixture[str]
EXAMPLE = Path(__file__).parents[2] / "examples" / "my_study.py"


def test_the_example_runs_and_its_claims_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("bridgerl.cli.campaign.Pool", Inline)
    words = ["reproduce", str(EXAMPLE), "--out", str(tmp_path), "--seeds", "0", "--json"]
    assert main([*words, "--only", "sac+cdq", "three steps"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["runs"], summary["finished"]) == (2, 2)
    folder = tmp_path / "smoke" / "pendulum"
    claims = "three steps > sac+dbc on Pendulum-v1"
    assert claims in (folder / "results.md").read_text()

    # Without the file, scores stay, and the page says what is missing.
    results = build_report(folder)
    assert (results["claims"], results["finished"]) == ([], 2)
    assert "--study-file my_study.py" in results["problems"][0]
    assert main(["report", str(folder), "--study-file", str(EXAMPLE)]) == 0
    assert claims in (folder / "results.md").read_text()


def test_seeds_of_earlier_calls_stay_in_the_report_and_in_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("bridgerl.cli.campaign.Pool", Inline)
    words = ["reproduce", str(EXAMPLE), "--out", str(tmp_path / "all"), "--json"]
    for seed in ("4", "0"):
        assert main([*words, "--seeds", seed, "--only", "sac+cdq"]) == 0
    results = build_report(tmp_path / "all" / "smoke" / "pendulum", study=read_study(EXAMPLE))
    assert (results["planned"], results["finished"]) == (6, 2)  # Three settings, seeds 0 and 4.

    archive = tmp_path / "scores.zip"
    assert main(["pack", str(tmp_path / "all"), str(archive)]) == 0
    capsys.readouterr()
    assert main(["report", str(archive), "--study-file", str(EXAMPLE), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["finished"], again["claims"]) == (2, results["claims"])


def test_a_dry_run_of_the_example_writes_nothing(tmp_path: Path, capsys: Capture) -> None:
    words = ["reproduce", str(EXAMPLE), "--scale", "cpu", "--out", str(tmp_path / "new")]
    assert main([*words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "9 runs, 0 finished" in out
    assert "--train.n-step 3" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no file"),
        ("", "has no STUDY"),
        ("STUDY = 3", "has no STUDY"),
        ("1 / 0", "fails: ZeroDivisionError"),
        ("def (", "fails: SyntaxError"),
        ('name="pendulum"|name="a/b"', "'a/b' must be Latin letters"),
        ('name="pendulum"|name="main"', "'main' is a study of bridgerl"),
    ],
)
def test_a_file_that_is_no_study_is_refused_in_one_line(
    text: str | None, says: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "mine.py"
    if text is not None and "|" in text:
        shutil.copy(EXAMPLE, path)
        old, _, new = text.partition("|")
        path.write_text(path.read_text().replace(old, new))
    elif text is not None:
        path.write_text(text)
    read_study.cache_clear()
    assert main(["reproduce", str(path), "--out", str(tmp_path / "new")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
    assert not (tmp_path / "new").exists()


def test_runs_that_are_not_the_studys_are_not_hidden_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("bridgerl.cli.campaign.Pool", Inline)
    words = ["reproduce", str(EXAMPLE), "--out", str(tmp_path), "--seeds", "0", "--json"]
    assert main([*words, "--only", "sac+cdq"]) == 0
    (run,) = (tmp_path / "smoke" / "runs").rglob("seed0")
    shutil.copytree(run, tmp_path / "mine" / "seed0")
    results = build_report(tmp_path, study=read_study(EXAMPLE))
    assert (results["planned"], results["claims"]) == (2, [])
