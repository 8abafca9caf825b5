"""Scores in one file: equal tables from it, a study that goes on from it, odd files refused."""

import json
import zipfile
from pathlib import Path

import pytest

from bridgerl.cli.main import main
from conftest import TINY


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    assert main([*TINY, "--quiet", "--out", str(out)]) == 0
    return out


def test_an_archive_makes_the_tables_that_its_folder_makes(runs: Path, tmp_path: Path) -> None:
    archive, page = tmp_path / f"{runs.name}.zip", tmp_path / "of_folder.html"
    assert main(["pack", str(runs), str(archive)]) == 0
    assert main(["report", str(runs), "--out", str(page)]) == 0
    assert main(["report", str(archive)]) == 0
    tables = [json.loads(p.with_suffix(".json").read_text()) for p in (page, archive)]
    assert tables[0] == tables[1]


def test_an_archive_is_small_and_the_same_every_time(runs: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    assert main(["pack", str(runs), str(first)]) == main(["pack", str(runs), str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {Path(name).name for name in names} >= {"config.json", "metrics.jsonl", "DONE"}
    assert not [name for name in names if "ckpt" in name or "replay" in name]


def test_a_run_unpacked_elsewhere_counts_as_done(runs: Path, tmp_path: Path) -> None:
    archive, out = tmp_path / "scores.zip", tmp_path / "again"
    assert main(["pack", str(runs), str(archive)]) == 0
    assert main(["unpack", str(archive), str(out)]) == 0
    (done,) = out.rglob("DONE")
    assert json.loads(done.read_text())["step"] == 600
    assert main(["unpack", str(archive), str(out)]) == 0  # Equal files are no quarrel.


def test_unpacking_overwrites_nothing(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, out = tmp_path / "scores.zip", tmp_path / "again"
    assert main(["pack", str(runs), str(archive)]) == main(["unpack", str(archive), str(out)]) == 0
    (done,) = out.rglob("DONE")
    done.write_text("mine")
    assert main(["unpack", str(archive), str(out)]) == 2
    assert done.read_text() == "mine"
    assert "differs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["../DONE", "/tmp/DONE", "a/../../DONE", "a\\..\\DONE", ".ssh/x.json", "run.py", "a\nb"]
)
def test_an_archive_of_strangers_writes_nothing_odd(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "odd.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("good/DONE", "{}")
        file.writestr(name, "{}")
    assert main(["unpack", str(archive), str(tmp_path / "out")]) == 5
    assert not list((tmp_path / "out").rglob("*"))


def test_what_is_no_archive_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd.zip"
    odd.write_bytes(b"no zip at all")
    assert main(["report", str(odd)]) == 5
    assert main(["unpack", str(odd), str(tmp_path / "out")]) == 5
    assert main(["pack", str(tmp_path / "nothing"), str(odd)]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["pack", str(tmp_path / "empty"), str(odd)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4
