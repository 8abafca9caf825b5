"""The trainer's steps without its log, for measurements."""

import numpy as np

from bridgerl.agent import Agent
from bridgerl.bench.clock import Clock
from bridgerl.streams import Streams
from bridgerl.training.envs import Task
from bridgerl.training.replay import Replay
from bridgerl.types import Batch, Metrics


class Steps:
    """Random, evaluating and learning steps of one agent on one task, charged to a clock."""

    def __init__(
        self, task: Task, agent: Agent, streams: Streams, batch: int, device: str = "cpu"
    ) -> None:
        self.task, self.agent, self.batch, self.device = task, agent, batch, device
        self.replay = Replay(100_000, task.spec)
        self.clock = Clock()
        self._explore, self._draws = streams("explore"), streams("replay", "cpu")
        self._noise = np.random.default_rng(0)
        self._episode = 0
        task.reset(0)

    def act_at_random(self) -> None:
        """One step of the warm-up."""
        shape = self.task.spec.action_dim
        self._store(self._noise.uniform(-1, 1, shape).astype(np.float32))

    def play(self) -> None:
        """One step of an evaluation."""
        self._store(self._act(explore=False))

    def learn(self) -> Metrics:
        """One step with an update."""
        with self.clock.part("act"):
            action = self._act(explore=True)
        with self.clock.part("env"):
            self._store(action)
        with self.clock.part("sample"):
            rows = self.draw()
        return self.agent.update(rows)

    def draw(self) -> Batch:
        """A batch."""
        return self.replay.sample(self.batch, self._draws, self.device)

    def _act(self, *, explore: bool) -> np.ndarray:
        return self.agent.act(self.task.obs, explore=explore, generator=self._explore)

    def _store(self, action: np.ndarray) -> None:
        obs, out = self.task.obs, self.task.step(action)
        self.replay.add(obs, action, out.reward, 0.0 if out.terminated else 0.99, out.obs)
        if out.terminated or out.truncated:
            self._episode += 1
            self.task.reset(self._episode)
