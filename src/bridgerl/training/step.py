"""The inner step of training: act, step the environment, store, learn; no files, no display."""

from fractions import Fraction
from math import floor
from typing import NamedTuple

import numpy as np
import torch

from bridgerl.config import TrainConfig
from bridgerl.errors import NumericFault
from bridgerl.runs.failpoint import failpoint
from bridgerl.training.state import RunState
from bridgerl.types import Batch

LOST_UPDATES_IN_A_ROW = 3
LOST_UPDATES_CHECK = 100


class Episode(NamedTuple):
    """An episode of training that has just ended."""

    total: float
    """Undiscounted return."""
    length: int
    diverged: bool
    """Whether MuJoCo broke it off by resetting itself."""


class TrainStep:
    """One environment step and, after warm-up, the updates due, on the parts of a state.

    Parts are asked for their methods at every call, so that a clock may wrap them. The task must
    have been reset.
    """

    def __init__(self, state: RunState, train: TrainConfig, warmup: int) -> None:
        self.state, self.train, self.warmup = state, train, warmup
        # As it is typed: the float 0.3 is a little less, and ten steps would make two updates.
        self._rate = Fraction(str(train.updates_per_step))
        self._explore = state.streams("explore")
        self._replay_draws = state.streams("replay", "cpu")
        self._warmup_draws = state.streams("warmup", "cpu")

    def __call__(self, *, figures: bool = False) -> Episode | None:
        """Take the step, with figures for the log if asked; returns the episode if it has ended."""
        state, c = self.state, self.state.counters
        obs = state.task.obs
        if not state.task.actions:
            state.agent.begin(obs)
        action = self._act(obs)
        out = state.task.step(action)
        state.pending.add(obs, action, out)
        if not out.diverged:
            state.agent.observe(out.obs, out.reward)
        c.step += 1
        c.episode_return += out.reward
        failpoint("train.step")
        if c.step > self.warmup:
            self._learn(figures)
        return self._end_episode(out.diverged) if out.terminated or out.truncated else None

    def _act(self, obs: np.ndarray) -> np.ndarray:
        """Uniformly at random in warm-up, else the policy exploring."""
        if self.state.counters.step < self.warmup:
            shape = (self.state.task.spec.action_dim,)
            return torch.rand(shape, generator=self._warmup_draws).mul_(2).sub_(1).numpy()
        return self.state.agent.act(obs, explore=True, generator=self._explore)

    def _learn(self, figures: bool) -> None:
        """Make the updates due; figures are of the batch that would be drawn next."""
        state = self.state
        if figures:
            with state.streams.kept():
                state.metrics |= state.agent.figures(self._sample())
        for _ in range(self.updates_due()):
            state.metrics |= state.agent.update(self._sample())
            if state.agent.updates % LOST_UPDATES_CHECK == 0:
                self.check_numbers()

    def updates_due(self) -> int:
        """So many that n steps of learning make floor(n * updates_per_step) updates in all."""
        n = self.state.counters.step - self.warmup
        return floor(n * self._rate) - floor((n - 1) * self._rate)

    def _sample(self) -> Batch:
        train = self.train
        return self.state.replay.sample(train.batch_size, self._replay_draws, train.device)

    def _end_episode(self, diverged: bool) -> Episode:
        task, c = self.state.task, self.state.counters
        episode = Episode(c.episode_return, len(task.actions), diverged)
        c.recent = [*c.recent, [episode.total, float(episode.length)]][-100:]
        c.diverged += diverged
        c.episode, c.episode_return = c.episode + 1, 0.0
        task.reset(c.episode)
        return episode

    def check_numbers(self) -> None:
        check_streak(float(self.state.agent.worst_streak()), self.state.counters.step)


def check_streak(streak: float, step: int) -> None:
    """Raise a NumericFault if so many updates in a row were lost that learning has failed."""
    if streak >= LOST_UPDATES_IN_A_ROW:
        lost = f"{LOST_UPDATES_IN_A_ROW} updates in a row had a non-finite loss or gradient"
        hint = "lower the learning rate or check the reward scale"
        raise NumericFault(f"{lost} by step {step}; {hint}")
