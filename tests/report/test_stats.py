"""Intervals and verdicts against SciPy and rliable, and what the paper's own numbers say."""

import math

import numpy as np
import pytest
from rliable import library, metrics
from scipy import stats as scipy_stats

from bridgerl.report import stats
from bridgerl.report.stats import Interval
from bridgerl.runs.records import Evaluations
from bridgerl.studies import STUDIES, paper
from bridgerl.studies.claims import (
    Alike,
    Beats,
    Cell,
    Claim,
    Exceeds,
    GainsMore,
    Spreads,
    StaysBelow,
)

pytestmark = pytest.mark.filterwarnings("ignore:random_state is deprecated:FutureWarning")
RNG = np.random.default_rng
REPS = 20_000
# Seeds by tasks, as rliable has them; odd and even numbers of seeds and of cut scores.
SHARED = [(3, 2), (5, 5), (10, 3), (4, 1), (7, 2)]


def draw(seeds: int, tasks: int, shift: float = 0.0, key: int = 0) -> np.ndarray:
    return RNG([key, seeds, tasks]).normal(shift, 1, size=(seeds, tasks)).round(1)  # With ties.


def columns(scores: np.ndarray) -> list[np.ndarray]:
    return list(scores.T)


def rliable_interval(scores, aggregate, reps: int = 2000) -> np.ndarray:
    _, intervals = library.get_interval_estimates(
        {"x": scores},
        lambda *s: np.array([aggregate(*s)]),
        reps=reps,
        random_state=np.random.RandomState(0),
    )
    return intervals["x"][:, 0]


@pytest.mark.parametrize("shape", SHARED)
def test_iqm_equals_rliable(shape):
    scores = draw(*shape)
    assert stats.iqm(columns(scores)) == pytest.approx(metrics.aggregate_iqm(scores))


@pytest.mark.parametrize("shape", SHARED[1:4])
def test_iqm_interval_has_the_quantiles_of_rliable(shape):
    scores = draw(*shape)
    ours = stats.iqm_interval(columns(scores), RNG(1), REPS)
    assert ours == pytest.approx(rliable_interval(scores, metrics.aggregate_iqm), abs=0.08)


@pytest.mark.parametrize("shape", SHARED)
def test_probability_of_improvement_equals_rliable_and_mann_whitney(shape):
    x, y = draw(*shape, shift=0.5), draw(shape[0] + 1, shape[1], key=1)
    ours = stats.improvement(columns(x), columns(y))
    assert ours == pytest.approx(metrics.probability_of_improvement(x, y))
    u = [scipy_stats.mannwhitneyu(a, b).statistic for a, b in zip(x.T, y.T, strict=True)]
    assert ours == pytest.approx(np.mean(u) / (len(x) * len(y)))


def test_probability_of_improvement_of_equal_scores_is_one_half():
    same = [np.ones(4), np.ones(3)]
    assert stats.improvement(same, same) == 0.5
    assert stats.improvement_interval(same, same, RNG(0)) == (0.5, 0.5)


def test_interval_of_improvement_has_the_quantiles_of_rliable():
    x, y = draw(6, 3, shift=0.7), draw(8, 3, key=1)
    ours = stats.improvement_interval(columns(x), columns(y), RNG(1), REPS)
    # It runs SciPy's whole test for every draw, so it gets few.
    theirs = rliable_interval((x, y), metrics.probability_of_improvement, reps=300)
    assert ours == pytest.approx(theirs, abs=0.05)


def test_a_task_with_one_seed_has_no_bootstrap_interval():
    tasks = [np.array([1.0]), np.array([1.0, 2.0])]
    assert stats.iqm_interval(tasks, RNG(0)) is None
    assert stats.improvement_interval(tasks, tasks, RNG(0)) is None


def test_equal_generators_give_equal_intervals():
    tasks = columns(draw(5, 2))
    assert stats.iqm_interval(tasks, RNG(3)) == stats.iqm_interval(tasks, RNG(3))


def test_iqm_interval_covers_the_truth():
    rng, hits = RNG(0), 0
    for _ in range(200):
        low, high = stats.iqm_interval(list(rng.normal(size=(3, 10))), rng, 400) or (0, 0)
        hits += low <= 0 <= high  # A normal law's IQM is its mean.
    assert 0.88 <= hits / 200 <= 0.99


@pytest.mark.parametrize(("m", "n"), [(2, 2), (3, 3), (3, 7), (10, 4)])
def test_interval_of_a_difference_is_welchs(m, n):
    x, y = RNG(m).normal(1, 1, m), RNG(n + 50).normal(0, 3, n)
    verdict = judge(Beats("a", "b", "t"), a=x, b=y)
    welch = scipy_stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    assert verdict.interval == pytest.approx(tuple(welch))


