"""Quantile losses, sample quantiles, level draws and targets against slow oracles."""

import math
import statistics
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bridgerl.ops.levels import draw_levels, midpoint_levels
from bridgerl.ops.quantile import (
    huber,
    quantile_huber,
    quantile_slope,
    quantile_surrogate,
    sample_quantile,
)
from bridgerl.ops.targets import bellman, drop_top
from bridgerl.types import Batch, Bootstrap


def _slow_loss(pred: Tensor, target: Tensor, tau: Tensor, kappa: float) -> Tensor:
    """Four Python loops."""
    out = torch.zeros_like(pred)
    b, h, k = pred.shape
    for i in range(b):
        for head in range(h):
            for j in range(k):
                total = 0.0
                for y in target[i].tolist():
                    u = y - float(pred[i, head, j])
                    loss = u * u / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                    total += abs(float(tau[i, j]) - (u < 0)) * loss
                out[i, head, j] = total / target.shape[1]
    return out


def _case(b: int, h: int, k: int, n: int, scale: float, seed: int) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    target = torch.sort(scale * torch.randn(b, n, generator=g), 1).values
    pred = scale * torch.randn(b, h, k, generator=g)
    if n > 1:
        target[:, 1] = target[:, 0]  # A tie among targets,
    pred[..., 0] = target[:, :1]  # and one between prediction and target.
    return pred, target, torch.rand(b, k, generator=g)


@pytest.mark.parametrize("kappa", [0.1, 1.0, 5.0])
def test_quantile_loss_equals_four_loops(kappa: float) -> None:
    pred, target, tau = _case(3, 2, 4, 5, 2.0, 0)
    expected = _slow_loss(pred, target, tau, kappa)
    torch.testing.assert_close(quantile_huber(pred, target, tau, kappa), expected)


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 300),
    n=st.integers(1, 300),
    scale=st.sampled_from([0.01, 1.0, 100.0, 1e4]),
    kappa=st.sampled_from([0.05, 1.0, 20.0]),
    seed=st.integers(0, 2**31),
)
def test_the_surrogate_has_the_gradient_of_the_pairwise_loss(
    k: int, n: int, scale: float, kappa: float, seed: int
) -> None:
    pred, target, tau = _case(2, 2, k, n, scale, seed)
    ours, theirs = pred.clone().requires_grad_(), pred.double().requires_grad_()
    fast = quantile_surrogate(ours, target, tau, kappa)
    slow = quantile_huber(theirs, target.double(), tau.double(), kappa)
    (fast_slope,) = torch.autograd.grad(fast.sum(), ours)
    (slow_slope,) = torch.autograd.grad(slow.sum(), theirs)
    torch.testing.assert_close(fast_slope, slow_slope.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [32, 100])
def test_returns_far_from_zero_lose_no_digits(n: int) -> None:
    pred, target, tau = _case(4, 2, 16, n, 0.5, 1)
    shift = 8192.0  # A power of two: shifting by it is exact at this scale.
    pred, target = (pred * 64).round() / 64, (target * 64).round() / 64
    near = quantile_slope(pred, target, tau, 1.0)
    far = quantile_slope(pred + shift, target + shift, tau, 1.0)
    torch.testing.assert_close(near, far, rtol=1e-5, atol=1e-7)


def test_the_surrogate_is_at_least_five_times_faster_at_the_papers_size() -> None:
    pred, target, tau = _case(256, 2, 64, 232, 100.0, 0)
    pred.requires_grad_()
    forms = (quantile_huber, quantile_surrogate)
    spent: dict[object, list[float]] = {form: [] for form in forms}
    for _ in range(4):
        for form in forms:
            started = time.process_time()
            torch.autograd.grad(form(pred, target, tau, 1.0).mean(), pred)
            spent[form].append(time.process_time() - started)
    plain, fast = (statistics.median(spent[f]) for f in forms)
    assert plain > 5 * fast


def test_a_target_above_the_prediction_raises_it_with_weight_tau() -> None:
    pred = torch.zeros(1, 1, 2, requires_grad=True)
    tau = torch.tensor([0.1, 0.9])
    for form in (quantile_huber, quantile_surrogate):
        (slope,) = torch.autograd.grad(form(pred, torch.tensor([[10.0]]), tau, 1.0).sum(), pred)
        torch.testing.assert_close(slope, -tau[None, None])
        (slope,) = torch.autograd.grad(form(pred, torch.tensor([[-10.0]]), tau, 1.0).sum(), pred)
        torch.testing.assert_close(slope, (1 - tau)[None, None])


