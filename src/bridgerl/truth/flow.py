"""Flow matching as a critic: the toy's opponent, and what value flows are made of."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bridgerl.critics import CriticConfig
from bridgerl.critics.base import Critic
from bridgerl.nn.embed import CosineEmbedding
from bridgerl.nn.mlp import MLP
from bridgerl.ops.levels import normal_quantiles
from bridgerl.ops.targets import bellman
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec

N_EMBED = 32


@dataclass(frozen=True)
class FlowConfig(CriticConfig):
    """Flow matching: a velocity field that carries noise to returns."""

    hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of the hidden layers."""
    sampler_steps: int = 50
    """Euler steps from noise to return."""
    n_draws: int = 16
    """Targets, noises and times per transition."""
    z_scale: float = 100.0
    """Returns are divided by this inside the network."""

    def build(self, spec: EnvSpec, streams: Streams) -> "Flow":
        return Flow(self, spec, streams)


class FlowField(nn.Module):
    """An MLP on [z, emb(t), s, a]."""

    def __init__(self, config: FlowConfig, n_inputs: int) -> None:
        super().__init__()
        self.embed = CosineEmbedding(N_EMBED)
        self.mlp = MLP((1 + N_EMBED + n_inputs, *config.hidden, 1))

    def forward(self, x: Tensor, t: Tensor, z: Tensor) -> Tensor:
        """Velocities of z (b, n) at times t (b or 1, n or 1) for inputs x (b, i): (b, n)."""
        shape = (*z.shape, -1)
        parts = (z[..., None], self.embed(t).expand(shape), x[:, None].expand(shape))
        return self.mlp(torch.cat(parts, -1))[..., 0]


class Flow(Critic):
    """v(z_t, t) -> y - eps on the line z_t = (1 - t) eps + t y, eps ~ N(0, 1), y in z_scale."""

    def __init__(self, config: FlowConfig, spec: EnvSpec, streams: Streams) -> None:
        super().__init__(config, FlowField(config, spec.obs_dim + spec.action_dim))
        self.config = config
        self._noise, self._times = streams("flow_noise"), streams("flow_time")

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Mean squared error of the velocity; targets and paths draw noise of their own."""
        y = self.targets(batch, boot) / self.config.z_scale
        eps = torch.randn(y.shape, generator=self._noise)
        t = torch.rand(y.shape, generator=self._times)
        v = self.online(torch.cat([batch.obs, batch.action], -1), t, torch.lerp(eps, y, t))
        return (v - (y - eps)).square().mean()

    @torch.no_grad()
    def targets(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Returns of the frozen network, backed up: (b, n)."""
        z = torch.randn((len(batch.reward), self.config.n_draws), generator=self._noise)
        if batch.discount.any():  # A walk that nothing looks at would be most of the cost.
            z = self._walk(batch.next_obs, boot.action, z, target=True)
        return bellman(batch, boot, z)

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of n_draws returns, with a graph through all steps: (b,)."""
        return self._walk(obs, action, normal_quantiles(self.config.n_draws), target=target).mean(1)

    def particles(self, obs: Tensor, action: Tensor, n: int, *, target: bool = False) -> Tensor:
        """N equally likely returns, (b, n): noise at midpoint levels spares sampling error."""
        with torch.no_grad():
            return self._walk(obs, action, normal_quantiles(n), target=target)

    def _walk(self, obs: Tensor, action: Tensor, eps: Tensor, *, target: bool = False) -> Tensor:
        """Euler's steps z <- z + v(z, t) / N from noise (b or 1, n) to returns: (b, n)."""
        net, steps = self.target if target else self.online, self.config.sampler_steps
        x, z = torch.cat([obs, action], -1), eps.expand(len(obs), -1)
        for i in range(steps):
            z = z + net(x, z.new_full((1, 1), i / steps), z) / steps
        return self.config.z_scale * z
