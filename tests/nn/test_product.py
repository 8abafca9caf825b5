"""Products by the other library are those of torch, and small ones stay with torch."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from bridgerl.nn import product
from bridgerl.nn.mlp import MLP

Tensors = tuple[Tensor, ...]
ASKED = product.prefers_onednn.__wrapped__


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor where it gains, whatever this one is."""
    monkeypatch.setattr(product, "prefers_onednn", lambda: True)


def drawn(*shapes: tuple[int, ...]) -> Tensors:
    draws = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=draws, requires_grad=True) for shape in shapes)


def made_by(x: Tensor) -> str:
    return type(x.grad_fn).__name__


def same(ours: Tensor, theirs: Tensor, inputs: Tensors) -> None:
    """Equal outputs and gradients."""
    seed = torch.linspace(-1, 1, ours.numel()).view_as(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)
    grads = (torch.autograd.grad(y, inputs, seed) for y in (ours, theirs))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bias", [(2, 256, 1), (2, 1, 300), (1, 1, 1), (2, 256, 300)])
def test_products_of_heads_and_their_gradients_are_torchs(bias: tuple[int, ...]) -> None:
    inputs = drawn(bias, (2, 256, 200), (2, 200, 300))
    ours = product.baddbmm(*inputs)
    assert made_by(ours) == "_HeadsBackward"
    same(ours, torch.baddbmm(*inputs), inputs)


def test_transposed_and_shared_factors_are_taken_as_they_lie() -> None:
    weight, x = drawn((1, 200, 256), (300, 200))
    bias = torch.zeros(2, 256, 1)
    factors = (weight.expand(2, -1, -1).mT, x.t().expand(2, -1, -1))
    same(product.baddbmm(bias, *factors), torch.baddbmm(bias, *factors), (weight, x))


@pytest.mark.parametrize("rows", [(600,), (30, 20)])
def test_linear_maps_and_their_gradients_are_torchs(rows: tuple[int, ...]) -> None:
    inputs = drawn((*rows, 200), (256, 200), (256,))
    ours = product.linear(*inputs)
    assert ours.shape == (*rows, 256)
    same(ours, F.linear(*inputs), inputs)


def test_what_needs_no_gradient_gets_none() -> None:
    x, weight, bias = drawn((600, 200), (256, 200), (256,))
    frozen = product.linear(x, weight.detach(), bias.detach())
    (grad,) = torch.autograd.grad(frozen.sum(), x)
    assert not product.linear(x.detach(), weight.detach(), bias.detach()).requires_grad
    torch.testing.assert_close(grad, weight.sum(0).expand_as(grad), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "dtype"), [(2, torch.float32), (600, torch.float64)], ids=["small", "double"]
)
def test_small_products_and_other_types_stay_with_torch(rows: int, dtype: torch.dtype) -> None:
    x, weight, bias = (t.to(dtype) for t in drawn((rows, 200), (256, 200), (256,)))
    ours = product.linear(x, weight, bias)
    assert torch.equal(ours, F.linear(x, weight, bias))
    assert made_by(ours) == "AddmmBackward0"


def test_a_torch_without_the_operator_keeps_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    assert not ASKED()


def test_networks_that_are_written_down_hold_operations_that_every_program_knows() -> None:
    net, x = MLP((200, 256, 256, 1)), torch.randn(300, 200)
    graph = str(torch.jit.trace_module(net, {"forward": (x,)}).inlined_graph)
    assert "aten::linear" in graph
    assert "mkldnn" not in graph