def test_huber_is_smooth_where_its_pieces_meet() -> None:
    u = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    zero = torch.zeros(())
    expected = torch.tensor([2.5, 0.5, 0.125, 0, 0.125, 0.5, 2.5])
    torch.testing.assert_close(huber(u, zero, 1.0), expected)
    assert torch.isfinite(huber(torch.tensor([1e30]), zero, 1.0)).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**31))
def test_sample_quantile_is_numpys_inverted_cdf(n: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    values = torch.sort(torch.randn(1, n, generator=g), 1).values
    tau = torch.rand(1, 20, generator=g)
    expected = np.quantile(values[0].numpy(), tau[0].double().numpy(), method="inverted_cdf")
    assert sample_quantile(values, tau)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("n", [4, 25, 100, 232])
def test_sample_quantile_at_the_ends_and_on_the_grid(n: int) -> None:
    """y_k is the k-th value, so the answer is ceil(n tau), here in exact fractions."""
    values = torch.arange(1.0, n + 1)[None]
    edge = torch.tensor([[0.0, 1e-9, 1 - 1e-7, 1.0]])
    assert sample_quantile(values, edge)[0].tolist() == [1, 1, n, n]
    grid = torch.arange(1, n + 1)[None] / n
    exact = [math.ceil(Fraction(tau) * n) for tau in grid[0].tolist()]
    assert sample_quantile(values, grid)[0].tolist() == exact


def test_stratified_levels_hit_every_stratum_once_and_estimate_means_better() -> None:
    draws = torch.Generator().manual_seed(0)
    levels = draw_levels((500, 16), draws, stratified=True)
    assert torch.equal((levels * 16).floor(), torch.arange(16.0).expand(500, -1))
    iid = draw_levels((500, 16), draws, stratified=False)
    assert iid.min() >= 0
    assert iid.max() < 1
    assert levels.square().mean(1).std() < 0.1 * iid.square().mean(1).std()
    assert midpoint_levels(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_drop_top_pools_before_it_sorts() -> None:
    atoms = torch.tensor([[[1.0, 9.0, 8.0], [2.0, 3.0, 0.0]]])
    assert drop_top(atoms, 0).tolist() == [[0, 1, 2, 3, 8, 9]]
    assert drop_top(atoms, 1).tolist() == [[0, 1, 2, 3, 8]]
    assert drop_top(atoms, 4).tolist() == [[0, 1]]


def test_bellman_targets_are_masked_discounted_and_charged_for_entropy() -> None:
    empty = torch.zeros(2, 1)
    batch = Batch(empty, empty, torch.tensor([1.0, 1.0]), torch.tensor([0.9, 0.0]), empty)
    boot = Bootstrap(empty, torch.tensor([2.0, 2.0]))
    atoms = torch.tensor([[10.0, 20.0], [10.0, 20.0]])
    torch.testing.assert_close(bellman(batch, boot, atoms), torch.tensor([[8.2, 17.2], [1.0, 1.0]]))


@pytest.mark.parametrize("n", [8, 100])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_target_that_is_not_finite_shows_in_the_surrogate(bad: float, n: int) -> None:
    target = torch.zeros(1, n)
    target[0, -1] = bad
    out = quantile_surrogate(torch.zeros(1, 2, 3), target, torch.rand(3), 1.0)
    assert not torch.isfinite(out).any()


@pytest.mark.parametrize("tau", [0.02, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("weight", [0.0, 0.01, 0.1])
def test_an_anchor_to_single_samples_moves_a_level_towards_the_middle(
    tau: float, weight: float
) -> None:
    """Where each target is one draw, the minimum lies at level (tau + w) / (1 + 2 w)."""
    n, kappa = 100_000, 1e-3
    levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    rewards = -torch.log1p(-levels)  # An exponential distribution.

    def slope(level: float) -> float:
        z = -torch.log1p(-torch.tensor(level, dtype=torch.float64)).expand(n, 1, 1)
        z = z.clone().requires_grad_()
        target, at = rewards[:, None], torch.tensor([tau], dtype=torch.float64)
        loss = quantile_huber(z, target, at, kappa) + weight * huber(z, target[..., None], kappa)
        return float(torch.autograd.grad(loss.mean(), z)[0].sum())

    expected = (tau + weight) / (1 + 2 * weight)
    assert slope(expected - 0.002) < 0 < slope(expected + 0.002)
