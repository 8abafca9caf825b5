"""How far learned return distributions are from returns that were drawn many times per state.

Learned are quantiles at midpoint levels, (p, k) ascending; drawn are n returns a state, (p, n).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridgerl.truth.settings import INTERVALS

Array = NDArray[np.float64]
ROUNDING = 1e-6
"""Deviation, over the largest return, up to which returns are called certain."""
LEVELS = 256
"""Quantiles that are read of every state."""
BINS = 20
"""Bins of the histogram of probability integral transforms."""


class ErrorParts(NamedTuple):
    """Parts of the squared 2-Wasserstein distance, which they sum up to: (p,) each.

    Location is the means' distance, scale that of the deviations, shape what is left: with r the
    correlation of both quantile functions, 2 s s' (1 - r).
    """

    location: Array
    scale: Array
    shape: Array


def split_error(learned: Array, drawn: Array) -> ErrorParts:
    """W2^2 between learned quantiles and drawn returns, in parts."""
    truth = quantiles_of(drawn, learned.shape[1])
    (m, s), (m_true, s_true) = ((q.mean(1), q.std(1)) for q in (learned, truth))
    together = ((learned - m[:, None]) * (truth - m_true[:, None])).mean(1)
    return ErrorParts(
        (m - m_true) ** 2, (s - s_true) ** 2, 2 * np.maximum(s * s_true - together, 0)
    )


def quantiles_of(drawn: Array, k: int) -> Array:
    """Quantiles of drawn returns at k midpoint levels: (p, k)."""
    at = ((np.arange(k) + 0.5) / k * drawn.shape[1]).astype(int)
    return np.sort(drawn, 1)[:, at]


def wasserstein(learned: Array, drawn: Array) -> Array:
    """W1 of every state: (p,)."""
    return np.abs(learned - quantiles_of(drawn, learned.shape[1])).mean(1)


def redraws(drawn: Array, seed: int = 0, times: int = 20) -> list[Array]:
    """Bootstrap samples of the returns, ascending: what they miss, a perfect critic would miss."""
    rng, shape = np.random.default_rng(seed), drawn.shape
    picks = (rng.integers(shape[1], size=shape) for _ in range(times))
    return [np.sort(np.take_along_axis(drawn, pick, 1), 1) for pick in picks]


def crps_excess(learned: Array, drawn: Array) -> Array:
    """Integral of (F - F_true)^2, free of bias from few draws: (p,).

    E|X - Y| - E|X - X'| / 2 - E|Y - Y'| / 2, without pairs of a draw and itself.
    """
    n = drawn.shape[1]
    across = np.abs(learned[:, :, None] - drawn[:, None]).mean((1, 2))
    return across - mean_distance(learned) / 2 - mean_distance(drawn) / 2 * n / (n - 1)


def mean_distance(x: Array) -> Array:
    """E|X - X'| over all pairs of a row, by the order of its values: (p,)."""
    n = x.shape[1]
    weights = (2 * np.arange(1, n + 1) - n - 1) * 2 / n**2
    return np.sort(x, 1) @ weights


def transforms(learned: Array, drawn: Array) -> Array:
    """Probability integral transforms F(G), uniform if the critic is right: (p, n)."""
    below = (learned[:, :, None] < drawn[:, None]).mean(1)
    return below + 0.5 * (learned[:, :, None] == drawn[:, None]).mean(1)


def coverage(pit: Array) -> dict[float, float]:
    """The share of returns within each central interval."""
    return {share: float((np.abs(pit - 0.5) <= share / 2).mean()) for share in INTERVALS}


def histogram(pit: Array) -> list[float]:
    """Shares of transforms in equal bins, 1 / BINS each if the critic is right."""
    counts, _ = np.histogram(pit, BINS, (0, 1))
    return (counts / pit.size).tolist()


def score(learned: Array, drawn: Array) -> dict[str, Any]:
    """All figures, means over states; distances in units of the return's deviation.

    The deviation is the root mean square over states, so that no state without one rules; where it
    is 0, distances are in units of the return. From the parts of the error goes what few draws
    alone would make of them.
    """
    learned = np.sort(learned, 1)
    pit, again = transforms(learned, drawn), redraws(drawn)
    deviation = float(np.sqrt(drawn.var(1, ddof=1).mean()))
    certain = deviation <= ROUNDING * float(np.abs(drawn).max())
    unit = 1.0 if certain else deviation
    parts = np.mean(split_error(learned, drawn), 1)
    chance = np.mean([np.mean(split_error(x, drawn), 1) for x in again], 0)
    location, scale, shape = np.sqrt(np.maximum(parts - chance, 0)) / unit
    return {
        "states": len(drawn),
        "returns": drawn.shape[1],
        "value": float(learned.mean()),
        "return": float(drawn.mean()),
        "certain": certain,
        "deviation": deviation,
        "width": float(np.sqrt(learned.var(1).mean())) / unit,
        "bias": float((learned.mean(1) - drawn.mean(1)).mean()) / unit,
        "w1": float(wasserstein(learned, drawn).mean()) / unit,
        "w1_chance": float(np.mean([wasserstein(x, drawn).mean() for x in again])) / unit,
        "crps_excess": float(crps_excess(learned, drawn).mean()) / unit,
        "location": float(location),
        "scale": float(scale),
        "shape": float(shape),
        "coverage": {f"{share:g}": value for share, value in coverage(pit).items()},
        "pit": histogram(pit),
    }


def conformal_shifts(learned: Array, drawn: Array) -> Array:
    """What to add to each learned quantile so that it covers its share of returns: (k,).

    Split conformal prediction level by level: the ceil((N + 1) tau)-th of the N sorted residuals.
    """
    k = learned.shape[1]
    residuals = drawn[:, None] - learned[:, :, None]
    residuals = np.sort(residuals.swapaxes(0, 1).reshape(k, -1))
    count = residuals.shape[1]
    rank = np.ceil((count + 1) * (np.arange(k) + 0.5) / k).astype(int).clip(1, count) - 1
    return residuals[np.arange(k), rank]
