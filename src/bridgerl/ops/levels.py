"""Quantile levels: independent or stratified draws, dealt out to heads, or fixed midpoints."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bridgerl.errors import UserError

Numbers = Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]] | float
"""Levels as people write them: one, several, or a row of them for every observation."""


def as_levels(tau: Numbers, like: Tensor) -> Tensor:
    """Levels in (0, 1), of the type and device of observations (b, o): (b or 1, k), or refused."""
    try:
        levels = torch.as_tensor(tau, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError) as error:
        raise UserError(f"quantile levels must be numbers, e.g. [0.1, 0.5, 0.9]: {error}") from None
    if levels.dim() < 2:
        levels = levels.reshape(1, -1)
    if levels.dim() != 2 or len(levels) not in (1, len(like)):
        wanted = f"(k,), (1, k) or, with {len(like)} observations, ({len(like)}, k)"
        raise UserError(f"quantile levels must be of shape {wanted}, got {tuple(levels.shape)}")
    inside = (levels > 0) & (levels < 1)
    if not inside.all():
        wrong = levels[~inside][0].item()
        raise UserError(f"quantile levels must be within (0, 1), got {wrong:g}")
    return levels


def draw_levels(shape: tuple[int, ...], generator: torch.Generator, *, stratified: bool) -> Tensor:
    """Levels in [0, 1]: iid uniform, or one per stratum [i/k, (i+1)/k] of the last axis."""
    u = torch.rand(shape, generator=generator, device=generator.device)
    if not stratified:
        return u
    k = shape[-1]
    return (torch.arange(k, device=u.device) + u) / k


class Levels(NamedTuple):
    """How a critic draws levels: iid or stratified, for every transition or for the whole batch."""

    stratified: bool
    shared: bool

    def draw(self, b: int, k: int, generator: torch.Generator) -> Tensor:
        """Levels of b transitions, (b or 1, k); strata ascend."""
        shape = (1 if self.shared else b, k)
        return draw_levels(shape, generator, stratified=self.stratified)

    def ascending(self, b: int, k: int, generator: torch.Generator) -> Tensor:
        """The same in order: (b or 1, k)."""
        tau = self.draw(b, k, generator)
        return tau if self.stratified else tau.sort(-1).values

    def pooled(self, b: int, n_heads: int, k: int, generator: torch.Generator) -> Tensor:
        """Levels of atoms that all heads pool: (b or 1, h or 1, k).

        Strata are dealt out to the heads, so that h heads of k atoms cover h k of them; who begins
        is drawn, or the first head would always get the lower ones. Independent levels are shared.
        """
        if not self.stratified:
            return self.ascending(b, k, generator)[:, None]
        tau = self.draw(b, n_heads * k, generator)
        order = torch.rand(n_heads, generator=generator, device=generator.device).argsort()
        return tau.view(len(tau), k, n_heads)[..., order].transpose(1, 2)


def midpoint_levels(k: int) -> Tensor:
    """(i + 1/2) / k: the levels of a read-out without randomness."""
    return (torch.arange(k) + 0.5) / k


def normal_quantiles(n: int) -> Tensor:
    """Standard normal quantiles at midpoint levels: (1, n)."""
    return torch.special.ndtri(midpoint_levels(n).double()).float()[None]
