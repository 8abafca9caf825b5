"""Episodes without exploration, on seeds that training never sees."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from bridgerl.agent import Agent
from bridgerl.config import EvalConfig
from bridgerl.envs.task import Outcome, Task
from bridgerl.ops.risk import risk_of
from bridgerl.runs.failpoint import failpoint
from bridgerl.streams import derive_seed

Act = Callable[[np.ndarray], np.ndarray]
Stop = Callable[[], bool] | None


@dataclass(frozen=True)
class EvalResult:
    """Undiscounted return and length of each episode."""

    returns: list[float]
    lengths: list[int]
    diverged: int = 0
    """Episodes that MuJoCo broke off by resetting itself."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    def figures(self, risk: str | None) -> dict[str, Any]:
        """The figures that are logged, and the worth of the returns under a measure of risk."""
        values = {
            "eval/return_mean": self.mean,
            "eval/return_std": self.std,
            "eval/length_mean": float(np.mean(self.lengths)),
            "eval/returns": self.returns,
            "eval/lengths": self.lengths,
            "eval/diverged": self.diverged,
        }
        if risk is not None:
            returns = torch.tensor(self.returns, dtype=torch.float64)
            values["eval/risk"] = float(risk_of(risk, returns))
        return values


def play_episodes(
    agent: Agent, task: Task, config: EvalConfig, *, seed: int, key: int, stopped: Stop = None
) -> EvalResult | None:
    """Play episodes; the same seed and key give the same ones. None when stopped on the way."""
    generator = torch.Generator(agent.device).manual_seed(derive_seed(seed, "eval-actions", key))
    returns, lengths, diverged = [], [], 0
    act = partial(agent.act, generator=generator)
    for episode in range(config.episodes):
        steps = play_episode(task, (key, episode), act, config.max_steps, stopped)
        if steps is None:
            return None
        total = 0.0
        for _, out in steps:  # Not sum(): from Python 3.12 on it rounds otherwise.
            total += out.reward
            diverged += out.diverged
        failpoint("eval.mid")
        returns.append(total)
        lengths.append(len(steps))
    return EvalResult(returns, lengths, diverged)


def play_episode(
    task: Task, key: tuple[int, ...], act: Act, max_steps: int, stopped: Stop = None
) -> list[tuple[np.ndarray, Outcome]] | None:
    """Each observation (o,) acted on and what came of it. None when stopped on the way."""
    steps: list[tuple[np.ndarray, Outcome]] = []
    obs, done = task.reset(*key), False
    while not done and len(steps) < max_steps:
        if stopped and stopped():
            return None
        out = task.step(act(obs))
        steps.append((obs, out))
        obs, done = out.obs, out.terminated or out.truncated
    return steps
