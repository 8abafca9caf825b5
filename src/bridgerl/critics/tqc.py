"""Truncated quantile critics (Kuznetsov et al. 2020): fixed levels, the largest targets dropped."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bridgerl.critics.base import CriticConfig, QuantileCritic, summarise
from bridgerl.nn.heads import Heads
from bridgerl.ops.levels import midpoint_levels
from bridgerl.ops.quantile import QuantileCost, quantile_huber, sample_quantile
from bridgerl.ops.risk import risk_of
from bridgerl.ops.targets import bellman, drop_top
from bridgerl.settings.measures import Measure
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics


@dataclass(frozen=True)
class TQCConfig(CriticConfig):
    """Truncated quantile critics: atoms at fixed levels, pooled over networks and truncated."""

    distributional = True

    hidden: tuple[int, ...] = (512, 512, 512)
    """Widths of the hidden layers; none make it a linear map."""
    n_heads: int = 2
    """Independent networks; TQC's authors use 5."""
    n_atoms: int = 25
    """Atoms per network."""
    drop: float = 2 / 25
    """Share of the pooled target atoms to drop from the top: the paper's for its tasks, the median
    of them for others."""
    kappa: float = 1.0
    """Width of the Huber parabola, in units of the return."""
    z_scale: float = 1.0
    """Returns are divided by this inside the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("hidden", fewest=0)
        self.require_counts("n_heads", "n_atoms")
        self.require_positive("kappa", "z_scale")
        self.require(0 <= self.drop < 1, "drop", "must be in [0, 1)")
        pooled = self.n_heads * self.n_atoms
        self.require(self.n_drop < pooled, "drop", f"leaves none of {pooled} target atoms")

    @property
    def n_drop(self) -> int:
        """Target atoms to drop, of those of all networks."""
        return round(self.drop * self.n_heads * self.n_atoms)

    def build(self, spec: EnvSpec, streams: Streams) -> "TQC":
        return TQC(self, spec)


class TQC(QuantileCritic):
    """Z(s, a) is a mixture of h k atoms; a network's atom i regresses on level (i + 1/2) / k."""

    levels: Tensor

    def __init__(self, config: TQCConfig, spec: EnvSpec) -> None:
        sizes = (spec.obs_dim + spec.action_dim, *config.hidden, config.n_atoms)
        heads = Heads(config.n_heads, sizes, config.trunk, scale=config.z_scale)
        super().__init__(config, heads)
        self.config, self.kappa = config, config.kappa
        self.register_buffer("levels", midpoint_levels(config.n_atoms), persistent=False)

    def loss(self, batch: Batch, boot: Bootstrap, cost: QuantileCost = quantile_huber) -> Tensor:
        """Quantile-Huber loss, mean over transitions, networks, atoms and kept targets."""
        y = self._target(batch, boot)
        return cost(self._atoms(batch.obs, batch.action), y, self.levels, self.kappa).mean()

    def diagnostics(self, batch: Batch, boot: Bootstrap) -> Metrics:
        """Mean value, mean target and the targets' spread."""
        return summarise(self._atoms(batch.obs, batch.action), self._target(batch, boot))

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Mean of all atoms, none dropped: (b,)."""
        return self._atoms(obs, action, target=target).mean((1, 2))

    def _risk(
        self, obs: Tensor, action: Tensor, measure: Measure, *, fixed: bool, target: bool
    ) -> Tensor:
        """Of the pooled atoms, none dropped: (b,)."""
        return risk_of(measure, self._atoms(obs, action, target=target).flatten(1))

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        """Quantiles of the pooled atoms, a staircase in tau (b or 1, k): (b, k)."""
        return sample_quantile(drop_top(self._atoms(obs, action, target=target), 0), tau)

    @torch.no_grad()
    def _target(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """All networks' atoms but the largest, backed up: ascending, (b, n)."""
        atoms = self._atoms(batch.next_obs, boot.action, target=True)
        return bellman(batch, boot, drop_top(atoms, self.config.n_drop))

    def _atoms(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """Every network's atoms: (b, h, k)."""
        return self._net(target=target)(torch.cat([obs, action], -1))
