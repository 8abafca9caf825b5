"""Settings that every critic has; free of torch, so that configs can be read without it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bridgerl.nn.settings import LearnerConfig

if TYPE_CHECKING:
    from bridgerl.critics.base import Critic
    from bridgerl.streams import Streams
    from bridgerl.types import EnvSpec


@dataclass(frozen=True)
class CriticConfig(LearnerConfig, ABC):
    """Settings that every critic has."""

    section: ClassVar[str] = "critic"
    distributional: ClassVar[bool] = False
    """Whether its critic knows the return's distribution, by `_quantiles` or `_risk`."""

    adam_eps: float = 1e-5
    """Adam epsilon."""
    polyak: float = 0.005
    """Rate at which the target network follows the online one."""
    target_every: int = 1
    """Critic updates between two moves of the target; 2 under TD3 is the cadence of its authors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.polyak <= 1, "polyak", "must be in (0, 1]")
        self.require(self.target_every >= 1, "target_every", "must be at least 1")

    @abstractmethod
    def build(self, spec: "EnvSpec", streams: "Streams") -> "Critic":
        """Make the critic for a task."""
