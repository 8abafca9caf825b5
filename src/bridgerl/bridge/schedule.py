"""How a bridge leaves its start for its end: the drift rate theta(t) and what follows from it.

With B(t) the integral of theta over [t, 1], the bridge is z_t = xi(t) z_start + (1 - xi(t)) z_end
(Eq. 5) with xi(t) = sinh B(t) / sinh B(0); its speed is c(t) = -xi'(t) (Eq. 19), which is
theta(t) cosh B(t) / sinh B(0).
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bridgerl.bridge.names import SCHEDULE_NAMES
from bridgerl.bridge.names import ScheduleName as ScheduleName
from bridgerl.errors import choose, require


class Schedule(Protocol):
    """A bridge is fully given by theta and its integral."""

    def theta(self, t: Tensor) -> Tensor:
        """The drift rate at t."""
        ...

    def integral(self, t: Tensor) -> Tensor:
        """The integral of theta over [0, t]."""
        ...


@dataclass(frozen=True)
class Constant:
    """Drift rate theta(t) = rate."""

    rate: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a bridge that never arrives."""
        require(0 < self.rate < math.inf, "theta", self.rate, "must be positive and finite")

    def theta(self, t: Tensor) -> Tensor:
        """The drift rate at t."""
        return torch.full_like(t, self.rate)

    def integral(self, t: Tensor) -> Tensor:
        """The closed form rate * t."""
        return self.rate * t


@dataclass(frozen=True)
class _Rising:
    """A theta that rises from low to high."""

    low: float = 0.1
    high: float = 5.0

    def __post_init__(self) -> None:
        """Refuse rates that are not positive or that fall."""
        require(0 < self.low < math.inf, "theta_min", self.low, "must be positive and finite")
        ok = self.low <= self.high < math.inf
        require(ok, "theta_max", self.high, f"must be finite and at least theta-min {self.low}")


class Linear(_Rising):
    """Drift rate theta(t) = low + (high - low) t."""

    def theta(self, t: Tensor) -> Tensor:
        """The drift rate at t."""
        return self.low + (self.high - self.low) * t

    def integral(self, t: Tensor) -> Tensor:
        """The closed form low * t + (high - low) t^2 / 2."""
        return self.low * t + 0.5 * (self.high - self.low) * t.square()


class Cosine(_Rising):
    """Drift rate theta(t) = low + (high - low) (1 - cos(pi t)) / 2."""

    def theta(self, t: Tensor) -> Tensor:
        """The drift rate at t."""
        return self.low + 0.5 * (self.high - self.low) * (1.0 - torch.cos(math.pi * t))

    def integral(self, t: Tensor) -> Tensor:
        """The closed form low * t + (high - low) (t - sin(pi t) / pi) / 2."""
        return self.low * t + 0.5 * (self.high - self.low) * (t - torch.sin(math.pi * t) / math.pi)


KINDS = (Constant, Linear, Cosine)
SCHEDULES: dict[str, type[Constant | Linear | Cosine]] = dict(
    zip(SCHEDULE_NAMES, KINDS, strict=True)
)


def make_schedule(name: str, theta: float, theta_min: float, theta_max: float) -> Schedule:
    """A schedule by name: `theta` is of the constant one, the other two of those that rise."""
    kind = choose("schedule", name, SCHEDULES)
    return kind(theta) if issubclass(kind, Constant) else kind(theta_min, theta_max)


def xi(schedule: Schedule, t: Tensor) -> Tensor:
    """Weight of the start at time t: 1 at t = 0, 0 at t = 1."""
    left, whole = _remaining(schedule, t)
    return torch.exp(left - whole) * torch.expm1(-2 * left) / torch.expm1(-2 * whole)


def velocity(schedule: Schedule, t: Tensor) -> Tensor:
    """c(t) = -xi'(t), the speed with which the start is left."""
    left, whole = _remaining(schedule, t)
    decay = torch.exp(left - whole) * (1 + torch.exp(-2 * left)) / -torch.expm1(-2 * whole)
    return schedule.theta(t) * decay


def _remaining(schedule: Schedule, t: Tensor) -> tuple[Tensor, Tensor]:
    """B(t) and B(0). Ratios of sinh and cosh are taken through exp and expm1: no overflow."""
    whole = schedule.integral(torch.ones_like(t))
    return (whole - schedule.integral(t)).clamp_(min=0), whole
