"""Walking the bridge: step weights on any partition of [0, 1], and the loop that uses them."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from bridgerl.bridge.schedule import Schedule, velocity, xi
from bridgerl.errors import require

Rule = Literal["integral", "left", "right"]
EndpointFn = Callable[[Tensor, Tensor], Tensor]
"""(z, t) -> predicted endpoint, of z's shape; t is 0-d."""


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


def sample(predict: EndpointFn, start: Tensor, times: Tensor, weights: Tensor) -> Tensor:
    """Walk z <- z + w_i (predict(z, t_i) - start), i = 0 .. M - 1; keeps every gradient."""
    z = start
    for t, weight in zip(times[:-1], weights, strict=True):
        z = z + weight * (predict(z, t) - start)
    return z
