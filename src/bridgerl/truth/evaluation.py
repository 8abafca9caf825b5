"""Policy evaluation with the answer known: critics learn a frozen policy's returns on real tasks.

All critics get the same transitions of one policy, gathered once. What they learn is held against
returns that were played from held-out states.
"""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bridgerl.agent import Agent, build_critic
from bridgerl.envs.task import Task
from bridgerl.errors import StorageFault
from bridgerl.presets import resolve
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.streams import Streams, derive_seed
from bridgerl.training.loop import train
from bridgerl.training.play import load_agent
from bridgerl.training.process import tuned_process
from bridgerl.truth import scores
from bridgerl.truth.forks import Forks, Plan, Policy, fork, policy_of
from bridgerl.truth.settings import EvaluationCell, PolicyData
from bridgerl.types import Batch, Bootstrap, EnvSpec


class Transitions(NamedTuple):
    """Steps of a policy: (n, o), (n, a), (n,), (n,) and (n, o), float32."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    alive: np.ndarray
    """0 where the episode ended there, else 1."""
    next_obs: np.ndarray


def prepare(data: PolicyData, folder: Path) -> tuple[Agent, Transitions, Forks]:
    """The policy, its transitions and its forks: made by who comes first, kept for all others."""
    store.make_folder(folder)
    path, lock = (
        folder / "data.safetensors",
        RunFolder(folder).lock(),
    )  # Busy: somebody else makes it.
    try:
        config = resolve(data.task, "sac", "cdq")
        where = {"seed": data.seed, "out": folder / "policy"}
        every = max(data.policy_steps // 5, 1)
        config = config.changed(steps=data.policy_steps, eval={"every": every}, **where)
        run = train(config, quiet=True)
        agent, _ = load_agent(run, "last")
        if not path.exists():
            with tuned_process(1):
                act = _frozen(agent)
                steps = gather(act, data)
                forks = fork(act, _plan(data))
            store.publish_file(path, save({**steps._asdict(), **_named(forks)}))
    finally:
        lock.release()
    try:
        kept = load(store.read_bytes(path))
        steps = Transitions(*(kept[name] for name in Transitions._fields))
        forks = Forks(*(kept[f"fork_{name}"] for name in Forks._fields))
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise StorageFault(f"{path} is damaged: {error}; delete it to make it again") from None
    return agent, steps, forks


def _plan(data: PolicyData) -> Plan:
    how = (data.states, data.returns, data.discount, data.seed)
    return Plan(data.task, *how, tail=data.tail)


def _named(forks: Forks) -> dict[str, np.ndarray]:
    return {f"fork_{name}": value for name, value in forks._asdict().items()}


def _frozen(agent: Agent) -> Policy:
    """An agent's stochastic policy, without a price for its entropy: plain returns are learnt."""
    policy = policy_of(agent)

    def act(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        action, cost = policy(obs)
        return action, np.zeros_like(cost)

    return act


def gather(policy: Policy, data: PolicyData) -> Transitions:
    """Play whole episodes until there are enough transitions."""
    rows: list[tuple[Any, ...]] = []
    with closing(Task(data.task, data.seed, "gather")) as task:
        obs, episode = task.reset(0), 0
        while len(rows) < data.transitions:
            action, _ = policy(obs[None])
            out = task.step(action[0])
            if not out.diverged:  # That one leads nowhere.
                rows.append((obs, action[0], out.reward, 1.0 - out.terminated, out.obs))
            obs = out.obs
            if out.terminated or out.truncated:
                episode += 1
                obs = task.reset(episode)
    return Transitions(*(np.array(column, np.float32) for column in zip(*rows, strict=True)))


def run_evaluation(cell: EvaluationCell, folder: Path) -> dict[str, Any]:
    """Train one critic on the policy's transitions and score what it knows."""
    agent, steps, forks = prepare(cell.data, folder)
    with tuned_process(1):
        spec = EnvSpec(cell.data.task, steps.obs.shape[1], steps.action.shape[1])
        critic = build_critic(cell.config, spec, Streams(cell.seed))
        rng = np.random.default_rng(derive_seed(cell.seed, "evaluation", cell.data.task))
        # Not from the agent's streams: who made the data has drawn from them.
        noise = torch.Generator().manual_seed(derive_seed(cell.seed, "evaluation", "next actions"))
        columns = [torch.from_numpy(column) for column in steps]
        see = agent.normalizer.normalize_obs
        for update in range(1, cell.updates + 1):
            rows = torch.from_numpy(rng.integers(len(steps.reward), size=cell.batch))
            obs, action, reward, alive, next_obs = (column[rows] for column in columns)
            following = agent.actions(next_obs, explore=True, generator=noise)
            boot = Bootstrap(following, torch.zeros(cell.batch))
            batch = Batch(see(obs), action, reward, cell.data.discount * alive, see(next_obs))
            critic.update(batch, boot)
            if update % cell.config.target_every == 0:
                critic.update_target()
        obs, action = torch.from_numpy(forks.obs), torch.from_numpy(forks.action)
        z = critic.particles(see(obs), action, scores.LEVELS, target=True)
    learned = np.sort(z.detach().double().numpy(), 1)
    return scores.score(learned, forks.returns)
