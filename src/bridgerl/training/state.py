"""Where a run stands: all that must survive a kill, and how it is put back."""

from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from bridgerl.agent import Agent, build_agent, build_normalizer
from bridgerl.config import RunConfig
from bridgerl.envs.task import Task
from bridgerl.errors import StorageFault, UserError
from bridgerl.runs.checkpoint import (
    EPISODE,
    EPISODE_NUMBER,
    EPISODE_RETURN,
    STATE,
    TENSORS,
    Snapshot,
    lanes_of,
)
from bridgerl.runs.source import code_of
from bridgerl.runs.store import is_count
from bridgerl.runs.tensors import check_fit, with_prefix, without_prefix
from bridgerl.streams import Streams
from bridgerl.training.lanes import Lane, ProcessTask
from bridgerl.training.n_step import PendingRows
from bridgerl.training.process import fingerprint
from bridgerl.training.replay import Replay

ENVIRONMENT = "environment"
"""The name under which a fingerprint holds what the environment did."""


@dataclass
class Counters:
    """Where a run stands; JSON values only."""

    step: int = 0
    best_return: float | None = None
    best_step: int | None = None
    diverged: int = 0
    """Episodes that MuJoCo broke off by resetting itself."""
    inexact: list[str] = field(default_factory=list)
    """Why this run may differ from an uninterrupted one."""
    recent: list[list[float]] = field(default_factory=list)
    """Return and length of the last hundred episodes."""

    def __post_init__(self) -> None:
        """Refuse what a damaged state.json may hold."""
        counts = (self.step, self.diverged, self.best_step or 0)
        numbers = [self.best_return or 0.0, *chain(*self.recent)]
        ok = all(map(is_count, counts)) and all(type(n) in (int, float) for n in numbers)
        ok &= all(len(row) == 2 for row in self.recent)
        ok &= all(isinstance(reason, str) for reason in self.inexact)
        if not ok:
            raise TypeError("a counter is not a number")


class RunState:
    """Agent, generators, replay, episodes under way, counters and last metrics of one run."""

    def __init__(
        self, config: RunConfig, *tasks: Task | ProcessTask, length: int | None = None
    ) -> None:
        """Schedules go over `length` steps, by default those of the config."""
        self.task = tasks[0]
        self.streams = Streams(config.seed, config.train.device)
        try:
            normalizer = build_normalizer(config.train, self.task.spec)
            updates = round((length or config.steps) * config.train.updates_per_step)
            parts = (config.actor.settled(updates), config.critic)
            self.agent: Agent = build_agent(*parts, self.task.spec, self.streams, normalizer)
            # Rewards are multiplied by what they taught: rounded before, their unit would matter.
            fine = config.train.normalize_returns
            self.replay = Replay(config.train.buffer_size, self.task.spec, fine_rewards=fine)
        except RuntimeError as error:  # How torch says that memory cannot be had.
            hint = f"lower the hidden widths or --train.buffer-size {config.train.buffer_size}"
            what = "memory for the networks or the replay cannot be had"
            raise UserError(f"{what}; {hint}") from error
        if config.train.compile:
            self.agent.compile_losses()
        rows = partial(PendingRows, self.replay, config.train.n_step, config.train.discount)
        several = f" (of 0 to {len(tasks) - 1}): " if len(tasks) > 1 else ""
        names = [several and f"environment {i}{several}" for i in range(len(tasks))]
        self.lanes = [Lane(task, rows(), name) for task, name in zip(tasks, names, strict=True)]
        """The environments of the run, which take turns by step."""
        self.counters = Counters()
        self.metrics: dict[str, Tensor] = {}
        """What the last update logged."""
        self.diagnostics: dict[str, Tensor] = {}
        """Those of the last line of the log, which no checkpoint needs."""
        self.segments: dict[str, str] = {}
        """Replay segments on disk, by name, with their checksums."""
        self.sample: dict[str, Any] | None = None
        """What the environment did under a fixed seed when the run began, if that is known."""
        self._facts = fingerprint(config.train.threads, config.train.device)
        """What decides the bits of this run, as it was when the run started."""
        self._facts |= code_of((type(self.agent.actor), type(self.agent.critic)))

    def weights(self) -> dict[str, Tensor]:
        """The tensors that an agent needs to play, without what it needs to learn."""
        return with_prefix("agent.", self.agent.played(self.agent.state_dict()))

    def snapshot(self, metrics_mark: dict[str, Any]) -> Snapshot:
        metrics = {name: value.float() for name, value in self.metrics.items()}
        tensors = self._tensors() | with_prefix("metric.", metrics)
        first, *others = self.lanes
        episodes = first.state()
        for i, lane in enumerate(others, 1):
            progress = {EPISODE_NUMBER: torch.tensor(lane.episode)}
            progress[EPISODE_RETURN] = torch.tensor(lane.total, dtype=torch.float64)
            episodes |= with_prefix(f"{i}.", lane.state() | progress)
        sample = {} if self.sample is None else {ENVIRONMENT: self.sample}
        return Snapshot(
            step=self.counters.step,
            tensors=tensors,
            episode=episodes,
            state=vars(self.counters)
            | {EPISODE_NUMBER: first.episode, EPISODE_RETURN: first.total},
            metrics=metrics_mark,
            fingerprint=self._facts | sample,
        )

    def restore(self, snap: Snapshot, segments: dict[str, str]) -> list[str]:
        """Put a saved moment back; returns why the run may now differ from an unbroken one."""
        self.segments = segments
        wanted = self._tensors()
        metrics = {k: v for k, v in snap.tensors.items() if k.startswith("metric.")}
        wanted |= dict.fromkeys(metrics, torch.zeros(()))
        check_fit(snap.tensors, wanted, f"{TENSORS} of step {snap.step}")
        self.agent.load_state_dict(without_prefix(snap.tensors, "agent."))
        self.streams.load(without_prefix(snap.tensors, "stream."))
        self.metrics = without_prefix(metrics, "metric.")
        then, now = snap.fingerprint, self._facts
        changed = [f"{k} {then.get(k)} -> {v}" for k, v in now.items() if then.get(k) != v]
        reasons = ["; ".join(changed)] if changed else []
        return reasons + self._restore_episodes(snap)

    def _restore_episodes(self, snap: Snapshot) -> list[str]:
        """Put counters and every environment back; returns why some could not be."""
        counters = dict(snap.state)
        try:
            progress = [(counters.pop(EPISODE_NUMBER), counters.pop(EPISODE_RETURN))]
            self.counters = Counters(**counters)
            if not is_count(progress[0][0]) or type(progress[0][1]) not in (int, float):
                raise TypeError("the episode's number or return is none")
        except (KeyError, TypeError) as error:
            raise StorageFault(f"{STATE} of step {snap.step} is damaged: {error}") from None
        first, *others = lanes_of(snap.episode)
        if len(others) != len(self.lanes) - 1:
            what = f"{len(others) + 1} environments, not {len(self.lanes)}"
            raise StorageFault(f"{EPISODE} of step {snap.step} holds {what}")
        progress += [(int(one[EPISODE_NUMBER]), float(one[EPISODE_RETURN])) for one in others]
        saved = zip(self.lanes, (first, *others), progress, strict=True)
        reasons = [lane.restore(state, *where) for lane, state, where in saved]
        return [reason for reason in reasons if reason is not None]

    def _tensors(self) -> dict[str, Tensor]:
        agent, streams = self.agent.state_dict(), self.streams.state()
        return with_prefix("agent.", agent) | with_prefix("stream.", streams)
