"""Nothing is written or deleted through a link, and nothing but our own files is ever removed."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from bridgerl.cli.main import main
from bridgerl.report.build import build_report
from bridgerl.runs import checkpoint, store
from runs.forgeries import forge_tensor_name, is_untouched, make_victim
from runs.strangers import COMMAND, copy_run, forge_checkpoint, make_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("original"))


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return copy_run(original, tmp_path / "out")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    return make_victim(tmp_path / "victim")


def assert_untouched(victim: Path) -> None:
    assert is_untouched(victim)


def fails_with_one_line(args: list[str], capsys: Capture, *codes: int) -> str:
    capsys.readouterr()
    code = main(args)
    err = capsys.readouterr().err
    assert code in codes, err
    assert err.startswith("bridgerl: error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("part", ["ckpt", "replay", "tb", "."])
def test_a_part_of_a_run_that_is_a_link_is_refused(
    run: Path, victim: Path, part: str, begun: bool, tmp_path: Path, capsys: Capture
) -> None:
    place = run / part
    if os.path.lexists(place):
        place.rename(tmp_path / "moved")
    if not begun:  # Nothing is there but the link.
        (tmp_path / "out").rename(tmp_path / "old")
        place.parent.mkdir(parents=True)
    place.symlink_to(victim)
    line = fails_with_one_line([*COMMAND, str(tmp_path / "out")], capsys, 5)
    assert f"{place} is a link" in line
    assert_untouched(victim)


def test_a_folder_of_all_runs_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    make_run(tmp_path / "out")


def test_a_traceback_is_not_written_through_a_link(
    run: Path, victim: Path, tmp_path: Path, capsys: Capture
) -> None:
    newest = run / "ckpt/step-000000000080"
    (run / "run.log").symlink_to(victim / "precious")
    forge_checkpoint(newest, checkpoint.TENSORS, save({"agent.x": torch.zeros(1)}))
    fails_with_one_line([*COMMAND, str(tmp_path / "out")], capsys, 5)
    assert_untouched(victim)


def test_a_forged_name_of_a_tensor_is_escaped_wherever_it_goes(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    forge_tensor_name(run, "agent.a\nevil line\x1b[31m\x9b\u202e")
    line = fails_with_one_line([*COMMAND, str(tmp_path / "out")], capsys, 5)
    log = (run / "run.log").read_text()
    for text in (line, log):
        assert "\\x1b[31m\\x9b\\u202e" in text
        assert all(c.isprintable() for c in text.replace("\n", ""))
    assert not [row for row in log.splitlines() if row.startswith("evil")]


def test_logs_of_a_study_and_folders_of_its_jobs_are_not_written_through_links(
    victim: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = ["reproduce", "endpoint-bias", "--workers", "1", "--out", str(tmp_path / "out")]
    logs = tmp_path / "out/smoke/endpoint-bias/logs"
    logs.parent.mkdir(parents=True)
    logs.symlink_to(victim)
    assert "is a link" in fails_with_one_line(words, capsys, 5)
    logs.unlink()
    capsys.readouterr()
    assert main([*words, "--dry-run", "--json"]) == 0
    from bridgerl.studies import STUDIES

    (job,) = STUDIES["endpoint-bias"].jobs("smoke", tmp_path / "out")
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    job.folder.symlink_to(victim)
    assert "is a link" in fails_with_one_line(words, capsys, 5)
    assert_untouched(victim)


@pytest.mark.parametrize("end", [".json", ".md", ".tex"])
def test_a_report_beside_a_folder_of_a_tables_name_leaves_it_alone(
    run: Path, tmp_path: Path, end: str, capsys: Capture
) -> None:
    folder = tmp_path / f"page{end}"
    folder.mkdir()
    (folder / "precious").touch()
    words = ["report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")]
    assert f"page{end} is a folder" in fails_with_one_line(words, capsys, 2)
    assert (folder / "precious").exists()
    assert not (tmp_path / "page.html").exists()


def test_a_file_never_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(IsADirectoryError):
        store.publish_file(tmp_path / "x", b"data")
    assert [p.name for p in tmp_path.rglob("*")] == ["x"]


def test_only_leftovers_of_our_own_naming_are_swept(tmp_path: Path) -> None:
    for name in (".tmp-notes", ".trash-me-please", ".tmp-x-0123abcd", ".trash-y-01234567"):
        (tmp_path / name).touch()
    store.sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tmp-notes", ".trash-me-please"]


def test_a_killed_writers_file_is_removed_by_the_next_and_a_live_ones_is_not(
    tmp_path: Path,
) -> None:
    dead, other = tmp_path / ".tmp-page.html-0123abcd", tmp_path / ".tmp-page.htm-0123abcd"
    dead.touch()
    other.touch()
    store.publish_file(tmp_path / "page.html", b"new")
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, "page.html"]

    def publish_again() -> None:  # While the first is being written.
        monkey.undo()
        store.publish_file(tmp_path / "page.html", b"second")

    monkey = pytest.MonkeyPatch()
    monkey.setattr(store, "failpoint", lambda name: name == "publish.page.html" and publish_again())
    store.publish_file(tmp_path / "page.html", b"first")
    assert (tmp_path / "page.html").read_bytes() == b"first"


def test_a_report_that_was_killed_again_and_again_leaves_one_page(run: Path) -> None:
    for k in range(3):
        (run / f".tmp-report.html-0000000{k}").write_bytes(bytes(1000))
    build_report(run)
    assert not list(run.glob(".tmp-*"))
