"""Random damage to runs and studies: a report that says something else says why."""

from pathlib import Path

import pytest

from bridgerl.cli.main import main
from report.damaged import damage, make_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree"))


def test_no_damage_changes_a_report_in_silence(tree: Path) -> None:
    done = damage(tree, seed=0, count=300)
    assert done.silent == ()
    assert done.named > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_kinds_of_damage_change_no_report_in_silence(tree: Path, seed: int) -> None:
    assert damage(tree, seed, count=1000).silent == ()


def test_a_sound_tree_verifies(tree: Path) -> None:
    for run in (tree / "runs").glob("*/*/seed*"):
        assert main(["verify", str(run)]) == 0
