"""How a bridge leaves its start for its end: the drift rate theta(t) and what follows from it.

With B(t) the integral of theta over [t, 1], the bridge is z_t = xi(t) z_start + (1 - xi(t)) z_end,
xi(t) = sinh B(t) / sinh B(0), and c(t) = -xi'(t) = theta(t) cosh B(t) / sinh B(0).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bridgerl.errors import require


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


class Custom:
    """Any positive theta(t); its integral by Gauss-Legendre quadrature on equal panels."""

    def __init__(self, theta: Callable[[Tensor], Tensor], *, panels: int = 32) -> None:
        self._theta = theta
        x, w = np.polynomial.legendre.leggauss(8)
        edges = np.arange(panels)[:, None]
        self._nodes = torch.tensor(((edges + 0.5 * (x + 1)) / panels).reshape(-1))
        self._weights = torch.tensor(np.tile(0.5 * w / panels, panels))
        values = theta(self._nodes)
        ok = bool((torch.isfinite(values) & (values > 0)).all())
        require(ok, "theta", float(values.min()), "must be positive and finite on [0, 1]")

    def theta(self, t: Tensor) -> Tensor:
        """The drift rate at t."""
        return self._theta(t)

    def integral(self, t: Tensor) -> Tensor:
        """The sum t * sum_i w_i theta(t s_i) over the nodes s_i of [0, 1], in float64."""
        wide = t.double()[..., None]
        total = (self._theta(wide * self._nodes) * self._weights).sum(-1) * wide[..., 0]
        return total.to(t.dtype)


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "linear": Linear, "cosine": Cosine}


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
