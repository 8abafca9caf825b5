"""Settings that every actor has; free of torch, so that configs can be read without it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from bridgerl.nn.settings import LearnerConfig
from bridgerl.settings.measures import parse

if TYPE_CHECKING:
    from bridgerl.actors.base import Actor
    from bridgerl.streams import Streams
    from bridgerl.types import EnvSpec


@dataclass(frozen=True)
class ActorConfig(LearnerConfig, ABC):
    """Settings that every actor has."""

    section: ClassVar[str] = "actor"
    fewest_hidden: ClassVar[int] = 1
    """Hidden layers that the policy cannot do without; 0 where it may be a linear map."""

    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the policy's hidden layers; none, for SAC and TD3, make it a linear map."""
    delay: int = 1
    """Critic updates per actor update."""
    risk: str = "mean"
    """What of the return the policy maximises or ranks by: mean, cvar:0.1, wang:0.75, cpw:0.71,
    power:2, mean-std:0.75 or entropic:0.01. Positive numbers are averse; not for critic cdq."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden", fewest=self.fewest_hidden)
        self.require(self.delay >= 1, "delay", "must be at least 1")
        parse(self.risk)

    def settled(self, updates: int) -> Self:
        """The same with all that depends on how many updates a run has filled in."""
        return self

    @abstractmethod
    def build(self, spec: "EnvSpec", streams: "Streams") -> "Actor":
        """Make the actor for a task."""


@dataclass(frozen=True)
class TargetActorConfig(ActorConfig, ABC):
    """Settings of actors with a target policy."""

    polyak: float = 0.005
    """Rate at which the target policy follows, at actor updates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.polyak <= 1, "polyak", "must be in (0, 1]")
