"""Walking the bridge: step weights on any partition of [0, 1], and the loop that uses them."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from bridgerl.bridge.schedule import Schedule, velocity, xi
from bridgerl.errors import require

Rule = Literal["integral", "left", "right"]
EndpointFn = Callable[[Tensor, int], Tensor]
"""(z, i) -> endpoint predicted at the time where step i begins, of z's shape."""


def uniform_times(n_steps: int) -> Tensor:
    """The partition 0, 1/M, ..., 1 in float64: (M + 1,)."""
    require(n_steps >= 1, "bridge_steps", n_steps, "must be at least 1")
    return torch.linspace(0, 1, n_steps + 1, dtype=torch.float64)


def step_weights(schedule: Schedule, times: Tensor, rule: Rule = "integral") -> Tensor:
    """Weight of each step: (M,). `integral` is xi(t_i) - xi(t_{i+1}), exact on any partition.

    `left` and `right` are Euler's c(t) dt with c at that end; their sums miss 1: the endpoint bias.
    """
    if rule == "integral":
        return -xi(schedule, times).diff()
    at = times[:-1] if rule == "left" else times[1:]
    return velocity(schedule, at) * times.diff()


def endpoint_error(schedule: Schedule, n_steps: int, rule: Rule) -> float:
    """|1 - sum of the step weights|: the walk's relative miss of a fixed endpoint."""
    return float((1 - step_weights(schedule, uniform_times(n_steps), rule).sum()).abs())


def sample(predict: EndpointFn, start: Tensor, weights: Sequence[float]) -> Tensor:
    """Walk z <- z + w_i (predict(z, i) - start), i = 0 .. M - 1; keeps every gradient."""
    z = start
    for i, weight in enumerate(weights):
        z = torch.add(z, predict(z, i) - start, alpha=weight)
    return z
