"""Denoising diffusion (Ho et al. 2020) over a few steps of the cosine schedule."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

OFFSET = 0.008
MOST_NOISE = 0.999


def cosine_betas(steps: int) -> Tensor:
    """Noise added per step (Nichol and Dhariwal 2021), float64: (T,)."""
    k = torch.arange(steps + 1, dtype=torch.float64) / steps
    alpha_bar = torch.cos((k + OFFSET) / (1 + OFFSET) * math.pi / 2).square()
    return (1 - alpha_bar[1:] / alpha_bar[:-1]).clamp(0, MOST_NOISE)


class Diffusion(nn.Module):
    """x_k = signal_k x_0 + noise_k eps, and the posterior step back from k to k - 1."""

    signal: Tensor
    noise: Tensor
    _from_x: Tensor
    _from_eps: Tensor
    _mean_x0: Tensor
    _mean_x: Tensor
    _std: Tensor

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        beta = cosine_betas(steps)
        alpha_bar = (1 - beta).cumprod(0)
        before = torch.cat([torch.ones(1, dtype=torch.float64), alpha_bar[:-1]])
        left = 1 - alpha_bar
        for name, value in {
            "signal": alpha_bar.sqrt(),
            "noise": left.sqrt(),
            "_from_x": alpha_bar.rsqrt(),
            "_from_eps": (1 / alpha_bar - 1).sqrt(),
            "_mean_x0": beta * before.sqrt() / left,
            "_mean_x": (1 - before) * (1 - beta).sqrt() / left,
            "_std": (beta * (1 - before) / left).sqrt(),
        }.items():
            self.register_buffer(name, value.float(), persistent=False)

    def diffuse(self, x0: Tensor, eps: Tensor, k: Tensor) -> Tensor:
        """Noise x0 (..., d) to steps k (...)."""
        return self.signal[k][..., None] * x0 + self.noise[k][..., None] * eps

    def denoise(
        self,
        predict: Callable[[Tensor, int], Tensor],
        noise: Tensor,
        *,
        limits: tuple[float | Tensor, float | Tensor] | None = None,
        noise_ratio: float = 1.0,
    ) -> Tensor:
        """Walk from noise[0] to x_0 by predicted eps(x, k); x_0 is kept within limits on the way.

        noise is (T, ..., d): the start, then what is added after each step but the last.
        """
        x = noise[0]
        for done, k in enumerate(reversed(range(self.steps))):
            x0 = self._from_x[k] * x - self._from_eps[k] * predict(x, k)
            if limits is not None:
                x0 = torch.clamp(x0, *limits)  # pyright: ignore[reportCallIssue, reportArgumentType]
            x = self._mean_x0[k] * x0 + self._mean_x[k] * x
            if k > 0:
                x = x + noise_ratio * self._std[k] * noise[done + 1]
        return x
