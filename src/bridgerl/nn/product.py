"""Affine maps by oneDNN, where the library that torch takes leaves half of a processor unused.

MKL keeps its AVX-512 code for Intel's processors. On an AMD Zen 5 it reaches 100 GFLOP/s, oneDNN,
which comes with torch too, 160 to 220. Small products stay with MKL, whose calls cost less.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling
from torch.jit import is_tracing  # pyright: ignore[reportPrivateImportUsage]
from torch.nn import functional as F

LEAST_WORK = 10_000_000
"""Multiplications in a product of matrices below which oneDNN's calls cost what they gain."""


@cache
def prefers_onednn() -> bool:
    """Whether this machine's processor is one of those that MKL does not use well."""
    return (
        hasattr(torch.ops.mkldnn, "_linear_pointwise")  # Private: another torch may have none.
        and "AMD" in torch.cpu.get_capabilities().get("cpu_name", "")
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
    )


def baddbmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Per head, bias + a b: (h, m or 1, n or 1), (h, m, k), (h, k, n) -> (h, m, n)."""
    if _stays_with_torch(a) or a.shape[1] * a.shape[2] * b.shape[2] < LEAST_WORK:
        return torch.baddbmm(bias, a, b)
    return _Heads.apply(bias, a, b)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As `F.linear`, x weight^T + bias: (..., in), (out, in), (out,) -> (..., out)."""
    if _stays_with_torch(x) or x.numel() * weight.shape[0] < LEAST_WORK:
        return F.linear(x, weight, bias)
    return _Linear.apply(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)


def _stays_with_torch(x: Tensor) -> bool:
    """Whether a product is torch's own, however large; networks that are written down are."""
    ours = prefers_onednn() and x.dtype == torch.float32 and x.device.type == "cpu"
    return not ours or is_tracing() or is_compiling()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.t()) if of_x else None,
            _product(grad.t(), x.t()) if of_weight else None,
            grad.sum(0) if of_bias else None,
        )


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.size = bias.shape
        return _by_head(a, b).add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b = ctx.saved_tensors
        of_bias, of_a, of_b = ctx.needs_input_grad
        return (
            grad.sum_to_size(ctx.size) if of_bias else None,
            _by_head(grad, b.mT) if of_a else None,
            _by_head(a.mT, grad) if of_b else None,
        )


def _by_head(a: Tensor, b: Tensor) -> Tensor:
    """(h, m, k), (h, k, n) -> (h, m, n)."""
    return torch.stack([_product(p, q.t()) for p, q in zip(a, b, strict=True)])


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Of any strides, a b^T + bias: (m, k), (n, k), (n,) -> (m, n)."""
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
