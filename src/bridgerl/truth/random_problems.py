"""Problems drawn from a seed, so that nobody can tune to them: small Markov reward processes.

A reward is one of LEVELS equally likely values, so that drawing it and knowing its distribution are
one table. The truth is the fixed point of the distributional Bellman equation on a fine grid.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray

from bridgerl.streams import derive_seed
from bridgerl.truth.problems import Array, Problem, Query, Transition

LEVELS = 2**14
"""Equally likely values of a reward."""
CELLS = 2**16
"""Points of the grid that returns are computed on."""
SETTLED = 1e-5
"""Change, over the deviation, below which a backup has found the fixed point."""
COARSEST = 2e-3
"""Step of the grid, over the return's deviation, above which a problem is drawn again."""
SIDES = (-0.5, 0.5)
"""Actions that are asked about: rewards depend on the sign of an action alone."""
KINDS = ("bandit", "chain", "loop", "graph")


class Process(NamedTuple):
    """A Markov reward process of s states under the uniform policy."""

    rewards: Array
    """Equally likely rewards by state and sign of the action: (s, 2, LEVELS)."""
    leads: Array
    """Probabilities of the next states; what they lack to 1 ends the episode: (s, s)."""
    discount: float


def draw_process(seed: int) -> Process:
    """A bandit, chain, loop or graph with random rewards; state 0's return deviates by 40 to 120.

    Returns that are certain, or all but certain, are drawn again: their truth would be the grid's.
    """
    # The legacy generator: its draws are the same in every version of NumPy.
    rng = RandomState(derive_seed(seed, "random-problem") % 2**32)
    process = _draw_unscaled(rng)
    while Grid.over(process).step > COARSEST * (spread := moments(process)[1][0]):
        process = _draw_unscaled(rng)
    return process._replace(rewards=process.rewards * (rng.uniform(40, 120) / spread))


def _draw_unscaled(rng: RandomState) -> Process:
    kind = KINDS[rng.randint(len(KINDS))]
    n = 1 if kind in ("bandit", "loop") else rng.randint(2, 6)
    discount = rng.uniform(0.4, 0.7) if kind == "loop" else rng.uniform(0.7, 0.95)
    leads = np.zeros((n, n))
    if kind == "loop":
        leads[0, 0] = 1
    elif kind == "chain":
        leads[np.arange(n - 1), np.arange(1, n)] = 1
    elif kind == "graph":
        leads = rng.dirichlet(np.full(n, 0.7), n) * rng.uniform(0.3, 0.9, (n, 1))
    rewards = np.stack([_draw_rewards(rng, last=s == n - 1) for s in range(n)])
    return Process(rewards, leads, discount)


def _draw_rewards(rng: RandomState, *, last: bool) -> Array:
    """Rewards of one state for both signs of the action, often none at all: (2, LEVELS)."""
    if not last and rng.uniform() < 0.4:
        return np.zeros((2, LEVELS))
    one, other = _draw_mixture(rng), _draw_mixture(rng)
    return np.stack([one, other if rng.uniform() < 0.3 else one])


def _draw_mixture(rng: RandomState) -> Array:
    """Equally likely values of an asymmetric mixture of up to four shapes, ascending: (LEVELS,)."""
    parts, n = [], rng.randint(1, 5)
    for count in rng.multinomial(LEVELS, rng.dirichlet(np.full(n, 2.0))):
        place, width = rng.uniform(-1.5, 1.5), rng.uniform(0.1, 0.8) * rng.choice([-1, 1])
        shape = SHAPES[rng.randint(len(SHAPES))]
        parts.append(place + width * shape((np.arange(count) + 0.5) / max(count, 1)))
    return np.sort(np.concatenate(parts))


def _normal(tau: Array) -> Array:
    return torch.special.ndtri(torch.tensor(tau)).numpy()


# Inverse CDFs of order 1.
SHAPES: tuple[Callable[[Array], Array], ...] = (
    np.zeros_like,  # A point mass: the inverse CDF jumps beside it.
    _normal,
    lambda tau: (2 * tau - 1) ** 3,  # Density |x|^(-2/3): a cusp.
    lambda tau: 2 * tau - 1,
    lambda tau: -np.log1p(-tau) - 1,  # Exponential: an edge on one side, a tail on the other.
    lambda tau: np.exp(0.75 * _normal(tau)) - 1.3,  # A heavy tail.
    lambda tau: (1 - tau) ** -0.25 - 1.3,  # A heavier one.
)


