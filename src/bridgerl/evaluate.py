"""Episodes without exploration, on seeds that training never sees."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.config import EvalConfig
from bridgerl.envs import Task
from bridgerl.failpoint import failpoint
from bridgerl.streams import derive_seed


@dataclass(frozen=True)
class EvalResult:
    """Undiscounted return and length of each episode."""

    returns: list[float]
    lengths: list[int]
    diverged: int = 0
    """Episodes that MuJoCo broke off by resetting itself."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns over episodes."""
        return float(np.std(self.returns))


def evaluate(
    agent: Agent,
    task: Task,
    config: EvalConfig,
    *,
    seed: int,
    key: int,
    stopped: Callable[[], bool] = lambda: False,
) -> EvalResult | None:
    """Play episodes; the same seed and key give the same ones. None when stopped on the way."""
    generator = torch.Generator(agent.device).manual_seed(derive_seed(seed, "eval-actions", key))
    returns: list[float] = []
    lengths: list[int] = []
    diverged = 0
    for episode in range(config.episodes):
        obs, total, done = task.reset(key, episode), 0.0, False
        while not done and len(task.actions) < config.max_steps:
            if stopped():
                return None
            out = task.step(agent.act(obs, explore=False, generator=generator))
            obs, done = out.obs, out.terminated or out.truncated
            total += out.reward
            diverged += out.diverged
        failpoint("eval.mid")
        returns.append(total)
        lengths.append(len(task.actions))
    return EvalResult(returns, lengths, diverged)
