"""The spread of episode returns: a measure of risk and quantiles, with intervals of 95 %."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bridgerl.ops.risk import risk_of
from bridgerl.settings.measures import Measure, parse

LEVELS = (0.05, 0.5, 0.95)
ENDS = (0.025, 0.975)
REPS = 2_000


def describe_returns(
    returns: Sequence[float], measure: Measure | str, seed: int = 0
) -> dict[str, Any]:
    """What episodes are worth under a measure, and their quantiles; intervals may be open."""
    values = np.asarray(returns, np.float64)
    return {
        "measure": str(parse(measure)),
        "value": float(risk_of(measure, torch.from_numpy(values))),
        "interval": bootstrap(values, measure, seed),
        "quantiles": {f"{level:g}": quantile(values, level) for level in LEVELS},
    }


def bootstrap(values: NDArray[np.float64], measure: Measure | str, seed: int) -> list[float] | None:
    """The middle 95 % of the measure over episodes drawn anew; one episode has none."""
    if len(values) < 2:
        return None
    picks = np.random.default_rng(seed).integers(len(values), size=(REPS, len(values)))
    drawn = risk_of(measure, torch.from_numpy(values[picks]))
    return np.quantile(drawn.numpy(), ENDS).tolist()


def quantile(values: NDArray[np.float64], level: float) -> dict[str, Any]:
    """A sample quantile between two order statistics, whatever the returns' distribution.

    So many returns lie below a quantile as a binomial number says; an end that would take more
    episodes is None.
    """
    from scipy import stats  # Half a second to import.

    n, ordered = len(values), np.sort(values)
    low, high = (int(stats.binom.ppf(end, n, level)) for end in ENDS)
    ends = [float(ordered[low - 1]) if low > 0 else None]
    ends += [float(ordered[high]) if high < n else None]
    at = min(int(np.ceil(level * n)), n) - 1
    return {"value": float(ordered[at]), "interval": ends}


def say(tails: dict[str, Any], episodes: int) -> str:
    """The figures in three lines."""
    lines = [f"{tails['measure']}: {tails['value']:.1f}{_interval(tails['interval'])}"]
    for level, found in tails["quantiles"].items():
        name = f"{float(level):.0%} quantile"
        lines.append(f"{name}: {found['value']:.1f}{_interval(found['interval'])}")
    return "\n".join(lines) + f"\nintervals of 95 % from {episodes} episodes"


def _interval(ends: Sequence[float | None] | None) -> str:
    if ends is None:
        return ""
    low, high = ("open" if end is None else f"{end:.1f}" for end in ends)
    return f" [{low}, {high}]"
