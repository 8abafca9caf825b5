"""How honest a critic's values are: Q(s, a) against the returns that its own policy then got."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.config import RunConfig, TrainConfig
from bridgerl.envs.task import Task
from bridgerl.errors import UserError
from bridgerl.runs.folder import RunFolder, Which
from bridgerl.training.evaluate import play_episode
from bridgerl.training.play import playing

TAIL = 0.01
"""Largest weight that rewards after a time limit may have had in a return that is compared."""
LEVELS = (0.1, 0.9)
"""Quantile levels between which a calibrated distribution has 80 % of the returns."""


class Valued(NamedTuple):
    """Steps of one episode that can be compared, float64, each (n,)."""

    q: np.ndarray
    g: np.ndarray
    low: np.ndarray
    high: np.ndarray
    cost: np.ndarray
    """What values subtract at each step for the entropy of the policy."""


def value_run(run: Path, weights: Which, episodes: int, seed: int) -> dict[str, Any]:
    """Measure the values of a run's weights, and leave the figures in its folder for reports."""
    with playing(run, weights, episodes, seed) as player:
        longest = plays_on(player.task, player.config)
        figures = None if longest else measure(player.agent, player.task, player.config)
    if figures is None:
        with playing(run, weights, episodes, seed, limited=False) as player:
            figures = measure(player.agent, player.task, player.config, longest=longest)
    with suppress(OSError):  # A run that cannot be written to is judged all the same.
        RunFolder(run).write_values(weights, player.step, {"seed": seed, **figures})
    return figures


def horizon(discount: float, tail: float = TAIL) -> int:
    """Steps after which what is left of a return weighs no more than `tail`."""
    steps = 1 if discount == 0 else math.floor(math.log(tail) / math.log(discount))
    return steps if discount**steps <= tail else steps + 1  # Whatever rounding made of logarithms.


def usual_length(task: Task, config: RunConfig) -> int:
    """The most steps that an episode of an evaluation has."""
    return min(task.time_limit or config.eval.max_steps, config.eval.max_steps)


def plays_on(task: Task, config: RunConfig) -> int | None:
    """Steps to play where too few returns would be known within the usual ones: past the limit.

    A horizon of steps counts in every episode, or all of a shorter one. So no figure jumps where
    the limit grows past the horizon: the last of the steps that count moves by one with it.
    """
    usual, needed = usual_length(task, config), horizon(config.train.discount)
    wanted = min(usual, needed) + needed - 1
    return None if usual >= wanted else wanted


def measure(
    agent: Agent, task: Task, config: RunConfig, *, key: int = 0, longest: int | None = None
) -> dict[str, Any]:
    """Play the policy that the critic values and compare.

    Episodes have their usual length, or the longest one: then only steps within the usual one
    count, as training knows no others.
    """
    keys = [(key, episode) for episode in range(config.eval.episodes)]
    steps_to_play = longest or usual_length(task, config)
    played = [_play_valued(agent, task, k, config.train, steps_to_play) for k in keys]
    steps = Valued(*(np.concatenate(parts) for parts in zip(*played, strict=True)))
    if steps.q.size == 0:
        discount = config.train.discount
        cut = f"every episode was cut off before --train.discount {discount:g} fell to {TAIL:g}"
        hint = "it takes longer episodes, or a run with a lower discount"
        raise UserError(f"no values to compare: {cut}; {hint}")
    facts = {"episodes": len(played), "entropy": bool(steps.cost.any())}
    return facts | {"past_limit": longest is not None} | compare(*steps[:4])


def soft_returns(
    reward: np.ndarray, cost: np.ndarray, discount: float, n_step: int = 1
) -> np.ndarray:
    """G_t = r_t + discount * (G_{t+1} - cost_{t+1}), nothing after the last step: (n,).

    A critic of n-step targets knows of the cost at every n-th step only, and so does its G.
    """
    n, powers = len(reward), np.array([discount**k for k in range(n_step + 1)])
    g = np.zeros(n + n_step)
    reward, cost = (np.append(x, np.zeros(n_step)) for x in (reward, cost))
    for t in reversed(range(n)):
        later = t + n_step
        g[t] = powers[:-1] @ reward[t:later] + powers[-1] * (g[later] - cost[later])
    return g[:n]


