"""The inner step of training: act, step the environment, store, learn; no files, no display."""

from collections.abc import Sequence
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
    env: int
    """Index of the environment that it was played in."""


class TrainStep:
    """One environment step and, after warm-up, the updates due, on the parts of a state.

    Environments take turns. Before the first of them steps, the policy chooses the actions of all:
    those in processes of their own then step at the same time. Parts are asked for their methods at
    every call, so that a clock may wrap them. The tasks must have been reset.
    """

    def __init__(self, state: RunState, train: TrainConfig, warmup: int) -> None:
        self.state, self.train, self.warmup = state, train, warmup
        # As it is typed: the float 0.3 is a little less, and ten steps would make two updates.
        self._rate = Fraction(str(train.updates_per_step))
        self._explore = state.streams("explore")
        self._replay_draws = state.streams("replay", "cpu")
        self._warmup_draws = state.streams("warmup", "cpu")

    def __call__(self, *, diagnostics: bool = False) -> Episode | None:
        """Take the step, with diagnostics for the log if asked; returns an episode that is over."""
        state, c = self.state, self.state.counters
        turn = c.step % len(state.lanes)
        lane = state.lanes[turn]
        if lane.chosen is None:
            self._choose(turn)
        out = lane.step()
        if not out.diverged:
            state.agent.observe(out.obs, out.reward, turn)
        c.step += 1
        failpoint("train.step")
        if c.step > self.warmup:
            self._learn(diagnostics)
        return self._end_episode(turn, out.diverged) if out.terminated or out.truncated else None

    def _choose(self, turn: int) -> None:
        """Choose the actions of this round's steps: at random in warm-up, then by the policy."""
        state = self.state
        free = [i for i in range(turn, len(state.lanes)) if state.lanes[i].chosen is None]
        for i in free:
            if not state.lanes[i].task.actions:
                state.agent.begin_episode(state.lanes[i].obs, i)
        n_random = max(0, self.warmup - (state.counters.step - turn))  # Of the round's first steps.
        for i in free:
            if i < n_random:
                shape = (state.task.spec.action_dim,)
                action = torch.rand(shape, generator=self._warmup_draws).mul_(2).sub_(1)
                state.lanes[i].begin(action.numpy())
        learnt = [i for i in free if i >= n_random]
        for i, action in zip(learnt, self._act([state.lanes[i].obs for i in learnt]), strict=True):
            state.lanes[i].begin(action)

    def _act(self, obs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """What the policy does, exploring; one pass for all environments."""
        agent = self.state.agent
        if len(obs) == 1:
            return [agent.act(obs[0], explore=True, generator=self._explore)]
        if not obs:
            return []
        x = torch.from_numpy(np.stack(obs)).to(agent.device)
        return [*agent.actions(x, explore=True, generator=self._explore).cpu().numpy()]

    def _learn(self, diagnostics: bool) -> None:
        """Make the updates due; diagnostics are of the batch that would be drawn next."""
        state = self.state
        if diagnostics:
            with state.streams.kept():
                state.diagnostics = state.agent.diagnostics(self._sample())
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

    def _end_episode(self, env: int, diverged: bool) -> Episode:
        lane, c = self.state.lanes[env], self.state.counters
        episode = Episode(lane.total, len(lane.task.actions), diverged, env)
        c.recent = [*c.recent, [episode.total, float(episode.length)]][-100:]
        c.diverged += diverged
        lane.start_next()
        return episode

    def check_numbers(self) -> None:
        check_streak(float(self.state.agent.worst_streak()), self.state.counters.step)


def check_streak(streak: float, step: int) -> None:
    """Raise a NumericFault if so many updates in a row were lost that learning has failed."""
    if streak >= LOST_UPDATES_IN_A_ROW:
        lost = f"{LOST_UPDATES_IN_A_ROW} updates in a row had a non-finite loss or gradient"
        hint = "lower the learning rate or check the reward scale"
        raise NumericFault(f"{lost} by step {step}; {hint}")
