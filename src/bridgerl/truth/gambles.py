"""Problems whose best action under a measure of risk is known, and agents that learn it.

One step: action a pays N(10 a, (10 a^2)^2), so that more is wilder. Two steps: a coin first pays
`STAKE` or takes it, then the same choice comes. A policy that minds the return to go, as
agents do, chooses as before; one that minds the whole return (static) knows after a loss that the
bad half of all cases is this one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bridgerl.agent import Agent, build_agent
from bridgerl.ops.risk import risk_of
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams, derive_seed
from bridgerl.training.process import tuned_process
from bridgerl.truth.problems import Array, Problem, Query, Transition
from bridgerl.truth.settings import GambleCell

STAKE = 20.0
ALONE = 0.4
"""Share of the updates in which critics learn what uniform actions return."""
PLAYS = 16
"""Games whose mean action is what was learnt: some policies play at random."""
WORTH_AT = tuple(i / 20 for i in range(21))
"""Actions whose learned worth is told."""
START, LOST, WON = range(3)


def pay(action: Array, noise: Array) -> Array:
    """What an action pays, given standard normal noise."""
    return 10 * action + 10 * action**2 * noise


def one_step() -> Problem:
    """The gamble of one step, in which the choice is all."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        reward = pay(action, rng.standard_normal(len(action)))
        return Transition(reward, state, np.ones(len(state), bool))

    queries = tuple(Query(0, a, _quantile(a)) for a in (0.3, 0.9))
    return Problem("gamble", "risk that depends on the action", step, queries)


def two_steps() -> Problem:
    """A coin, whatever the action, and then the choice."""

    def step(state: NDArray[np.int64], action: Array, rng: np.random.Generator) -> Transition:
        start, won = state == START, rng.random(len(state)) < 0.5
        coin, paid = np.where(won, STAKE, -STAKE), pay(action, rng.standard_normal(len(action)))
        after = np.where(start, np.where(won, WON, LOST), state)
        return Transition(np.where(start, coin, paid), after, ~start)

    return Problem("two-step gamble", "static risk", step, (), discount=0.999, n_states=3)


def _quantile(action: float) -> Callable[[Array], Array]:
    def quantile(tau: Array) -> Array:
        return pay(np.full(tau.shape, action), torch.special.ndtri(torch.tensor(tau)).numpy())

    return quantile


TRIED = np.linspace(0, 1, 1_001)
"""Actions among which the best is looked for."""


def worths(measure: Measure | str) -> Array:
    """What every action of TRIED is worth under a measure of what it pays: (n,)."""
    return risk_of(measure, torch.from_numpy(_payoffs(TRIED))).numpy()


def worths_after_a_loss(measure: Measure | str) -> Array:
    """What actions after a loss are worth, by a measure of the whole return of both steps: (n,).

    After a win the policy takes the choice alone; what it does there matters little.
    """
    lost, won = (_payoffs(a) for a in (TRIED, np.full(1, best_action(measure))))
    both = np.concatenate([lost - STAKE, np.broadcast_to(won + STAKE, lost.shape)], 1)
    return risk_of(measure, torch.from_numpy(both)).numpy()


def best_action(measure: Measure | str) -> float:
    """The optimum of the choice, alone or by the return to go of two steps."""
    return float(TRIED[worths(measure).argmax()])


def best_action_after_a_loss(measure: Measure | str) -> float:
    """The action after a loss that is best for the whole return of both steps."""
    return float(TRIED[worths_after_a_loss(measure).argmax()])


def _payoffs(actions: Array, k: int = 2_000) -> Array:
    """Equally likely payoffs of every action: (n, k)."""
    noise = torch.special.ndtri((torch.arange(k, dtype=torch.float64) + 0.5) / k).numpy()
    return pay(actions[:, None], noise)


def run_gamble(cell: GambleCell) -> dict[str, Any]:
    """The action that a pair learns, the best one, and what its critic says that actions are worth.

    `worth` is at WORTH_AT, as the policy's measure sees it.
    """
    problem, best = one_step(), best_action(cell.measure)
    agent = learn(problem, cell)
    tried = torch.tensor(WORTH_AT)[:, None]
    obs = problem.observe(range(problem.n_states)).expand(len(tried), -1)
    with tuned_process(1):
        (action,) = actions_of(agent, problem)
        worth = agent.risk(obs, tried, cell.measure).tolist()
    return {"action": action, "best": best, "miss": abs(action - best), "worth": worth}


def learn(problem: Problem, cell: GambleCell) -> Agent:
    """An agent that learns a problem from uniform actions of others."""
    with tuned_process(1):
        agent = build_agent(cell.policy, cell.config, problem.spec, Streams(cell.seed))
        rng = np.random.default_rng(derive_seed(cell.seed, problem.name))
        # First the critic alone: what knows nothing yet would drive actions to their bounds, where
        # policies that end in tanh hardly move again.
        alone = int(ALONE * cell.updates)
        for _ in range(alone):
            agent.critic.update(*problem.draw(cell.batch, rng))
            agent.critic.update_target()
        rates = [optimizer.lr for optimizer in agent.optimizers]
        for left in np.linspace(1, 0, cell.updates - alone, endpoint=False):
            for optimizer, rate in zip(agent.optimizers, rates, strict=True):
                optimizer.lr = rate * left  # Or the last batches would decide.
            agent.update(problem.draw(cell.batch, rng)[0])
        return agent


def actions_of(agent: Agent, problem: Problem) -> list[float]:
    """The action of every state, the mean of PLAYS."""
    obs, generator = problem.observe(range(problem.n_states)), torch.Generator().manual_seed(0)
    plays = [agent.actions(obs, generator=generator) for _ in range(PLAYS)]
    return torch.stack(plays).mean((0, 2)).tolist()
