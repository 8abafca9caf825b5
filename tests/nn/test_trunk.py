"""Trunks against plain modules, head by head."""

from collections.abc import Iterator
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from bridgerl.nn import layers
from bridgerl.nn.settings import TrunkName
from bridgerl.nn.trunk import BatchNormed, Trunk, batch_norms, joint, make_trunk, paired_statistics

SIZES, H, B = (5, 12, 12, 12), 3, 40
LAYER_NORM = nn.LayerNorm(SIZES[1], elementwise_affine=False)
KINDS = get_args(TrunkName)
for_kinds = pytest.mark.parametrize("kind", KINDS)


def _x(seed: int = 0, b: int = B) -> Tensor:
    return 3 * torch.randn(b, SIZES[0], generator=torch.Generator().manual_seed(seed)) + 1


def _trunk(kind: TrunkName) -> Trunk:
    """A trunk whose scales and shifts are not those it starts with."""
    trunk, draws = make_trunk(kind, H, SIZES), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in trunk.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=draws))
    return trunk


def _linear(layer: nn.Module, h: int) -> nn.Module:
    weight, bias = layer.weight[h].detach(), layer.bias[h, :, 0].detach()  # pyright: ignore
    plain = nn.Linear(weight.shape[1], weight.shape[0])
    plain.load_state_dict({"weight": weight, "bias": bias})
    return plain


def _norm(norm: nn.Module, h: int) -> nn.Module:
    scale, shift = norm.scale[h, 0].detach(), norm.shift[h, 0].detach()  # pyright: ignore
    plain = nn.BatchNorm1d(len(scale), eps=layers.BATCH_EPS, momentum=layers.MOMENTUM)
    values = {"weight": scale, "bias": shift, "num_batches_tracked": torch.tensor(0)}
    values |= {"running_mean": norm.mean[h, 0], "running_var": norm.var[h, 0]}  # pyright: ignore
    plain.load_state_dict(values)
    return plain


