"""Returns by trying again: a state is rebuilt many times, and the policy goes on with fresh noise.

So the whole distribution of the return of one state and action is known, on any task that repeats
itself after its seed and its actions.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.errors import BridgeError, EnvFault, UserError
from bridgerl.streams import derive_seed
from bridgerl.truth.settings import FORK_TAIL
from bridgerl.truth.values import horizon

Policy = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Observations (n, o) -> actions (n, a) and what each costs beside its reward, (n,)."""


class Start(NamedTuple):
    """A state that the policy reached: the key of its episode, and the actions on the way."""

    key: tuple[int, ...]
    actions: np.ndarray
    """The actions from the start of the episode: (t, a)."""
    obs: np.ndarray
    action: np.ndarray
    """The action that the policy took there."""


class Forks(NamedTuple):
    """States and actions, (p, o) and (p, a) in float32, and their returns, (p, n)."""

    obs: np.ndarray
    action: np.ndarray
    returns: np.ndarray


class Plan(NamedTuple):
    """How many returns of what are wanted."""

    env: str | Recipe
    states: int
    returns: int
    """Returns that are played from each state."""
    discount: float
    seed: int
    cost_every: int = 1
    """Steps between those whose costs count, the n of n-step targets."""
    longest: int = 10_000
    """Steps of an episode without a time limit, of which states are taken."""
    tail: float = FORK_TAIL
    """Largest weight of rewards that are not played."""


def fork(policy: Policy, plan: Plan, tick: Callable[[], None] = lambda: None) -> Forks:
    """Reach states by the policy, and play on from each many times; `tick` comes twice a state."""
    with ExitStack() as stack:
        tasks = [
            stack.enter_context(closing(Task(plan.env, plan.seed, "fork", limited=False)))
            for _ in range(plan.returns)
        ]
        rng = np.random.default_rng(derive_seed(plan.seed, "fork-times"))
        # Every state from an episode of its own, at any time that training had.
        longest, starts, returns = tasks[0].time_limit or plan.longest, [], []
        for episode in range(plan.states):
            starts.append(reach(policy, tasks[0], (episode,), int(rng.integers(longest)), rng))
            tick()
        for start in starts:
            returns.append(returns_from(policy, tasks, start, plan))
            tick()
    obs, action = (np.stack([getattr(s, name) for s in starts]) for name in ("obs", "action"))
    return Forks(obs, action, np.stack(returns))


def reach(
    policy: Policy, task: Task, key: tuple[int, ...], t: int, rng: np.random.Generator
) -> Start:
    """The state at time t of an episode, or at a random time of one that ends before."""
    obs, seen, taken = task.reset(*key), [], []
    while True:
        action, _ = policy(obs[None])
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


def returns_from(policy: Policy, tasks: Sequence[Task], start: Start, plan: Plan) -> np.ndarray:
    """Discounted returns from one start, less the policy's costs: (n,)."""
    for number, task in enumerate(tasks):
        task.replay(start.key, start.actions)
        if not np.array_equal(task.obs, start.obs):
            hint = "see bridgerl check-env"
            what = "does not come to the same state after the same seed and actions"
            raise UserError(f"{task.spec.env_id} {what}; {hint}")
        task.reseed(*start.key, number)
    discount = plan.discount
    total, live = np.zeros(len(tasks)), list(range(len(tasks)))
    steps = horizon(discount, plan.tail)
    action = np.broadcast_to(start.action, (len(tasks), *start.action.shape))
    for t in range(steps):
        if t > 0:
            obs = np.stack([tasks[i].obs for i in live])
            action, cost = policy(obs)
            if t % plan.cost_every == 0:
                total[live] -= discount**t * cost
        outs = [tasks[i].step(a) for i, a in zip(live, action, strict=True)]
        total[live] += discount**t * np.array([out.reward for out in outs])
        if any(out.truncated for out in outs) and t < steps - 1:
            raise _cut_off(tasks[0].spec.env_id, diverged=any(out.diverged for out in outs))
        live = [i for i, out in zip(live, outs, strict=True) if not out.terminated]
        if not live:
            break
    return total


def _cut_off(env_id: str, *, diverged: bool) -> BridgeError:
    """Why a return is not known to its end: the physics gave up, or a limit cannot be lifted."""
    if diverged:
        return EnvFault(f"{env_id} cut an episode off that should have gone on: MuJoCo diverged")
    what = f"{env_id} cuts its episodes off by itself, so returns are not known to their end"
    how = "leave it to Gymnasium: register it with max_episode_steps, or wrap it by TimeLimit"
    return UserError(f"{what}; {how}")


def policy_of(agent: Agent) -> Policy:
    """The policy that an agent's critic values, with the price of its entropy."""

    @torch.no_grad()
    def act(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        boot = agent.bootstrap(torch.from_numpy(obs).to(agent.device))
        cost = boot.entropy_cost.expand(len(obs)).cpu().double().numpy()
        return boot.action.cpu().numpy(), cost

    return act
