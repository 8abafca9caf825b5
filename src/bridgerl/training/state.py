"""Where a run stands: all that must survive a kill, and how it is put back."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bridgerl.agent import Agent, build_agent, build_normalizer, plays
from bridgerl.config import RunConfig
from bridgerl.errors import EnvFault, StorageFault, UserError
from bridgerl.runs.checkpoint import STATE, TENSORS, Snapshot
from bridgerl.runs.store import is_count
from bridgerl.runs.tensors import check_fit, with_prefix, without_prefix
from bridgerl.streams import Streams
from bridgerl.training.envs import Task
from bridgerl.training.n_step import PendingRows
from bridgerl.training.process import fingerprint
from bridgerl.training.replay import Replay

ENVIRONMENT = "environment"
"""The place of its sample in the fingerprint."""


@dataclass
class Counters:
    """Where a run stands; JSON values only."""

    step: int = 0
    episode: int = 0
    episode_return: float = 0.0
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
        counts = (self.step, self.episode, self.diverged, self.best_step or 0)
        numbers = [self.episode_return, self.best_return or 0.0, *chain(*self.recent)]
        ok = all(map(is_count, counts)) and all(type(n) in (int, float) for n in numbers)
        ok &= all(len(row) == 2 for row in self.recent)
        ok &= all(isinstance(reason, str) for reason in self.inexact)
        if not ok:
            raise TypeError("a counter is not a number")


class RunState:
    """Agent, generators, replay, the episode under way, counters and last metrics of one run."""

    def __init__(self, config: RunConfig, task: Task) -> None:
        self.task = task
        self.streams = Streams(config.seed, config.train.device)
        try:
            normalizer = build_normalizer(config.train, task.spec)
            updates = round(config.steps * config.train.updates_per_step)
            parts = (config.actor.settled(updates), config.critic)
            self.agent: Agent = build_agent(*parts, task.spec, self.streams, normalizer)
            self.replay = Replay(config.train.buffer_size, task.spec)
        except RuntimeError as error:  # How torch says that memory cannot be had.
            hint = f"lower the hidden widths or --train.buffer-size {config.train.buffer_size}"
            what = "memory for the networks or the replay cannot be had"
            raise UserError(f"{what}; {hint}") from error
        if config.train.compile:
            self.agent.compile_losses()
        self.pending = PendingRows(self.replay, config.train.n_step, config.train.discount)
        self.counters = Counters()
        self.metrics: dict[str, Tensor] = {}
        self.segments: dict[str, str] = {}
        """Replay segments on disk, by name, with their checksums."""
        self.sample: dict[str, Any] | None = None
        """What the environment did under a fixed seed when the run began, if that is known."""
        self._config = config.train

    def weights(self) -> dict[str, Tensor]:
        """What playing needs."""
        return {k: v for k, v in with_prefix("agent.", self.agent.state_dict()).items() if plays(k)}

    def snapshot(self, metrics_mark: dict[str, Any]) -> Snapshot:
        tensors = self._tensors() | with_prefix("metric.", self.metrics)
        actions = self.task.actions or [np.zeros((0, self.task.spec.action_dim), np.float32)]
        episode = {
            "actions": torch.from_numpy(np.vstack(actions)),
            "obs": torch.from_numpy(self.task.obs),
            "reward": torch.tensor(self.task.reward, dtype=torch.float64),
        }
        if self.pending:  # So that runs without n-step returns are written as ever.
            episode["pending"] = self.pending.state()
        facts = fingerprint(self._config.threads, self._config.device)
        return Snapshot(
            step=self.counters.step,
            tensors=tensors,
            episode=episode,
            state=vars(self.counters),
            metrics=metrics_mark,
            fingerprint=facts if self.sample is None else facts | {ENVIRONMENT: self.sample},
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
        try:
            self.counters = Counters(**snap.state)
        except TypeError as error:
            raise StorageFault(f"{STATE} of step {snap.step} is damaged: {error}") from None
        then, now = snap.fingerprint, fingerprint(self._config.threads, self._config.device)
        changed = [f"{k} {then.get(k)} -> {v}" for k, v in now.items() if then.get(k) != v]
        reasons = ["; ".join(changed)] if changed else []
        if "pending" in snap.episode:
            self.pending.load(snap.episode["pending"])
        if not self._restore_episode(snap):
            self.pending.break_off(snap.episode["obs"].numpy())
            reasons.append("the environment is not reproducible, a new episode begins")
            self.counters.episode += 1
            self.counters.episode_return = 0.0
            self.task.reset(self.counters.episode)
        return reasons

    def _restore_episode(self, snap: Snapshot) -> bool:
        """Replay the episode's actions; True when the environment stands where it stood."""
        try:
            key = (self.counters.episode,)
            under_way = self.task.replay(key, snap.episode["actions"].numpy())
        except EnvFault:
            return False
        same_obs = np.array_equal(self.task.obs, snap.episode["obs"].numpy())
        return under_way and same_obs and self.task.reward == float(snap.episode["reward"])

    def _tensors(self) -> dict[str, Tensor]:
        agent, streams = self.agent.state_dict(), self.streams.state()
        return with_prefix("agent.", agent) | with_prefix("stream.", streams)
