"""A stranger's folder in a report: odd texts show as they are, odd numbers break nothing."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from bridgerl.cli.main import main
from bridgerl.report import page
from bridgerl.report.build import build_report
from bridgerl.report.load import load
from bridgerl.report.results import summarise_source
from bridgerl.report.tables import to_json, to_latex, to_markdown
from bridgerl.runs import failpoint, store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.result import RESULT
from bridgerl.studies import STUDIES
from bridgerl.studies.jobs import train_job
from bridgerl.studies.manifest import MANIFEST, Manifest, write_manifest
from bridgerl.studies.run.work import run_job
from conftest import Run
from runs.forgeries import EVIL, forge_value
from runs.strangers import copy_run, forge_config, make_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("original"))


@pytest.fixture
def tree(original: Path, tmp_path: Path) -> Path:
    """A study of a run and a computed job, the run with figures of an older release."""
    run = copy_run(original, tmp_path)
    done = json.loads((run / "DONE").read_bytes())
    figures = {key: value for key, value in done.items() if key not in ("files", "run", "sha256")}
    (run / "DONE").write_bytes(store.to_json(figures))
    RunFolder(run).write_values("last", 80, {"seed": 0, "relative_q_bias": 0.25})
    (endpoint,) = STUDIES["endpoint-bias"].jobs("smoke", tmp_path)
    run_job(endpoint)
    folder = tmp_path / "smoke" / "endpoint-bias"
    folder.mkdir(parents=True, exist_ok=True)
    job = train_job("sac+cdq", RunFolder(run).read_config())
    jobs = {endpoint.folder: endpoint, run: job}
    write_manifest(folder, Manifest("endpoint-bias", "smoke", None, 0.0, jobs))
    return tmp_path


def shown(folder: Path) -> list[str]:
    """Every text that a report writes, without the pictures' library."""
    source = load(folder)
    results = summarise_source(source)
    return [
        to_markdown(results),
        to_latex(results),
        to_json(results),
        page.render(source, results),
    ]


NAMES = ["config.json", "metrics.jsonl", "timing.jsonl", "DONE", "values.json", RESULT, MANIFEST]


@pytest.mark.parametrize("name", NAMES)
def test_forged_values_crash_no_report(
    tree: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "get_plotlyjs", str)
    rng, (path,) = random.Random(name), tree.rglob(name)
    before = path.read_bytes()
    for _ in range(20):
        path.write_bytes(forge_value(path, rng))
        for folder in (tree, tree / "smoke" / "endpoint-bias"):
            texts = shown(folder)
            odd = [c for text in texts for c in set(text) - {"\n"} if not c.isprintable()]
            assert odd == []
        path.write_bytes(before)


def test_escapes_of_a_strangers_folder_are_shown_and_never_sent(
    original: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = copy_run(original, tmp_path)
    out = run.parent.rename(run.parent.with_name("a\x1b[31mb\u202e"))

    def change(stored: dict[str, Any]) -> None:
        stored["versions"] = {EVIL: EVIL}
        stored["command"] = EVIL
        stored["config"]["env"] = EVIL

    forge_config(out / "seed0", change)
    for words in (["report", str(out)], ["verify", str(out / "seed0")], ["report", str(out / "x")]):
        main(words)
    said = "".join(capsys.readouterr())
    assert "a\\x1b[31mb\\u202e" in said
    files = [(out / f"results.{end}").read_text() for end in ("md", "tex", "json")]
    for text in (said, *files, (out / "report.html").read_text().partition("<script")[0]):
        assert [c for c in text if not c.isprintable() and c != "\n"] == []


def test_differences_of_two_runs_are_shown_and_never_sent(
    original: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = copy_run(original, tmp_path)
    log = run / "metrics.jsonl"
    log.write_bytes(b'{"\x1b[31m": 1}\n' + log.read_bytes())
    assert main(["compare", str(run), str(original)]) == 1
    out = capsys.readouterr().out
    assert "\\x1b[31m" in out
    assert "\x1b" not in out


def test_a_strict_stdout_loses_no_result(original: Path, tmp_path: Path, cli: Run) -> None:
    out = tmp_path / "läufe\u2603"
    copy_run(original, out)
    ended = cli("report", str(out), PYTHONIOENCODING="ascii:strict")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "l\\xe4ufe\\u2603/report.html" in ended.stdout
    ended = cli("report", str(out / "ö"), PYTHONIOENCODING="ascii:strict")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


def test_reports_that_are_killed_leave_at_most_one_file(
    original: Path, tmp_path: Path, cli: Run
) -> None:
    run = copy_run(original, tmp_path)
    for _ in range(2):
        ended = cli("report", str(run), BRIDGERL_FAILPOINT="write.report.html.half:1:kill")
        assert ended.returncode == -9
        assert len(list(run.glob(".tmp-*"))) == 1
    assert main(["report", str(run)]) == 0
    assert list(run.glob(".tmp-*")) == []


READ_ONLY: dict[str, list[str]] = {
    "report": ["report", "RUNS"],
    "league": [*"league --critics cdq --tasks two-point --updates 1 --out OUT".split()],
    "toy": ["toy", "--out", "OUT"],
    "reproduce": ["reproduce", "endpoint-bias", "--workers", "1", "--out", "OUT"],
}


@pytest.mark.parametrize("verb", READ_ONLY)
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    original: Path, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run = copy_run(original, tmp_path / "runs")
    places = {"RUNS": str(run), "OUT": str(tmp_path / "out")}
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # Root may write anywhere.
    assert main([places.get(word, word) for word in READ_ONLY[verb]]) == 2
    err = capsys.readouterr().err
    assert (err.startswith("bridgerl: error: "), err.count("\n")) == (True, 1)


@pytest.mark.parametrize(
    ("point", "words", "code"),
    [
        ("publish.study.json:1:enospc", READ_ONLY["reproduce"], 5),
        ("publish.results.md:1:enospc", READ_ONLY["report"], 2),
    ],
)
def test_a_folder_that_turns_out_not_to_be_writable_ends_in_one_line(
    original: Path, tmp_path: Path, point: str, words: list[str], code: int, capsys: Capture
) -> None:
    run = copy_run(original, tmp_path / "runs")
    places = {"RUNS": str(run), "OUT": str(tmp_path / "out")}
    failpoint.arm(point)
    try:
        assert main([places.get(word, word) for word in words]) == code
    finally:
        failpoint.arm("")
    err = capsys.readouterr().err
    assert (err.startswith("bridgerl: error: "), err.count("\n")) == (True, 1)


def test_a_page_of_a_sound_tree_has_no_problems(tree: Path) -> None:
    assert build_report(tree)["problems"] == []
