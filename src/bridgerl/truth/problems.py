"""Problems whose return distribution is known in closed form, scaled like MuJoCo: of order 100.

The policy is fixed, uniform over actions in [-1, 1]; a critic has to learn what it returns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bridgerl.truth import settings
from bridgerl.types import Batch, Bootstrap, EnvSpec

Array = NDArray[np.float64]


class Transition(NamedTuple):
    """What follows an action, for a whole batch."""

    reward: Array
    next_state: NDArray[np.int64]
    terminated: NDArray[np.bool_]


class Query(NamedTuple):
    """A state and an action where the return's inverse CDF is known."""

    state: int
    action: float
    quantile: Callable[[Array], Array]


Step = Callable[[NDArray[np.int64], Array, np.random.Generator], Transition]


@dataclass(frozen=True)
class Problem:
    """A Markov reward process over a few states."""

    name: str
    catches: str
    """What a critic that fails here gets wrong."""
    step: Step
    queries: tuple[Query, ...]
    discount: float = 0.99
    n_states: int = 1

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(f"league/{self.name}", self.n_states, 1)

    def observe(self, state: Any) -> torch.Tensor:
        """One-hot observations: (b,) -> (b, n_states)."""
        return torch.eye(self.n_states)[torch.as_tensor(state)]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Batch, Bootstrap]:
        """Fresh transitions from uniform states and actions, and the policy's next actions."""
        state, action = rng.integers(self.n_states, size=n), rng.uniform(-1, 1, n)
        out = self.step(state, action, rng)
        columns = (out.reward, self.discount * ~out.terminated, action, rng.uniform(-1, 1, n))
        reward, discount, action, then = torch.tensor(np.stack(columns), dtype=torch.float32)
        obs, next_obs = self.observe(state), self.observe(out.next_state)
        batch = Batch(obs, action[:, None], reward, discount, next_obs)
        return batch, Bootstrap(then[:, None], torch.zeros(n))


def _bandit(reward: Callable[[Array, np.random.Generator], Array]) -> Step:
    """One state, one step: the return is the reward."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        return Transition(reward(action, rng), state, np.ones(len(state), bool))

    return step


def _coin(n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    return rng.random(n) < 0.5


def two_values(low: float, high: float) -> Callable[[Array], Array]:
    """The inverse CDF of a fair coin with two values."""
    return lambda tau: np.where(tau <= 0.5, low, high)


MODES, WEIGHTS, MODE_STD = np.array([-100.0, 0.0, 100.0]), np.array([0.3, 0.4, 0.3]), 10.0


def mixture_quantile(tau: Array) -> Array:
    """The inverse CDF of the three-mode mixture, by interpolation of its CDF."""
    grid = np.linspace(MODES[0] - 8 * MODE_STD, MODES[-1] + 8 * MODE_STD, 20_001)
    cdf = torch.special.ndtr(torch.tensor((grid[:, None] - MODES) / MODE_STD)).numpy() @ WEIGHTS
    return np.interp(tau, cdf, grid)


def draw_mixture(n: int, rng: np.random.Generator) -> Array:
    """Draws from the three-mode mixture."""
    return rng.choice(MODES, n, p=WEIGHTS) + MODE_STD * rng.standard_normal(n)


def _two_point(name: str) -> Problem:
    step = _bandit(lambda a, rng: np.where(_coin(len(a), rng), 100.0, -100.0))
    return Problem(name, "bimodality", step, (Query(0, 0.0, two_values(-100, 100)),))


def bernoulli_loop(name: str, paid: float = 100.0) -> Problem:
    """Z = r + Z/2 with r in {0, paid}: the binary digits of a uniform number."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        reward = np.where(_coin(len(state), rng), paid, 0.0)
        return Transition(reward, state, np.zeros(len(state), bool))

    queries = (Query(0, 0.0, lambda tau: 2 * abs(paid) * tau + min(2 * paid, 0)),)
    return Problem(name, "bootstrapping that smears", step, queries, discount=0.5)


def _mixture_chain(name: str, length: int = 6, discount: float = 0.9) -> Problem:
    """Z_0 = discount^(length - 1) X: every state but the last hands the distribution on."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        last = state == length - 1
        reward = np.where(last, draw_mixture(len(state), rng), 0.0)
        return Transition(reward, np.minimum(state + 1, length - 1), last)

    shrink = discount ** (length - 1)
    queries = (Query(0, 0.0, lambda tau: shrink * mixture_quantile(tau)),)
    return Problem(name, "degradation", step, queries, discount, length)


def _heavy_tail(name: str, scale: float = 100.0, sigma: float = 0.75) -> Problem:
    step = _bandit(lambda a, rng: scale * np.expm1(sigma * rng.standard_normal(len(a))))

    def quantile(tau: Array) -> Array:
        return scale * np.expm1(sigma * torch.special.ndtri(torch.tensor(tau)).numpy())

    return Problem(name, "tails", step, (Query(0, 0.0, quantile),))


def _risky_choice(name: str) -> Problem:
    """Equal means; a positive action plays for ten times the stake."""

    def reward(action: Array, rng: np.random.Generator) -> Array:
        stake = np.where(action > 0, 100.0, 10.0)
        return 50 + np.where(_coin(len(action), rng), stake, -stake)

    queries = (Query(0, -0.5, two_values(40, 60)), Query(0, 0.5, two_values(-50, 150)))
    return Problem(name, "conditioning on the action", _bandit(reward), queries)


def _stochastic_transition(name: str) -> Problem:
    """State 0 leads to state 1 or 2, which pay -100 and +100 for sure."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        start = state == 0
        reward = np.where(start, 0.0, np.where(state == 1, -100.0, 100.0))
        return Transition(reward, np.where(start, 1 + _coin(len(state), rng), state), ~start)

    query = Query(0, 0.0, two_values(-99, 99))
    return Problem(name, "mixing next states", step, (query,), n_states=3)


def sure_loop(discount: float) -> Problem:
    """Reward 1 for ever: the return is 1 / (1 - discount)."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        return Transition(np.ones(len(state)), state, np.zeros(len(state), bool))

    queries = (Query(0, 0.0, lambda tau: np.full(tau.shape, 1 / (1 - discount))),)
    return Problem("sure-loop", "a wrong discount", step, queries, discount=discount)


_MAKERS = (_two_point, bernoulli_loop, _mixture_chain, _heavy_tail)
_MAKERS += (_risky_choice, _stochastic_transition)
PROBLEMS = {name: make(name) for name, make in zip(settings.PROBLEMS, _MAKERS, strict=True)}