def test_interval_of_one_mean_is_students():
    x = RNG(0).normal(5, 2, 6)
    verdict = judge(Exceeds("a", "t", 1.0, says="a > 1"), a=x)
    own = scipy_stats.ttest_1samp(x, 1.0).confidence_interval()
    assert verdict.interval == pytest.approx((own.low - 1, own.high - 1))
    low, high = stats.mean_interval(x[:, None])
    assert (low[0], high[0]) == pytest.approx((own.low, own.high))


def test_a_score_stays_below_a_number_if_its_whole_interval_does():
    claim, x = StaysBelow("a", "t", 6.0, says="a < 6"), RNG(0).normal(5, 0.2, 6)
    own = scipy_stats.ttest_1samp(x, 6.0).confidence_interval()
    assert judge(claim, a=x).interval == pytest.approx((6 - own.high, 6 - own.low))
    words = [judge(claim, a=x + up).word for up in (0, 0.9, 2)]
    assert words == [stats.HOLDS, stats.UNDECIDED, stats.FAILS]


RICH = [Exceeds("a", "t", 4.0), StaysBelow("a", "t", 6.0), Beats("a", "b", "t", factor=1.5)]
RICH += [GainsMore("a", "b", "c", "d", "t", says="more")]


@pytest.mark.parametrize("claim", RICH, ids=lambda claim: type(claim).__name__)
def test_pairs_of_seeds_have_the_value_of_the_means_and_a_finite_interval_around_it(claim):
    scores = {name: RNG(i).normal(5 + i % 3, 0.1, 4) for i, name in enumerate("abcd")}
    cells = {(name, "t"): stats.summarise(list(values)) for name, values in scores.items()}
    seeds = {(name, "t"): dict(enumerate(values)) for name, values in scores.items()}
    alone, paired = stats.judge(claim, cells), stats.judge(claim, cells, seeds=seeds)
    assert paired.value == pytest.approx(alone.value)
    assert paired.interval is not None
    assert np.mean(paired.interval) == pytest.approx(alone.value)


def test_printed_means_give_the_interval_of_the_scores_behind_them():
    x, y = RNG(0).normal(1, 1, 3), RNG(1).normal(0, 3, 3)
    printed = {("a", "t"): Cell(x.mean(), x.std(ddof=1), 3)}
    printed |= {("b", "t"): Cell(y.mean(), y.std(ddof=1), 3)}
    claim = Beats("a", "b", "t", factor=1.2)
    assert stats.judge(claim, printed).interval == pytest.approx(judge(claim, a=x, b=y).interval)


@pytest.mark.parametrize(
    ("claim", "truth"),
    [
        (Beats("a", "b", "t", factor=1.5), 10 - 1.5 * 8),
        (GainsMore("a", "b", "c", "d", "t", says=""), math.log(10 / 8) - math.log(12 / 11)),
    ],
    ids=["factor", "gains"],
)
def test_intervals_of_claims_cover_the_truth(claim, truth):
    rng, hits = RNG(0), 0
    for _ in range(400):
        scores = {k: rng.normal(m, m / 10, 4) for k, m in zip("abcd", (10, 8, 12, 11), strict=True)}
        low, high = judge(claim, **scores).interval or (0, 0)
        hits += low <= truth <= high
    assert 0.92 <= hits / 400 <= 0.985


def judge(claim, **scores) -> stats.Verdict:
    return stats.judge(claim, {(k, "t"): stats.summarise(list(v)) for k, v in scores.items()})


@pytest.mark.parametrize(
    ("a", "b", "word", "reason"),
    [
        ((10, 11, 12), (1, 2, 3), "holds", ""),
        ((1, 2, 3), (10, 11, 12), "does not hold", ""),
        ((1, 2, 3), (1, 2, 4), "undecided", "the interval contains 0"),
        ((9,), (1, 2, 3), "undecided", "one seed has no interval"),
        ((math.nan, 2), (1, 2), "undecided", "a score is not finite"),
        ((1000, 1000), (900, 900), "undecided", "equal seeds tell nothing of their spread"),
        ((1000, 1000), (900, 901), "holds", ""),
    ],
)
def test_verdict_follows_the_interval(a, b, word, reason):
    verdict = judge(Beats("a", "b", "t"), a=a, b=b)
    assert (verdict.word, verdict.reason) == (word, reason)


def test_a_claim_without_runs_is_not_run_and_says_which():
    verdict = judge(Beats("a", "b", "t"), a=(1, 2))
    assert verdict == stats.Verdict("not run", reason="no finished run of b on t")


def test_gains_of_negative_returns_are_undecided():
    verdict = judge(
        GainsMore("a", "b", "c", "d", "t", says=""), a=(1, 2), b=(-5, -4), c=(1, 2), d=(1, 2)
    )
    assert (verdict.word, verdict.value) == ("undecided", None)