class _Residual(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def _plain(kind: TrunkName, trunk: nn.Module, h: int) -> nn.Sequential:
    """One head by PyTorch's own modules."""

    def parts() -> Iterator[nn.Module]:
        if kind == "simba":
            yield _linear(trunk.embed, h)  # pyright: ignore
            for wide, back in zip(trunk.wide, trunk.back, strict=True):  # pyright: ignore
                yield _Residual(LAYER_NORM, _linear(wide, h), nn.ReLU(), _linear(back, h))
            yield LAYER_NORM
            return
        if kind == "batchnorm":
            yield _norm(trunk.norms[0], h)  # pyright: ignore
        for i, layer in enumerate(trunk.layers):  # pyright: ignore
            yield _linear(layer, h)
            if kind == "layernorm":
                yield LAYER_NORM
            yield nn.ReLU()
            if kind == "batchnorm":
                yield _norm(trunk.norms[i + 1], h)  # pyright: ignore

    return nn.Sequential(*parts())


@for_kinds
def test_trunks_are_plain_modules_head_by_head(kind: TrunkName) -> None:
    trunk, x = _trunk(kind), _x()
    features = trunk(x)
    assert features.shape == (H, SIZES[-1], B)
    for h in range(H):
        plain = _plain(kind, trunk, h).eval()
        torch.testing.assert_close(features[h].t(), plain(x), rtol=1e-5, atol=1e-5)


@for_kinds
def test_the_first_heads_alone_are_the_same_heads(kind: TrunkName) -> None:
    trunk, x = _trunk(kind), _x()
    torch.testing.assert_close(trunk(x, 2), trunk(x)[:2], rtol=1e-6, atol=1e-6)


@for_kinds
def test_gradients_of_a_trunk_are_those_of_plain_modules(kind: TrunkName) -> None:
    trunk, x = _trunk(kind), _x()
    trunk(x).square().sum().backward()
    for h in range(H):
        plain = _plain(kind, trunk, h).eval()
        plain(x).square().sum().backward()
        theirs = sum(float(p.grad.abs().sum()) for p in plain.parameters() if p.grad is not None)
        ours = sum(float(p.grad[h].abs().sum()) for p in trunk.parameters() if p.grad is not None)
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_batch_norms_take_the_statistics_of_a_batch_and_its_mate_together() -> None:
    trunk, x, mate = _trunk("batchnorm"), _x(0), _x(1) + 5
    plain = [_plain("batchnorm", trunk, h).train() for h in range(H)]
    with joint(batch_norms(trunk), mate):
        features = trunk(x)
    for h in range(H):
        both = torch.cat([x, mate])
        # PyTorch divides by a variance that is biased, sb3-contrib and ours by one that is not.
        for module in plain[h]:
            both = (
                module(both) if not isinstance(module, nn.BatchNorm1d) else _unbiased(module, both)
            )
        torch.testing.assert_close(features[h].t(), both[:B], rtol=1e-5, atol=1e-5)


def _unbiased(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    normal = (x - x.mean(0)) / (x.var(0) + norm.eps).sqrt()
    return normal * norm.weight + norm.bias


def test_running_statistics_move_in_passes_with_a_graph_alone() -> None:
    trunk = _trunk("batchnorm")
    assert isinstance(trunk, BatchNormed)
    x, norm = _x(), trunk.norms[0]
    assert isinstance(norm, layers.HeadBatchRenorm)
    trunk(x)
    with torch.no_grad(), joint([trunk], x):
        trunk(x)
    assert not norm.mean.any()
    with joint([trunk]):
        trunk(x)
        with torch.no_grad():
            trunk(_x(3))  # Without a mate and a graph: as in play.
    expected = layers.MOMENTUM * x.mean(0)
    torch.testing.assert_close(norm.mean[1, 0], expected, rtol=1e-5, atol=1e-6)
    moved = 1 + layers.MOMENTUM * (x.var(0) - 1)
    torch.testing.assert_close(norm.var[1, 0], moved, rtol=1e-5, atol=1e-6)
    assert float(norm.updates) == 1


def test_after_many_updates_running_statistics_correct_those_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within its bounds, renormalisation in training is what play does."""
    monkeypatch.setattr(layers, "RENORM_AFTER", 0)
    norm, x = layers.HeadBatchRenorm(1, 5), _x()[None]
    x = x * torch.tensor([1.0, 0.3, 0.1, 0.03, 0.01])  # Down to what epsilon matters for.
    norm.updates.fill_(1)
    norm.mean.copy_(x.mean(1, keepdim=True) + 0.05)
    norm.var.copy_(2 * x.var(1, keepdim=True))
    with torch.no_grad():
        renormed, played = norm(x, of_batch=True), norm(x, of_batch=False)
    torch.testing.assert_close(renormed, played, rtol=1e-5, atol=1e-5)
    norm.var.copy_(100 * x.var(1, keepdim=True))  # Beyond the bounds.
    with torch.no_grad():
        assert norm(x, of_batch=True)[..., 0].std() > 2 * norm(x, of_batch=False)[..., 0].std()


@pytest.mark.parametrize("b", [1, 8])
def test_rows_that_are_all_alike_are_normalised_without_nan(b: int) -> None:
    """Of one row, or of a task with one state: the variance is 0."""
    trunk = _trunk("batchnorm")
    with joint(batch_norms(trunk)):
        features = trunk(_x(b=1).expand(b, -1))
    assert features.isfinite().all()
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trunk.parameters())


def test_a_slow_copy_finds_its_statistics() -> None:
    fast, slow = _trunk("batchnorm"), _trunk("batchnorm")
    pairs = paired_statistics(slow, fast)
    assert len(pairs) == 3 * len(SIZES)
    assert all(a.shape == b.shape and a is not b for a, b in pairs)
    assert not paired_statistics(_trunk("simba"), _trunk("simba"))


def test_a_trunk_says_what_it_cannot_be_built_of() -> None:
    from bridgerl.critics.cdq import CDQConfig
    from bridgerl.critics.dbc import DBCConfig
    from bridgerl.critics.vf import VFConfig
    from bridgerl.errors import UserError

    for make, words in (
        (lambda: CDQConfig(trunk="simba", hidden=(8, 4)), "two or more equal widths"),
        (lambda: CDQConfig(trunk="simba", hidden=(8,)), "two or more equal widths"),
        (lambda: VFConfig(trunk="layernorm"), "--critic.features 128 128"),
        (lambda: DBCConfig(trunk="layernorm"), "--critic.network factored"),
    ):
        with pytest.raises(UserError, match=words):
            make()
