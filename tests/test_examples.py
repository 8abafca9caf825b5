"""Every program in examples/ runs as its reader would run it, and does what it says."""

import os
import re
import shutil
import statistics
import sys
from pathlib import Path

import pytest

from bridgerl import __file__ as package_file
from conftest import finished

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
PACKAGE = Path(package_file).parent


def _run(*args: str | Path, path: Path | None = None) -> str:
    places = os.pathsep.join([str(path or ""), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": places, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, *map(str, args)]
    ended = finished(command, timeout=200, env=env)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Warning" not in ended.stderr, ended.stderr
    return ended.stdout


def test_every_example_is_run_here() -> None:
    files = (Path(__file__), HERE / "sb3" / "test_sb3.py", HERE / "studies" / "test_own_study.py")
    text = "".join(path.read_text() for path in files)
    assert all(p.name in text for p in EXAMPLES.glob("*.py"))


def test_dbc_learns_inside_a_loop_that_is_not_ours() -> None:
    out = _run(EXAMPLES / "own_loop.py", "--steps", "2000")
    first, *last = map(int, re.findall(r"-?\d+", out.split("first")[1]))
    assert statistics.median(last) > 3 * first, out


def test_the_new_critic_trains(tmp_path: Path) -> None:
    out = _run(EXAMPLES / "add_a_critic.py", "--steps", "300", "--out", tmp_path)
    assert "sac-average-lite" in out
    assert list(tmp_path.rglob("DONE"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package with the new critic in it: one new file, one new line."""
    shutil.copytree(PACKAGE, tmp_path / "bridgerl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(EXAMPLES / "add_a_critic.py", tmp_path / "bridgerl/critics/average.py")
    registry = tmp_path / "bridgerl/critics/__init__.py"
    last = '        "dbc": "bridgerl.critics.dbc:DBCConfig",\n'
    line = '        "average": "bridgerl.critics.average:AverageConfig",\n'
    text = registry.read_text()
    assert line.strip().rstrip(",") in (EXAMPLES / "add_a_critic.py").read_text()
    registry.write_text(text.replace(last, last + line))
    return tmp_path


def test_one_file_and_one_line_make_a_critic_of_every_command(copied: Path) -> None:
    def bridgerl(*args: str) -> str:
        return _run("-m", "bridgerl", *args, path=copied)

    assert "average" in bridgerl("list")
    assert "--critic.n-heads" in bridgerl("train", "--critic", "average", "--help")
    flags = "--steps 150 --train.warmup 100 --eval.episodes 1 --eval.every 150 --quiet".split()
    out = ["--out", str(copied / "runs"), "--env", "InvertedPendulum-v5"]
    bridgerl("train", "--critic", "average", *flags, *out)
    league = "league --critics average --tasks two-point --seeds 0 --updates 20 --no-plot".split()
    assert "average" in bridgerl(*league, "--out", str(copied / "league"))


def test_one_import_puts_the_new_critic_under_the_contract(copied: Path) -> None:
    (copied / "test_mine.py").write_text("from bridgerl.testing import *\n")
    options = ("-q", "-p", "no:cacheprovider", "-k", "average and not 300 and not bandit")
    out = _run("-m", "pytest", copied / "test_mine.py", *options, path=copied)
    passed = re.search(r"(\d+) passed", out)
    assert passed, out
    assert int(passed[1]) >= 25