def comparable(n: int, discount: float, limit: int, *, terminated: bool) -> np.ndarray:
    """Which of n steps have a return that is known to its end, or nearly so: (n,).

    A step too close to the time limit does not count even if the episode ended before: it would be
    there because a fall followed, and make every value look too high.
    """
    known = (discount ** np.arange(n, 0, -1) <= TAIL) | terminated
    return known & (discount ** (limit - np.arange(n)) <= TAIL)


def compare(q: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    """Figures of values q, returns g and their predicted bounds, all (n,).

    What has no meaning is None: a correlation with a constant, the coverage of a point mass.
    """
    error, size = q - g, float(np.abs(g).mean())
    varies = np.ptp(q) > 0 and np.ptp(g) > 0
    q_bias, has_spread = float(error.mean()), bool((high != low).any())
    return {
        "steps": len(q),
        "q_mean": float(q.mean()),
        "return_mean": float(g.mean()),
        "q_bias": q_bias,
        "relative_q_bias": q_bias / size if size > 0 else None,
        "rmse": float(np.sqrt(np.square(error).mean())),
        "correlation": float(np.corrcoef(q, g)[0, 1]) if varies else None,
        "coverage": float(((low <= g) & (g <= high)).mean()) if has_spread else None,
    }


def describe(figures: dict[str, Any]) -> str:
    """The figures of `measure` in one line of words."""
    share, r, covered = (figures[k] for k in ("relative_q_bias", "correlation", "coverage"))
    entropy = " with entropy" if figures.get("entropy") else ""
    return (
        f"values: Q {figures['q_mean']:.1f} against discounted Monte-Carlo returns{entropy} "
        f"{figures['return_mean']:.1f}, value bias {figures['q_bias']:+.1f}"
        + ("" if share is None else f" ({100 * share:.1f} %)")
        + ("" if r is None else f", correlation {r:.2f}")
        + ("" if covered is None else f", 80 % interval covers {100 * covered:.0f} %")
        + f" ({figures['steps']:,} steps"
        + (", played on past the time limit)" if figures.get("past_limit") else ")")
    )


@torch.no_grad()
def _play_valued(
    agent: Agent, task: Task, key: tuple[int, ...], train: TrainConfig, limit: int
) -> Valued:
    """One episode of the bootstrap policy, as the critic saw it and as it went."""
    costs: list[float] = []

    def act(obs: np.ndarray) -> np.ndarray:
        boot = agent.bootstrap(torch.from_numpy(obs).to(agent.device)[None])
        costs.append(boot.entropy_cost.item())
        return boot.action[0].cpu().numpy()

    steps = play_episode(task, key, act, limit)
    assert steps  # Nothing stops it on the way.
    last = steps[-1][1]
    # Where MuJoCo gave up, what it says of an end is as void as its reward.
    ended = last.terminated and not last.diverged
    kept = comparable(len(steps), train.discount, limit, terminated=ended)
    if not kept.any():
        return Valued(*np.empty((5, 0)))
    rewards = np.array([out.reward for _, out in steps])
    g = soft_returns(rewards, np.array(costs), train.discount, train.n_step)
    obs = torch.from_numpy(np.stack([obs for obs, _ in steps])[kept]).to(agent.device)
    action = torch.from_numpy(np.stack(task.actions)[kept]).to(agent.device)
    q = agent.q(obs, action)
    bounds = agent.quantiles(obs, action, torch.tensor([LEVELS]))
    seen = torch.cat([q[:, None], bounds], 1).cpu().double().numpy()
    return Valued(seen[:, 0], g[kept], seen[:, 1], seen[:, 2], np.array(costs)[kept])
