"""Verdicts beyond one contrast of two means: pairs of seeds, equivalence, several tasks."""

import numpy as np
import pytest

from bridgerl.report import stats
from bridgerl.studies.claims import Alike, Beats, BeatsOverall, Cell


def test_pairs_of_seeds_cancel_what_they_share() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 100, 8)
    scores = {"a": shared + 1 + rng.normal(0, 0.1, 8), "b": shared + rng.normal(0, 0.1, 8)}
    cells = {(name, "t"): stats.summarise(list(x)) for name, x in scores.items()}
    seeds = {(name, "t"): dict(enumerate(x)) for name, x in scores.items()}
    claim = Beats("a", "b", "t")
    assert stats.judge(claim, cells).word == "undecided"
    verdict = stats.judge(claim, cells, seeds=seeds)
    assert verdict.word == "holds"
    assert verdict.interval is not None
    assert verdict.interval.low == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(
    ("gap", "word"), [(0.0, "holds"), (9.0, "undecided"), (30.0, "does not hold")]
)
def test_alike_means_that_the_whole_interval_is_within_the_margin(gap: float, word: str) -> None:
    cells = {("a", "t"): Cell(100.0, 3.0, 5), ("b", "t"): Cell(100.0 + gap, 3.0, 5)}
    assert stats.judge(Alike("a", "b", "t"), cells).word == word


def test_overall_weighs_every_task_by_its_unit() -> None:
    units = (("x", 10.0), ("y", 1000.0))
    claim = BeatsOverall("a", "b", units)
    cells = {("a", "x"): Cell(12.0, 0.1, 5), ("b", "x"): Cell(10.0, 0.1, 5)}
    cells |= {("a", "y"): Cell(900.0, 1.0, 5), ("b", "y"): Cell(1000.0, 1.0, 5)}
    verdict = stats.judge(claim, cells)
    assert verdict.value == pytest.approx((0.2 - 0.1) / 2)
    assert verdict.word == "holds"
    assert stats.judge(claim, {k: v for k, v in cells.items() if k[1] == "x"}).word == "not run"
