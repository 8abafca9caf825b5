"""Clipped double Q (Fujimoto et al. 2018): two values, the smaller one is the target."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bridgerl.critics.base import Critic, CriticConfig
from bridgerl.nn.heads import Heads
from bridgerl.ops.targets import bellman
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics


@dataclass(frozen=True)
class CDQConfig(CriticConfig):
    """Clipped double Q: the point-valued critic of SAC and TD3."""

    hidden: tuple[int, ...] = (512, 512, 512)
    """Widths of the hidden layers; none make it a linear map."""
    n_heads: int = 2
    """Independent networks; the target is their minimum."""
    actor_q: Literal["min", "first"] = "min"
    """What the actor maximises: the minimum over heads (SAC, QVPO) or the first head (TD3)."""
    z_scale: float = 1.0
    """Returns are divided by this inside the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden", fewest=0)
        self.require(1 <= self.n_heads <= 1024, "n_heads", "must be from 1 to 1024")
        self.require_positive("z_scale")

    def build(self, spec: EnvSpec, streams: Streams) -> "CDQ":
        return CDQ(self, spec)


class CDQ(Critic):
    """y = r + discount (min_h Q'_h(s', a') - entropy cost), squared error on each head."""

    def __init__(self, config: CDQConfig, spec: EnvSpec) -> None:
        sizes = (spec.obs_dim + spec.action_dim, *config.hidden, 1)
        heads = Heads(config.n_heads, sizes, config.trunk, scale=config.z_scale)
        super().__init__(config, heads)
        self._actor_q = config.actor_q

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Sum over heads of the mean squared error."""
        y = self._target(batch, boot)
        return (self._values(batch.obs, batch.action) - y).square().mean(0).sum()

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Mean value and mean target."""
        q, y = self._values(batch.obs, batch.action), self._target(batch, boot)
        return {"critic/q": q.mean(), "critic/target": y.mean()}

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Minimum over heads, or the first head: (b,)."""
        n_heads = None if self._actor_q == "min" else 1
        return self._values(obs, action, n_heads, target=target).amin(-1)

    @torch.no_grad()
    def _target(self, batch: Batch, boot: Bootstrap) -> Tensor:
        next_q = self._values(batch.next_obs, boot.action, target=True)
        return bellman(batch, boot, next_q.amin(-1, keepdim=True))

    def _values(
        self, obs: Tensor, action: Tensor, n_heads: int | None = None, *, target: bool = False
    ) -> Tensor:
        """The value of every head, or of the first so many: (b, h)."""
        net = self._net(target=target)
        return net(torch.cat([obs, action], -1), n_heads).squeeze(-1)
