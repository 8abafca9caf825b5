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


def test_equal_gaps_of_pairs_decide_nothing() -> None:
    seeds = {("a", "t"): {0: 1.0, 1: 3.0}, ("b", "t"): {0: 0.0, 1: 2.0}}
    cells = {cell: stats.summarise(list(x.values())) for cell, x in seeds.items()}
    verdict = stats.judge(Beats("a", "b", "t"), cells, seeds=seeds)
    assert verdict.word == "undecided"
    assert verdict.reason == "equal gaps tell nothing of their spread"


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


@pytest.mark.parametrize("paired", [False, True])
def test_as_many_seeds_as_are_said_to_be_needed_decide_four_of_five_times(paired: bool) -> None:
    rng, names = np.random.default_rng(5), (("a", "t"), ("b", "t"))

    def verdict(scores: np.ndarray) -> stats.Verdict:
        cells = {name: stats.summarise(list(row)) for name, row in zip(names, scores, strict=True)}
        seeds = {name: dict(enumerate(row)) for name, row in zip(names, scores, strict=True)}
        return stats.judge(Beats("a", "b", "t"), cells, seeds=seeds if paired else None)

    # All deviations are 1, and seeds share nothing.
    gap = np.array([[1.0], [0.0]])
    corners = np.array([[1.0, 1, -1, -1], [1, -1, 1, -1]]) * np.sqrt(3) / 2
    few = verdict(corners + gap)
    assert few.word == stats.UNDECIDED
    assert few.seeds is not None
    tries = [verdict(rng.normal(size=(2, few.seeds)) + gap).word for _ in range(1_000)]
    assert tries.count(stats.HOLDS) / 1_000 == pytest.approx(stats.POWER, abs=0.04)


def test_nobody_is_sent_for_seeds_that_decide_nothing() -> None:
    cells = {("a", "t"): Cell(1.0, 3.0, 5), ("b", "t"): Cell(1.0, 3.0, 5)}
    assert stats.judge(Beats("a", "b", "t"), cells).seeds is None
    same = {("a", "t"): {0: 1.0, 1: 2.0}, ("b", "t"): {0: 1.0, 1: 2.0}}
    ties = {key: stats.summarise(list(x.values())) for key, x in same.items()}
    assert stats.judge(Beats("a", "b", "t"), ties, seeds=same).seeds is None
    far = cells | {("a", "t"): Cell(9.0, 3.0, 5)}
    assert stats.judge(Beats("a", "b", "t"), far).seeds is None  # It is decided.


def test_seeds_that_are_needed_are_those_of_each_setting() -> None:
    claim = Beats("a", "b", "t")
    few = {("a", "t"): Cell(1.0, 3.0, 3), ("b", "t"): Cell(0.0, 3.0, 30)}
    even = {key: cell._replace(n=20) for key, cell in few.items()}
    needed = stats.judge(claim, few).seeds
    assert needed == stats.judge(claim, even).seeds
    # The usual table: two groups, a third of a deviation, power 0.8.
    assert needed == pytest.approx(143, abs=2)


def test_pairs_count_by_the_seeds_that_both_have() -> None:
    rng, claim = np.random.default_rng(1), Beats("a", "b", "t")
    scores = {"a": dict(enumerate(rng.normal(0.4, 1, 10))), "b": {}}
    scores["b"] = {seed: rng.normal() for seed in range(7, 17)}
    cells = {(name, "t"): stats.summarise(list(x.values())) for name, x in scores.items()}
    verdict = stats.judge(claim, cells, seeds={(name, "t"): x for name, x in scores.items()})
    gaps = np.array([scores["a"][seed] - scores["b"][seed] for seed in (7, 8, 9)])
    assert verdict.value == pytest.approx(gaps.mean())
    alone = {("a", "t"): dict(enumerate(gaps)), ("b", "t"): dict(enumerate(np.zeros(3)))}
    cells = {key: stats.summarise(list(x.values())) for key, x in alone.items()}
    assert verdict.seeds == stats.judge(claim, cells, seeds=alone).seeds
