"""The words every layer shares: transitions, and what actor and critic may know of each other."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Transitions, float32, leading axis b."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    """discount ** (rewards in the row), 0 after termination: a truncated episode bootstraps."""
    next_obs: Tensor


class Bootstrap(NamedTuple):
    """All a critic may know about the policy: a' at next_obs and what its randomness cost."""

    action: Tensor
    entropy_cost: Tensor
    """temperature * log pi(a'|s'), shape (b,); zeros for policies without an entropy term."""


@dataclass(frozen=True)
class EnvSpec:
    """Sizes of a task once observations and actions are flat vectors."""

    env_id: str
    obs_dim: int
    action_dim: int
    spaces: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """Its own spaces as JSON values, where they are known."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers in an observation and in an action."""
        return self.obs_dim, self.action_dim


QFn = Callable[[Tensor, Tensor], Tensor]
"""(obs, action) -> (b,): all an actor may know about a critic."""

Metrics = dict[str, Tensor]
"""Detached 0-d tensors, read by the log alone."""
