"""Uncertainty of few seeds: IQM, probability of improvement, intervals and verdicts of claims."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from bridgerl.runs.records import Array
from bridgerl.studies.claims import Alike, Cell, Cells, Claim, Contrast, SpreadContrast

LEVEL = 0.95
TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
REPS = 2_000
POWER, MOST_SEEDS = 0.8, 1_000
"""Share of studies that should find what is there, and seeds that nobody runs."""
HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "does not hold", "undecided", "not run"
WORDS = (HOLDS, FAILS, UNDECIDED, NOT_RUN)
Tasks = Sequence[Array]  # Scores of every task's seeds.
Rng = np.random.Generator


class Interval(NamedTuple):
    """Where a number lies with 95 % confidence."""

    low: float
    high: float


def summarise(scores: Sequence[float]) -> Cell:
    """Mean and sample standard deviation, which one score does not have."""
    values = np.asarray(scores, dtype=float)
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Cell(float(values.mean()), std, len(values))


def iqm(tasks: Tasks) -> float:
    """Mean of the middle half of all scores of all tasks."""
    return float(stats.trim_mean(np.concatenate(tasks), 0.25))


def iqm_interval(tasks: Tasks, rng: Rng, reps: int = REPS) -> Interval | None:
    """Stratified bootstrap: seeds are drawn anew within each task; None if a task has one seed."""
    if min(len(t) for t in tasks) < 2:
        return None
    draws = [t[rng.integers(len(t), size=(reps, len(t)))] for t in tasks]
    return _quantiles(stats.trim_mean(np.concatenate(draws, axis=1), 0.25, axis=1))


def improvement(ours: Tasks, theirs: Tasks) -> float:
    """Chance that our seed beats theirs, a tie counting half, averaged over tasks."""
    return float(np.mean([_wins(x, y).mean() for x, y in zip(ours, theirs, strict=True)]))


def improvement_interval(ours: Tasks, theirs: Tasks, rng: Rng, reps: int = REPS) -> Interval | None:
    """Stratified bootstrap of `improvement`, both sides drawn anew within each task."""
    if min(len(t) for t in (*ours, *theirs)) < 2:
        return None
    shares = []
    for x, y in zip(ours, theirs, strict=True):
        drawn, rivals = _draw_counts(x, rng, reps), _draw_counts(y, rng, reps)
        wins = np.einsum("ri,ij,rj->r", drawn, _wins(x, y), rivals)
        shares.append(wins / (len(x) * len(y)))
    return _quantiles(np.mean(shares, axis=0))


def _wins(x: Array, y: Array) -> Array:
    """1 where x beats y, half where they tie, (len x, len y); its mean is U / (m n)."""
    return (x[:, None] > y) + 0.5 * (x[:, None] == y)


def _draw_counts(x: Array, rng: Rng, reps: int) -> Array:
    """How often each element is in a bootstrap sample, (reps, len x)."""
    return rng.multinomial(len(x), np.full(len(x), 1 / len(x)), size=reps).astype(float)


def _quantiles(values: Array) -> Interval:
    return Interval(*map(float, np.quantile(values, TAILS)))


def mean_interval(values: Array) -> tuple[Array, Array]:
    """Student's interval of the mean over the first axis, which needs two or more."""
    n = len(values)
    half = stats.t.ppf(TAILS[1], n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return values.mean(axis=0) - half, values.mean(axis=0) + half


def contrast_interval(contrast: Contrast | SpreadContrast, cells: Cells) -> Interval:
    """Welch's interval with Satterthwaite's degrees of freedom; NaN where it is unknown.

    The variance of a contrast is the sum of slope^2 s^2 / n over its cells. A log ratio of
    variances has the interval of the F distribution, exact for normal scores.
    """
    if isinstance(contrast, SpreadContrast):
        ends = stats.f.ppf(TAILS, contrast.wide.n - 1, contrast.narrow.n - 1)
        high, low = (contrast.value - math.log(end) for end in ends)
        return Interval(low, high)
    return _around(contrast.value, _error(contrast, cells))


class Error(NamedTuple):
    """The standard error of a contrast, and its degrees of freedom."""

    size: float
    freedom: float = math.inf


def _around(value: float, error: Error) -> Interval:
    """Student's interval around a value with this error."""
    half = float(stats.t.ppf(TAILS[1], error.freedom)) * error.size
    return Interval(value - half, value + half)


def _error(contrast: Contrast, cells: Cells, seeds: int | None = None) -> Error:
    """Welch's; with `seeds`, as if every cell had so many of the same spread."""
    parts = [(slope, cells[setting, task]) for slope, setting, task in contrast.terms]
    parts = [(slope, c._replace(n=seeds or c.n)) for slope, c in parts if not c.exact]
    variances = [slope**2 * c.std**2 / c.n for slope, c in parts]
    variance = sum(variances)
    if variance == 0 or not math.isfinite(variance):
        return Error(0.0 if variance == 0 else math.nan)
    # Shares, because squares of tiny variances would vanish.
    shares = [
        (v / variance) ** 2 / (c.n - 1) for v, (_, c) in zip(variances, parts, strict=True) if v
    ]
    return Error(math.sqrt(variance), 1 / sum(shares))


def _error_of_pairs(sums: Array, seeds: int | None = None) -> Error:
    """Student's, of a contrast seed by seed."""
    n = seeds or len(sums)
    return Error(float(sums.std(ddof=1)) / math.sqrt(n), n - 1)


def seeds_needed(value: float, error: Callable[[int], Error]) -> int | None:
    """Seeds of each setting that find a contrast of this size in four of five tries.

    `error` is that of so many seeds. None if it takes more than MOST_SEEDS, or there is nothing to
    find.
    """

    def finds(seeds: int) -> bool:
        size, freedom = error(seeds)
        return float(stats.t.ppf([TAILS[1], POWER], freedom).sum()) * size <= abs(value)

    if value == 0 or not finds(MOST_SEEDS):
        return None
    return 2 + bisect_left(range(2, MOST_SEEDS), True, key=finds)


class Verdict(NamedTuple):
    """What scores say of a claim; the contrast is positive if it is true."""

    word: str
    value: float | None = None
    interval: Interval | None = None
    reason: str = ""
    seeds: int | None = None
    """How many would probably decide what is undecided."""


Seeds = Mapping[tuple[str, str], Mapping[Any, float]]
"""Scores by setting and task, then by seed."""


def _pairs(contrast: Contrast, cells: Cells, seeds: Seeds) -> Array | None:
    """The contrast at every seed that all its settings have, if they are two or more.

    Around the means it is taken as linear, as where seeds are not paired.
    """
    parts = [(slope, seeds[setting, task]) for slope, setting, task in contrast.terms]
    common = sorted(set.intersection(*(set(scores) for _, scores in parts)), key=str)
    if len(common) < 2:
        return None
    sums = [sum(slope * scores[seed] for slope, scores in parts) for seed in common]
    at_means = sum(slope * cells[setting, task].mean for slope, setting, task in contrast.terms)
    return contrast.value - at_means + np.array(sums)


def judge(
    claim: Claim, cells: Cells, *, decides: bool = True, seeds: Seeds | None = None
) -> Verdict:
    """Holds or not if the whole interval says so, and the scores are meant to decide anything.

    With `seeds`, equal ones are compared in pairs.
    """
    missing = [f"{cell[0]} on {cell[1]}" for cell in claim.cells() if cell not in cells]
    if missing:
        return Verdict(NOT_RUN, reason=f"no finished run of {', '.join(missing)}")
    own = [cells[cell] for cell in claim.cells()]
    exact = all(c.exact for c in own)
    if not all(math.isfinite(c.mean) for c in own):
        return Verdict(UNDECIDED, reason="a score is not finite")
    contrast = claim.contrast(cells)
    value = contrast.value if math.isfinite(contrast.value) else None
    if any(c.n < 2 and not c.exact for c in own):
        return Verdict(UNDECIDED, value, reason="one seed has no interval")
    if value is None:
        return Verdict(UNDECIDED, reason="a ratio needs positive numbers")
    pairs = _pairs(contrast, cells, seeds) if seeds and isinstance(contrast, Contrast) else None
    if not exact and _all_equal(own, pairs):
        alike = "seeds" if pairs is None else "gaps"
        return Verdict(UNDECIDED, value, reason=f"equal {alike} tell nothing of their spread")
    if pairs is None:
        interval = contrast_interval(contrast, cells)
    else:
        value = float(pairs.mean())
        interval = _around(value, _error_of_pairs(pairs))
    low, high = interval
    if not decides and not exact:
        return Verdict(UNDECIDED, value, interval, "runs of this scale decide nothing")
    if isinstance(claim, Alike):
        margin = claim.margin(cells)
        apart = low > margin or high < -margin
        word = HOLDS if -margin < low and high < margin else FAILS if apart else UNDECIDED
        return Verdict(word, value, interval, f"alike within {margin:.3g}")
    if low > 0 or high < 0:
        return Verdict(HOLDS if low > 0 else FAILS, value, interval)
    needed = _needed(value, contrast, cells, pairs)
    return Verdict(UNDECIDED, value, interval, "the interval contains 0", needed)


def _all_equal(cells: Sequence[Cell], pairs: Array | None) -> bool:
    """Whether seeds, or gaps of paired seeds, show no spread at all."""
    return all(c.std == 0 for c in cells) if pairs is None else bool(np.ptp(pairs) == 0)


def _needed(
    value: float, contrast: Contrast | SpreadContrast, cells: Cells, pairs: Array | None
) -> int | None:
    """The number of seeds that would decide a contrast of means, None for one of spreads."""
    if isinstance(contrast, SpreadContrast):
        return None
    if pairs is None:
        return seeds_needed(value, partial(_error, contrast, cells))
    return seeds_needed(value, partial(_error_of_pairs, pairs))
