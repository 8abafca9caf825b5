"""Value diffusion (VDRL): returns are drawn by denoising, conditioned on state and action.

Neither code nor text of its authors was at hand; DECISIONS.md tells what is a reconstruction.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from bridgerl.critics.base import CriticConfig
from bridgerl.critics.bounds import BoundedCritic, ReturnBounds
from bridgerl.nn.denoiser import Denoiser, StepEmbedding
from bridgerl.nn.diffusion import Diffusion
from bridgerl.nn.heads import reader
from bridgerl.ops.quantile import sample_quantile
from bridgerl.ops.risk import risk_of
from bridgerl.ops.targets import bellman
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics

READ_SEED = 0
"""Seed of the noise behind read-outs: the same for every state, action and call."""
MEAN_SAMPLES = 64
"""Samples behind `mean` and measures of risk that draw nothing."""
READ_SAMPLES = 256
"""Samples behind `quantiles`."""


@dataclass(frozen=True)
class VDRLConfig(CriticConfig):
    """Value diffusion: a denoiser of returns, trained by the variational loss."""

    trunk_widths = "features"
    distributional = True

    adam_eps: float = 1e-8
    """Adam epsilon."""
    features: tuple[int, ...] = ()
    """Widths of a trunk that reads (s, a) before the denoiser; none by default."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers."""
    n_heads: int = 2
    """Independent denoisers that share their noise."""
    diffusion_steps: int = 20
    """Steps T from noise to return."""
    n_target: int = 10
    """Returns drawn per head for the target."""
    n_actor: int = 5
    """Returns drawn per head for the value the actor maximises."""
    n_rank: int = 5
    """Returns, of fixed noise, for the value that ranks candidate actions."""
    n_risk: int = 32
    """Returns drawn per head for a measure of risk."""
    n_embed: int = 16
    """Sinusoids in the embedding of a step."""
    z_scale: float = 1.0
    """Returns are divided by this inside the diffusion."""
    bounded: bool = False
    """Keep returns within what the rewards seen so far allow, at every denoising step."""
    selection: Literal["min", "head"] = "min"
    """Which returns make the target: the smaller head's sample by sample, or all of the head
    with the smaller mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden")
        self.require_counts("n_heads", "diffusion_steps", "n_target", "n_actor", "n_rank")
        self.require_counts("n_risk", "n_embed")
        self.require(self.n_embed % 2 == 0, "n_embed", "must be even")
        self.require_positive("z_scale")

    def build(self, spec: EnvSpec, streams: Streams) -> "VDRL":
        return VDRL(self, spec, streams)


class VDRL(BoundedCritic):
    """Z(s, a) is what T denoising steps make of Gaussian noise, the smaller of the heads'."""

    mean_particles = MEAN_SAMPLES

    def __init__(self, config: VDRLConfig, spec: EnvSpec, streams: Streams) -> None:
        c, n_inputs = config, spec.obs_dim + spec.action_dim

        def denoiser() -> Denoiser:
            trunk, width = reader(n_inputs, c.features, c.trunk)
            embed = StepEmbedding(c.diffusion_steps, c.n_embed, 2 * c.n_embed)
            return Denoiser(1, width, c.hidden, embed, trunk)

        super().__init__(config, nn.ModuleList(denoiser() for _ in range(c.n_heads)))
        self.config = config
        self.diffusion = Diffusion(config.diffusion_steps)
        self.bounds, self.bounded = ReturnBounds(), config.bounded
        self._target_draws, self._actor_draws = streams("target_draws"), streams("actor_draws")
        self._diffuse_draws = streams("value_diffusion")

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Squared error of the predicted noise: sum over heads, mean over targets and rows."""
        c = self.config
        with torch.no_grad():
            y = self._target(batch, boot)
            g, shape, device = self._diffuse_draws, y.shape, y.device
            k = torch.randint(c.diffusion_steps, shape, generator=g, device=device)
            eps = torch.randn((*shape, 1), generator=g, device=device)
            x = self.diffusion.diffuse(y[..., None] / c.z_scale, eps, k)
        condition = torch.cat([batch.obs, batch.action], -1)
        errors = [eps - net(net.begin(condition), x, k) for net in self._heads(target=False)]
        return torch.stack(errors).square().mean((1, 2, 3)).sum()

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Mean and spread of the targets."""
        y = self._target(batch, boot)
        return {"critic/target": y.mean(), "critic/target_spread": y.std(correction=0)}

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of a few returns, with a graph through all T steps: (b,)."""
        noise = self._noise(len(obs), self.config.n_actor, self._actor_draws)
        return self._draw(obs, action, noise, target=target).amin(1).mean(1)

    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of returns whose noise is the same for every candidate: (b,)."""
        return self.particles(obs, action, self.config.n_rank, target=target).mean(1)

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of returns drawn from random or fixed noise: (b,)."""
        if fixed:  # The very returns of `mean`.
            noise = self._read_noise(MEAN_SAMPLES, obs)
        else:
            noise = self._noise(len(obs), self.config.n_risk, self._actor_draws)
        return risk_of(measure, self._draw(obs, action, noise, target=target).amin(1))

    def particles(self, obs: Tensor, action: Tensor, n: int, *, target: bool = False) -> Tensor:
        """N equally likely returns: (b, n)."""
        with torch.no_grad():
            return self._draw(obs, action, self._read_noise(n, obs), target=target).amin(1)

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Sample quantiles of particles, a staircase in tau (b or 1, k): (b, k)."""
        z = self._draw(obs, action, self._read_noise(READ_SAMPLES, obs), target=target).amin(1)
        return sample_quantile(z.sort(-1).values, tau)

    @torch.no_grad()
    def _target(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Returns drawn for the next state, backed up: (b, n)."""
        noise = self._noise(len(batch.reward), self.config.n_target, self._target_draws)
        z = self._draw(batch.next_obs, boot.action, noise, target=True)
        return bellman(batch, boot, self._select(z))

    def _read_noise(self, n: int, obs: Tensor) -> Tensor:
        """The same for every state, action and call: (T, 1, n, 1)."""
        return self._noise(1, n, torch.Generator(obs.device).manual_seed(READ_SEED))

    def _noise(self, b: int, n: int, generator: torch.Generator) -> Tensor:
        """Start and steps of n walks: (T, b, n, 1)."""
        shape = (self.config.diffusion_steps, b, n, 1)
        return torch.randn(shape, generator=generator, device=self.diffusion.signal.device)

    def _draw(self, obs: Tensor, action: Tensor, noise: Tensor, *, target: bool) -> Tensor:
        """Every head's returns of the same noise (T, b or 1, n, 1): (b, h, n)."""
        c, scale = torch.cat([obs, action], -1), self.config.z_scale
        noise = noise.expand(-1, c.shape[0], -1, -1)
        low, high = self.bounds.limits()
        limits = (low / scale, high / scale)

        def walk(net: Denoiser) -> Tensor:
            predict = partial(net, net.begin(c))
            return self.diffusion.denoise(predict, noise, limits=limits)[..., 0]

        return scale * torch.stack([walk(net) for net in self._heads(target=target)], 1)

    def _select(self, z: Tensor) -> Tensor:
        """The returns (b, h, n) that make the target: (b, n)."""
        if self.config.selection == "min":
            return z.amin(1)
        smaller = z.mean(2).argmin(1)
        return z[torch.arange(len(z), device=z.device), smaller]