def moments(process: Process) -> tuple[Array, Array]:
    """Mean and deviation of every state's return, by linear equations: (s,) each."""
    rewards, leads, discount = process
    r, r2, eye = rewards.mean((1, 2)), (rewards**2).mean((1, 2)), np.eye(len(rewards))
    mean = np.linalg.solve(eye - discount * leads, r)
    square = np.linalg.solve(eye - discount**2 * leads, r2 + 2 * discount * r * (leads @ mean))
    return mean, np.sqrt(np.maximum(square - mean**2, 0))


class Grid(NamedTuple):
    """Points step * (first + i), i = 0 .. CELLS - 1, that carry probability."""

    step: float
    first: int

    @classmethod
    def over(cls, process: Process) -> "Grid":
        """Wide enough for all but one return in millions."""
        rewards, _, discount = process
        mean, std = moments(process)
        low, high = (mean - 10 * std).min(initial=0), (mean + 10 * std).max(initial=0)
        low, high = (
            min(low, rewards.min() + discount * low),
            max(high, rewards.max() + discount * high),
        )
        step = float(high - low) / (CELLS - 2)
        return cls(step, int(np.floor(low / step)))

    @property
    def points(self) -> Array:
        return self.step * np.arange(self.first, self.first + CELLS, dtype=np.float64)

    def deposit(self, values: Array, mass: Array | float = 1.0) -> Array:
        """Mass at any values, shared by the two nearest points so that means are kept: (CELLS,)."""
        at = np.clip(values / self.step - self.first, 0, CELLS - 1.001)
        low = at.astype(np.int64)
        share = (at - low) * mass
        below, above = np.bincount(low, mass - share, CELLS), np.bincount(low + 1, share, CELLS)
        return (below + above).astype(np.float64)

    def add(self, reward: Array, after: Array) -> Array:
        """The distribution of a sum, from the spectrum of one part and the mass of the other."""
        total = np.fft.irfft(reward * np.fft.rfft(after, 2 * CELLS), 2 * CELLS).clip(min=0)
        low, here, high = np.split(total, (-self.first, CELLS - self.first))
        here[0] += low.sum()  # What lies outside is gathered at the ends.
        here[-1] += high.sum()
        return here / here.sum()


def solve(process: Process) -> tuple[Grid, Array]:
    """The return's distribution in state 0 for both signs of the action: (2, CELLS)."""
    rewards, leads, discount = process
    grid, (mean, std) = Grid.over(process), moments(process)
    shrunk, ended = discount * grid.points, 1 - leads.sum(1)
    origin = grid.deposit(np.zeros(1))
    spectra = np.stack(
        [[np.fft.rfft(grid.deposit(r, 1 / LEVELS), 2 * CELLS) for r in sides] for sides in rewards]
    )

    def back_up(z: Array, state: int, reward: Array) -> Array:
        return grid.add(reward, grid.deposit(shrunk, leads[state] @ z) + ended[state] * origin)

    z, change = np.stack([grid.deposit(m[None]) for m in mean]), np.inf
    while change > SETTLED * std[0]:
        new = np.stack([back_up(z, s, spectrum.mean(0)) for s, spectrum in enumerate(spectra)])
        change = grid.step * np.abs(np.cumsum(new - z, 1)).sum(1).max()  # W1.
        z = new
    return grid, np.stack([back_up(z, 0, spectrum) for spectrum in spectra[0]])


def inverse_cdf(grid: Grid, mass: Array) -> Callable[[Array], Array]:
    """Quantiles of mass on the points, spread over a cell around each."""
    kept = mass > 1e-12
    points, p = grid.points[kept], mass[kept] / mass[kept].sum()
    above = np.cumsum(p)

    def quantile(tau: Array) -> Array:
        i = np.minimum(np.searchsorted(above, tau), len(p) - 1)
        return points[i] + grid.step * ((tau - above[i]) / p[i] + 0.5)

    return quantile


@cache
def random_problem(seed: int) -> Problem:
    """`random:SEED`, asked about in state 0; for both signs of the action where they differ."""
    process = draw_process(seed)
    rewards, leads, discount = process
    grid, mass = solve(process)
    ahead = np.cumsum(leads, 1)

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        side = (action > 0).astype(np.int64)
        reward = rewards[state, side, rng.integers(LEVELS, size=len(state))]
        then = (rng.random(len(state))[:, None] >= ahead[state]).sum(1)
        ended = then == len(leads)
        return Transition(reward, np.where(ended, state, then), ended)

    differ = not np.array_equal(rewards[0, 0], rewards[0, 1])
    queries = [Query(0, a, inverse_cdf(grid, p)) for a, p in zip(SIDES, mass, strict=True)]
    catches = "what was fitted to the other problems"
    asked = tuple(queries[: 1 + differ])
    return Problem(f"random:{seed}", catches, step, asked, discount, len(leads))
