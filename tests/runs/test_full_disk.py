"""A disk that is really full, of bytes or of files: a small one of its own, no failpoints."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridgerl.runs.verify import compare, verify
from conftest import TINY
from runs.small_disk import NoDisk, enlarge, small_disk
from warm_process import Ended, WarmProcess


@pytest.fixture(scope="module")
def reference(warm: WarmProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never disturbed."""
    out = tmp_path_factory.mktemp("reference")
    assert train(warm, out).code == 0
    return run_in(out)


def train(warm: WarmProcess, out: Path) -> Ended:
    return warm.run(*TINY, "--quiet", "--out", str(out))


def run_in(out: Path) -> Path:
    return next(out.glob("*/*/seed0"))


@contextlib.contextmanager
def disk_or_skip(place: Path, size: str) -> Iterator[None]:
    try:
        with small_disk(place, size):
            yield
    except NoDisk as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("size", "has_checkpoint"),
    [
        ("size=4k", False),  # Not even the config.
        ("size=16k", False),  # No room for the log, nor for the traceback.
        ("size=80k", True),
        ("size=50m,nr_inodes=8", False),
        ("size=50m,nr_inodes=10", False),
        ("size=50m,nr_inodes=18", True),
    ],
)
def test_a_full_disk_is_one_line_and_with_more_space_the_run_ends_with_the_same_bits(
    warm: WarmProcess, reference: Path, tmp_path: Path, size: str, has_checkpoint: bool
) -> None:
    disk = tmp_path / "disk"
    with disk_or_skip(disk, size):
        ended = train(warm, disk)
        *before, last = ended.err.splitlines()
        assert ended.code == 5, ended
        assert last.startswith("bridgerl: error: ")
        assert "No space left on device" in ended.err or "cannot be written" in last
        assert all(line.startswith("bridgerl: warning: ") for line in before)
        run = next(disk.glob("*/*/seed0"), disk / "none")
        if (run / "config.json").exists():
            verify(run)
        assert bool(list(run.glob("ckpt/step-*"))) == has_checkpoint
        enlarge(disk)
        ended = train(warm, disk)
        assert ended.code == 0, ended
        assert compare(run_in(disk), reference) is None
