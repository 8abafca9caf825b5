"""Returns by trying again: a state is rebuilt many times, and the policy goes on with fresh noise.

So the whole distribution of the return of one state and action is known, on any task that repeats
itself after its seed and its actions.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.config import RunConfig
from bridgerl.errors import EnvFault, UserError
from bridgerl.streams import derive_seed
from bridgerl.training.envs import Task
from bridgerl.truth.values import TAIL


class Start(NamedTuple):
    """A state that the policy reached: the key of its episode, and the actions on the way."""

    key: tuple[int, ...]
    actions: np.ndarray
    """(t, a)."""
    obs: np.ndarray
    action: np.ndarray
    """What the policy did there."""


class Forks(NamedTuple):
    """States and actions, (p, o) and (p, a) in float32, and their returns, (p, n)."""

    obs: np.ndarray
    action: np.ndarray
    returns: np.ndarray


def horizon(discount: float) -> int:
    """Steps after which what is left of a return weighs no more than TAIL."""
    return 1 if discount == 0 else math.ceil(math.log(TAIL) / math.log(discount))


def fork_run(
    agent: Agent,
    config: RunConfig,
    shape: tuple[int, int],
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> Forks:
    """Returns of the policy that the critic values, for (states, returns of each)."""
    n_states, n_returns = shape
    with ExitStack() as stack:
        tasks = [
            stack.enter_context(closing(Task(config.env, seed, "fork", limited=False)))
            for _ in range(n_returns)
        ]
        rng = np.random.default_rng(derive_seed(seed, "fork-times"))
        # A state of its own in every episode, at any time that training had.
        longest = tasks[0].time_limit or config.eval.max_steps
        starts = []
        for episode in range(n_states):
            starts.append(reach(agent, tasks[0], (episode,), int(rng.integers(longest)), rng))
            tick()
        returns = []
        for start in starts:
            returns.append(returns_from(agent, tasks, start, config))
            tick()
    obs, action = (np.stack([getattr(s, name) for s in starts]) for name in ("obs", "action"))
    return Forks(obs, action, np.stack(returns))


def reach(
    agent: Agent, task: Task, key: tuple[int, ...], t: int, rng: np.random.Generator
) -> Start:
    """The state at time t of an episode, or at a random time of one that ends before."""
    obs, seen, taken = task.reset(*key), [], []
    while True:
        action, _ = _policy(agent, obs[None])
        seen.append(obs)
        taken.append(action[0])
        if len(taken) > t:
            break
        out = task.step(action[0])
        if out.terminated or out.truncated:
            t = int(rng.integers(len(taken)))
            break
        obs = out.obs
    return Start(key, np.stack(taken)[:t], seen[t], taken[t])


def returns_from(
    agent: Agent, tasks: Sequence[Task], start: Start, config: RunConfig
) -> np.ndarray:
    """Discounted returns from one start, less the policy's entropy costs: (n,)."""
    for number, task in enumerate(tasks):
        task.replay(start.key, start.actions)
        if not np.array_equal(task.obs, start.obs):
            hint = "see bridgerl check-env"
            what = "does not come to the same state after the same seed and actions"
            raise UserError(f"{config.env} {what}; {hint}")
        task.reseed(*start.key, number)
    discount, every = config.train.discount, config.train.n_step
    total, live, steps = np.zeros(len(tasks)), list(range(len(tasks))), horizon(discount)
    action = np.broadcast_to(start.action, (len(tasks), *start.action.shape))
    for t in range(steps):
        if t > 0:
            obs = np.stack([tasks[i].obs for i in live])
            action, cost = _policy(agent, obs)
            if t % every == 0:  # All that targets of n steps know of it.
                total[live] -= discount**t * cost
        outs = [tasks[i].step(a) for i, a in zip(live, action, strict=True)]
        total[live] += discount**t * np.array([out.reward for out in outs])
        if any(out.truncated for out in outs) and t < steps - 1:
            raise EnvFault(f"{config.env} cut an episode off that should have gone on")
        live = [i for i, out in zip(live, outs, strict=True) if not out.terminated]
        if not live:
            break
    return total


@torch.no_grad()
def _policy(agent: Agent, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Actions (n, a) that the critic values, and their entropy costs (n,)."""
    boot = agent.bootstrap(torch.from_numpy(obs).to(agent.device))
    cost = boot.entropy_cost.expand(len(obs)).cpu().double().numpy()
    return boot.action.cpu().numpy(), cost
