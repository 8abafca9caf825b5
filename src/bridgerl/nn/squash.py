"""The tanh-squashed Gaussian of SAC."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)


def tanh_normal(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Reparameterised a = tanh(u), u = mean + std * noise, and log pi(a): (b, a), (b,).

    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) stays exact where actions saturate.
    """
    u = torch.addcmul(mean, log_std.exp(), noise)
    constant = -0.5 * noise.square() - (_LOG_SQRT_2PI + 2.0 * _LOG_2)
    slack = torch.add(u, F.softplus(-2.0 * u)).mul(2.0)
    return torch.tanh(u), (slack - log_std + constant).sum(-1)