def test_exact_scores_are_their_own_interval():
    cells = {("a", "t"): Cell(3.0, 0.0, 1, exact=True), ("b", "t"): Cell(2.0, 0.0, 1, exact=True)}
    assert stats.judge(Beats("a", "b", "t"), cells).interval == Interval(1.0, 1.0)


def test_measures_of_a_run_are_best_final_and_average():
    steps = np.array([10.0, 20.0, 30.0])
    assert Evaluations(steps, np.array([1.0, 5.0, 3.0])).summary() == {
        "best_return": 5.0,
        "best_step": 20,
        "final_return": 3.0,
        "average_return": 3.0,
    }
    assert Evaluations().summary() == {}
    broken = Evaluations(steps[:2], np.array([1.0, math.nan])).summary()
    assert all(math.isnan(v) for k, v in broken.items() if k != "best_step")


def test_a_spread_is_judged_by_the_f_distribution():
    wide, narrow = Cell(0, 10.0, 3), Cell(0, 1.0, 4)
    contrast = Spreads("a", "b", "t").contrast({("a", "t"): wide, ("b", "t"): narrow})
    low, high = stats.contrast_interval(contrast, {})
    assert contrast.value == pytest.approx(math.log(100))
    ratio, law = 100.0, scipy_stats.f(2, 3)
    assert math.exp(low) == pytest.approx(ratio / law.ppf(0.975))
    assert math.exp(high) == pytest.approx(ratio / law.ppf(0.025))


def test_tiny_variances_have_an_interval_too():
    verdict = judge(Beats("a", "b", "t"), a=(1.0, 1.0 + 1e-15), b=(0.5, 0.5))
    assert verdict.word == "holds"


def contradicted(study: str) -> set[str]:
    """Claims that the paper's own means contradict."""
    cells = STUDIES[study].paper_cells()

    def against(claim: Claim) -> bool:
        value = stats.judge(claim, cells).value
        if value is None:
            return False
        return abs(value) > claim.margin(cells) if isinstance(claim, Alike) else value <= 0

    return {claim.text for claim in STUDIES[study].claims if against(claim)}


CONTRADICTED = {
    "main": {"sac+dbc > sac+tqc on HalfCheetah-v5"},
    "plug-and-play": {"DBC gains TD3 more than SAC on Walker2d-v5"},
    "flow-steps": {
        "sac+dbc > M = 1 on Hopper-v5",
        "M = 10 varies more than sac+dbc on Humanoid-v5",
        "M = 10 varies more than sac+dbc on Hopper-v5",
    },
    "anchor-weight": {"w = 0.02 > w = 0 on Ant-v5", "w = 0.02 > w = 0 on Humanoid-v5"},
    "endpoint-bias": {
        f"{s}: the error exceeds 21 % at M = {m}" for s in ("linear", "cosine") for m in (2, 5)
    },
}


@pytest.mark.parametrize("study", STUDIES)
def test_the_papers_own_means_contradict_exactly_these_claims(study):
    assert contradicted(study) == CONTRADICTED.get(study, set())


def test_the_papers_own_intervals_refute_one_claim_on_returns():
    refuted = [
        claim.text
        for name, study in STUDIES.items()
        if name not in ("training-time", "endpoint-bias")
        for claim in study.claims
        if stats.judge(claim, study.paper_cells()).word == "does not hold"
    ]
    assert refuted == ["sac+dbc > sac+tqc on HalfCheetah-v5"]


@pytest.mark.parametrize(
    ("task", "percent"),
    [
        ("Walker2d-v5", {"sac": 26.4, "td3": 24.4, "qvpo": 9.3}),
        ("Humanoid-v5", {"sac": 13.4, "td3": 5.4, "qvpo": 7.1}),
    ],
)
def test_dbc_gains_each_actor_what_its_printed_means_say(task, percent):
    means = {k: cell.mean for (k, t), cell in STUDIES["actors"].paper_cells().items() if t == task}
    gains = {a: 100 * (means[f"{a}+dbc"] / means[f"{a}+cdq"] - 1) for a in percent}
    assert gains == pytest.approx(percent, abs=0.05)


def test_dbc_takes_more_than_twice_the_time_of_cdq_and_tqc():
    hours = {key: sum(row) for key, row in paper.HOURS.items()}
    ratios = {key: hours["sac+dbc"] / hours[key] for key in ("sac+cdq", "sac+tqc", "sac+iqn")}
    assert ratios == pytest.approx({"sac+cdq": 2.32, "sac+tqc": 2.22, "sac+iqn": 1.82}, abs=0.005)


def test_only_one_step_misses_by_more_than_21_percent():
    assert [m for m, row in paper.EULER.items() if max(row) > 21] == [1]
