"""What a return is worth under a measure of risk: pure functions of its inverse CDF.

A distortion g gives the level tau the weight dg(tau): the measure is the integral of Z_tau dg(tau).
Weights of a distribution sum to 1, so a certain return is worth itself and a shift shifts.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.special import ndtr, ndtri

from bridgerl.errors import UserError
from bridgerl.settings.measures import KINDS, OWN, Mass, Measure, parse

HALVINGS = 50
"""Of the interval in which a level is looked for, where no formula gives it."""
NEUTRAL = 1e-12
"""Size below which an entropic parameter is lost in rounding."""
FINE = 2**17
"""Levels that stand for an integral which has no formula."""
GRID = 1_001
"""Levels at which a user's distortion is looked at."""


def _cvar(tau: Tensor, alpha: float) -> Tensor:
    return (tau / alpha).clamp(max=1)


def _wang(tau: Tensor, shift: float) -> Tensor:
    return ndtr(ndtri(tau) + shift)


def _power(tau: Tensor, eta: float) -> Tensor:
    """With n = 1 + eta draws the chance that one of them lies below; the seeking form mirrors."""
    return 1 - (1 - tau) ** (1 + eta) if eta >= 0 else tau ** (1 - eta)


def _cpw(tau: Tensor, eta: float) -> Tensor:
    """1 - w(1 - tau) with Tversky and Kahneman's w(p) = p^eta / (p^eta + (1 - p)^eta)^(1 / eta).

    As w(p) + w(1 - p) <= 1, this form is averse on symmetric returns, and w(tau) seeking.
    """
    up, down = (1 - tau) ** eta, tau**eta
    return 1 - up / (up + down) ** (1 / eta)


MASSES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "mean": lambda tau, _: tau,
    "cvar": _cvar,
    "wang": _wang,
    "power": _power,
    "cpw": _cpw,
}
INVERSES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "mean": lambda u, _: u,
    "cvar": lambda u, alpha: alpha * u,
    "wang": lambda u, shift: ndtr(ndtri(u) - shift),
    "power": lambda u, eta: 1 - (1 - u) ** (1 / (1 + eta)) if eta >= 0 else u ** (1 / (1 - eta)),
}


def is_distortion(measure: Measure) -> bool:
    """Whether it weighs quantiles by their levels alone."""
    return measure.mass is not None or measure.name in MASSES


def mass(measure: Measure | str, tau: Tensor) -> Tensor:
    """The distortion g of levels tau, float64: what the levels below weigh together."""
    m = parse(measure)
    if m.mass is not None:
        return m.mass(tau.double())
    return MASSES[m.name](tau.double(), m.parameter or 0.0)


INSIDE = (1e-16, 1 - 2**-53)
"""Levels stay within these: at 0 and 1 a return may be infinite."""


def levels(measure: Measure | str, u: Tensor) -> Tensor:
    """Where to look at the return, for uniform u: at g^-1(u), or at u if no distortion is known.

    What `risk_at` makes of returns at these levels is the measure, whatever their number.
    """
    m = parse(measure)
    if not is_distortion(m):
        return u
    if m.mass is None and m.name in INVERSES:
        at = INVERSES[m.name](u.double(), m.parameter or 0.0)
        return at.clamp(*INSIDE).to(u)
    low, goal = torch.zeros_like(u, dtype=torch.float64), u.double()
    for k in range(1, HALVINGS + 1):
        middle = low + 0.5**k
        low = torch.where(mass(m, middle) <= goal, middle, low)
    return (low + 0.5**HALVINGS).clamp(*INSIDE).to(u)


@lru_cache(maxsize=256)
def weights(measure: Measure, k: int) -> Tensor:
    """What each of k equally likely returns in ascending order weighs, float64: (k,)."""
    steps = mass(measure, torch.linspace(0, 1, k + 1, dtype=torch.float64)).diff()
    return steps / steps.sum()


def risk_at(measure: Measure | str, z: Tensor) -> Tensor:
    """The measure of returns at `levels`: (..., k) -> (...)."""
    m = parse(measure)
    return _from_first(z, lambda x: x.mean(-1) if is_distortion(m) else _moments(m, x))


def risk_of(measure: Measure | str, z: Tensor) -> Tensor:
    """The measure of k equally likely returns in any order, exactly: (..., k) -> (...)."""
    m = parse(measure)
    if not is_distortion(m):
        return risk_at(m, z)
    return _from_first(z.sort(-1).values, lambda x: x @ weights(m, x.shape[-1]).to(x))


def risk_of_gaussian(measure: Measure | str, mean: Tensor, std: Tensor) -> Tensor:
    """The measure of N(mean, std^2) by its formula: (...), (...) -> (...)."""
    m = parse(measure)
    if m.name == "entropic":
        return mean - 0.5 * (m.parameter or 0.0) * std**2
    return mean + _worth_of_standard_normal(m) * std  # All others grow with the returns.


@lru_cache(maxsize=256)
def _worth_of_standard_normal(measure: Measure) -> float:
    """The integral of the normal quantile dg, by a formula where there is one."""
    name, parameter = measure.name, measure.parameter or 0.0
    if name in ("wang", "mean-std"):
        return -parameter
    if name == "cvar":
        edge = float(ndtri(torch.tensor(parameter, dtype=torch.float64)))
        return -math.exp(-0.5 * edge**2) / (math.sqrt(2 * math.pi) * parameter)
    u = (torch.arange(FINE, dtype=torch.float64) + 0.5) / FINE
    return float(ndtri(levels(measure, u)).mean())


def _from_first(z: Tensor, worth: Callable[[Tensor], Tensor]) -> Tensor:
    """What differences to the first return are worth, and it: certain returns keep every bit."""
    first = z[..., :1].detach()  # As a shift shifts, its own slope comes with the differences.
    return first[..., 0] + worth(z - first)


def _moments(measure: Measure, z: Tensor) -> Tensor:
    """Measures that are no distortions."""
    parameter = measure.parameter or 0.0
    if measure.name == "entropic":
        return _entropic(z, parameter)
    variance = z.var(-1, correction=0)
    positive = variance > 0  # Elsewhere the square root has no finite slope.
    std = torch.where(positive, variance.where(positive, 1.0).sqrt(), 0.0)
    return z.mean(-1) - parameter * std


def _entropic(z: Tensor, beta: float) -> Tensor:
    """-log(mean of exp(-beta z)) / beta, of differences to the extreme that rules: no overflow."""
    if abs(beta) < NEUTRAL:
        return z.mean(-1)
    extreme = (z.amin(-1) if beta > 0 else z.amax(-1)).detach()
    tilted = torch.expm1(-beta * (z - extreme[..., None])).mean(-1)
    return extreme - torch.log1p(tilted) / beta


def add_distortion(name: str, g: Mass) -> None:
    """Give a distortion of one's own a name, which then is a measure like any other.

    It takes and returns float64 tensors and ascends from 0 at level 0 to 1 at level 1; a concave
    one is averse. A run that names it goes on only where it was added again.
    """
    if re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", name) is None or name in {"mean", *KINDS}:
        rule = "at most 32 small letters, digits, - and _, and not one of ours"
        raise UserError(f"a risk measure needs a name of {rule}, got {name!r}")
    values = g(torch.linspace(0, 1, GRID, dtype=torch.float64))
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    if not (torch.allclose(values[[0, -1]], ends) and (values.diff() >= 0).all()):
        raise UserError(f"the distortion {name} must ascend from 0 at level 0 to 1 at level 1")
    OWN[name] = g
