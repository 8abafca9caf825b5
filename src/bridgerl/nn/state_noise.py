"""A Gaussian whose spread follows the features of a state (gSDE, Raffin et al. 2021)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bridgerl.nn.heads import reader
from bridgerl.nn.settings import TrunkName

_EPSILON = 1e-6
"""Added to a variance, and inside the logarithm of `expln`, as in Stable-Baselines3."""


def expln(x: Tensor) -> Tensor:
    """A positive number that is exp(x) up to 0 and 1 + log(1 + x) above."""
    above = torch.log1p(x.clamp(min=0.0) + _EPSILON) + 1.0
    return torch.where(x > 0, above, x.clamp(max=0.0).exp())


class StateNoise(nn.Module):
    """Mean and spread of actions from features x: the noise of an action is x @ W, W random.

    The weights W (f, a) are independent Gaussians around 0, each with a learnt deviation.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        trunk: TrunkName,
        *,
        log_std: float,
        use_expln: bool,
        mean_limit: float | None,
    ) -> None:
        super().__init__()
        n_in, *widths, n_out = sizes
        self.features, width = reader(n_in, widths, trunk)
        self.mean = nn.Linear(width, n_out)
        self.log_std = nn.Parameter(torch.full((width, n_out), log_std))
        self._positive = expln if use_expln else torch.exp
        self._mean_limit = mean_limit

    @property
    def std(self) -> Tensor:
        """Deviations of the noise weights: (f, a)."""
        return self._positive(self.log_std)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log deviation of actions over all weights: (b, a), (b, a)."""
        x = self.features(obs)
        variance = x.square() @ self.std.square() + _EPSILON
        return self._mean_of(x), 0.5 * variance.log()

    def explore(self, obs: Tensor, draws: Tensor) -> Tensor:
        """Actions with weights that are the deviations times standard draws (b, f, a): (b, a)."""
        x = self.features(obs)
        noise = torch.einsum("bf,bfa->ba", x, draws * self.std)
        return self._mean_of(x) + noise

    def _mean_of(self, x: Tensor) -> Tensor:
        mean, limit = self.mean(x), self._mean_limit
        return mean if limit is None else F.hardtanh(mean, -limit, limit)
