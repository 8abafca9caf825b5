"""Walking the bridge: step weights on any partition of [0, 1], and the loop that uses them."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bridgerl.bridge.schedule import Schedule, velocity, xi
from bridgerl.errors import require

Rule = Literal["exact", "left", "right"]
EndpointFn = Callable[[Tensor, int], Tensor]
"""(z, i) -> endpoint predicted at the time where step i begins, of z's shape."""


def uniform_times(n_steps: int) -> Tensor:
    """The partition 0, 1/M, ..., 1 in float64: (M + 1,)."""
    require(n_steps >= 1, "bridge_steps", n_steps, "must be at least 1")
    return torch.linspace(0, 1, n_steps + 1, dtype=torch.float64)


def step_weights(schedule: Schedule, times: Tensor, rule: Rule = "exact") -> Tensor:
    """Weight of each step: (M,). `exact` is xi(t_i) - xi(t_{i+1}), the integral of the speed.

    `left` and `right` are Euler's c(t) dt with c at that end; their sums miss 1: the endpoint bias.
    """
    if rule == "exact":
        return -xi(schedule, times).diff()
    at = times[:-1] if rule == "left" else times[1:]
    return velocity(schedule, at) * times.diff()


def endpoint_error(schedule: Schedule, n_steps: int, rule: Rule) -> float:
    """|1 - sum of the step weights|: the walk's relative miss of a fixed endpoint."""
    return float((1 - step_weights(schedule, uniform_times(n_steps), rule).sum()).abs())


class Walk(NamedTuple):
    """Where the steps over a bridge begin, (M,), and their weights."""

    times: Tensor
    weights: list[float]

    @classmethod
    def of(cls, schedule: Schedule, n_steps: int, rule: Rule = "exact") -> "Walk":
        """Equal steps from start to end, by default with exact weights (Eq. 20)."""
        with torch.device("cpu"):  # Plain numbers, also where tensors have no memory.
            weights = [float(w) for w in step_weights(schedule, uniform_times(n_steps), rule)]
        return cls(uniform_times(n_steps)[:-1].float(), weights)

    def draw_prefix(self, b: int, generator: torch.Generator) -> "tuple[Walk, Tensor]":
        """The walk to where a random step begins, not the first, and that time, (b,)."""
        last = len(self.weights) - 1  # Of a walk of one step, the first is all there is.
        n = int(torch.randint(min(1, last), last + 1, (1,), generator=generator))
        return Walk(self.times[:n], self.weights[:n]), self.times[n].expand(b)


def draw_times(b: int, generator: torch.Generator) -> Tensor:
    """Bridge times uniform in (0, 1), but 0.001 at least, so that z_t is not tau itself: (b,)."""
    return torch.rand((b,), generator=generator, device=generator.device).clamp_(min=1e-3)


def sample(predict: EndpointFn, start: Tensor, weights: Sequence[float]) -> Tensor:
    """Walk z <- z + w_i (predict(z, i) - start), i = 0 .. M - 1; keeps every gradient."""
    z = start
    for i, weight in enumerate(weights):
        z = torch.add(z, predict(z, i) - start, alpha=weight)
    return z
