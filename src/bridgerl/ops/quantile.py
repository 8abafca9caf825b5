"""Quantile regression: the loss in two forms of equal value, sample quantiles, level draws."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable


def huber(u: Tensor, kappa: float) -> Tensor:
    """The Huber loss: u^2 / 2 within kappa of zero, kappa (|u| - kappa / 2) beyond."""
    size = u.abs()
    return torch.where(size <= kappa, 0.5 * u.square(), kappa * (size - 0.5 * kappa))


def quantile_huber(pred: Tensor, target: Tensor, tau: Tensor, kappa: float) -> Tensor:
    """Mean over the n targets of |tau - 1[u < 0]| huber(u), u = target - pred: (b, h, k).

    Shapes: pred (b, h, k), target (b, n), tau (b, k) or (k,). Every pair is built: the plain form.
    """
    u = target[:, None, None, :] - pred[..., None]
    level = tau.expand(pred.shape[0], pred.shape[2])[:, None, :, None]
    return ((level - (u < 0).to(u.dtype)).abs() * huber(u, kappa)).mean(-1)


def quantile_huber_sorted(pred: Tensor, target: Tensor, tau: Tensor, kappa: float) -> Tensor:
    """`quantile_huber` for ascending targets in O((k + n) log n) per row: (b, h, k).

    Only pred gets a gradient: targets are constants of the regression.
    """
    level = tau.expand(pred.shape[0], pred.shape[2])[:, None].expand_as(pred)
    return _SortedLoss.apply(pred, target, level, kappa)


class _SortedLoss(Function):
    """Counts and prefix sums of the targets between pred - kappa, pred and pred + kappa."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, pred: Tensor, target: Tensor, level: Tensor, kappa: float
    ) -> Tensor:
        b, n = target.shape
        # Centred rows and float64 sums keep small differences of large returns.
        centre = target.double().mean(1, keepdim=True)
        y = target.double() - centre
        f = pred.detach().reshape(b, -1).double() - centre
        tau = level.reshape(b, -1).double()
        zero = y.new_zeros(b, 1)
        sums = torch.cat([zero, y.cumsum(1)], 1)
        squares = torch.cat([zero, y.square().cumsum(1)], 1)

        below = torch.searchsorted(y, f - kappa)  # Targets with u < -kappa.
        under = torch.searchsorted(y, f)  # Targets with u < 0.
        within = torch.searchsorted(y, f + kappa, right=True)  # Targets with u <= kappa.
        s_below, s_under, s_within = (sums.gather(1, i) for i in (below, under, within))
        q_below, q_under, q_within = (squares.gather(1, i) for i in (below, under, within))

        def parabola(count: Tensor, s: Tensor, q: Tensor) -> Tensor:
            return 0.5 * (count * f.square() - 2 * f * s + q)

        half = 0.5 * kappa
        n_low, n_high = under - below, within - under
        low_line = kappa * (below * (f - half) - s_below)
        high_line = kappa * ((sums[:, -1:] - s_within) - (n - within) * (f + half))
        s_low, s_high = s_under - s_below, s_within - s_under
        low = low_line + parabola(n_low, s_low, q_under - q_below)
        high = high_line + parabola(n_high, s_high, q_within - q_under)
        slope_low = kappa * below + n_low * f - s_low
        slope_high = n_high * f - s_high - kappa * (n - within)
        value = ((1 - tau) * low + tau * high) / n
        slope = ((1 - tau) * slope_low + tau * slope_high) / n
        ctx.save_for_backward(slope.to(pred.dtype).view_as(pred))
        return value.to(pred.dtype).view_as(pred)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope,) = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        return grad * slope, None, None, None


def sample_quantile(values: Tensor, tau: Tensor) -> Tensor:
    """The infimum definition y_(ceil(n tau)) of ascending values (b, n) at tau (b, k): (b, k)."""
    n = values.shape[1]
    # A float32 level times n is exact in float64, not in float32; clamped at both ends.
    index = (tau.double() * n).ceil().long().clamp(1, n) - 1
    return values.gather(1, index.expand(values.shape[0], -1))


def draw_levels(
    shape: tuple[int, ...], generator: torch.Generator, *, stratified: bool, device: str = "cpu"
) -> Tensor:
    """Levels in [0, 1]: iid uniform, or one per stratum [i/k, (i+1)/k] of the last axis."""
    u = torch.rand(shape, generator=generator, device=device)
    if not stratified:
        return u
    k = shape[-1]
    return (torch.arange(k, device=device) + u) / k


def midpoint_levels(k: int) -> Tensor:
    """(i + 1/2) / k: the levels of a read-out without randomness."""
    return (torch.arange(k) + 0.5) / k


def normal_quantiles(n: int) -> Tensor:
    """Standard normal quantiles at midpoint levels: (1, n)."""
    return torch.special.ndtri(midpoint_levels(n).double()).float()[None]
