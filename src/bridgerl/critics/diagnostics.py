"""What the log tells of a bridge critic: crossing quantiles, labels that leak into its input."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bridgerl.critics.base import spread_of
from bridgerl.types import Metrics

if TYPE_CHECKING:
    from bridgerl.critics.dbc import Fit

T_BINS = 5


def describe_fit(fit: "Fit", quantile: Tensor, anchor: Tensor) -> Metrics:
    """Both losses (b, 2 h, k) by time, targets, crossing, and what inverse interpolation explains.

    A small residual against (z_t - xi tau) / (1 - xi) means that the label is read off the input.
    """
    (start, place), (at_zero, at_t) = fit.places, fit.ends
    h = at_zero.shape[1]
    readable = (place - fit.share * start) / (1 - fit.share)
    # Summed in the order in which the network lays its atoms out.
    leak = (at_t - readable).abs().permute(1, 2, 0).mean((0, 1))
    metrics = {"critic/q_zero": fit.pred[:, :h].mean()}
    metrics |= {"critic/target": fit.y.mean(), "critic/target_spread": fit.y.std(correction=0)}
    metrics["critic/spread"] = spread_of(at_zero)
    for name, term in (("quantile", quantile), ("anchor", anchor)):
        metrics[f"critic/{name}_loss"] = term[:, :h].mean()
        metrics[f"critic/{name}_loss_t"] = term[:, h:].mean()
    return metrics | _crossing(at_zero) | _by_time(leak, fit.t)


def _crossing(atoms: Tensor) -> Metrics:
    """How often, and how deep, neighbouring quantiles (b, h, k) at ascending levels cross."""
    if atoms.shape[2] < 2:
        return {}
    fall = (-atoms.diff(dim=2)).clamp_(min=0)
    return {"critic/crossing_rate": (fall > 0).float().mean(), "critic/crossing_depth": fall.mean()}


def _by_time(residual: Tensor, t: Tensor) -> Metrics:
    """Mean residual (b,) in equal bins of bridge time, of those that are not empty.

    At t = 0, where a walk of one step is trained alone, no end can be read off the input.
    """
    residual, t = residual[t > 0], t[t > 0]
    index = (t * T_BINS).long().clamp_(max=T_BINS - 1)
    total = residual.new_zeros(T_BINS).index_add_(0, index, residual)
    count = residual.new_zeros(T_BINS).index_add_(0, index, torch.ones_like(residual))
    means, full = total / count, (count > 0).tolist()
    return {f"critic/leak_t{i}": means[i] for i in range(T_BINS) if full[i]}
