"""A critic of your own: this file, and the one line that gives it a name.

Run it, or copy it to `src/bridgerl/critics/average.py` and put the line of the registry there:
`"average": "bridgerl.critics.average:AverageConfig",`. A package of its own says the same in its
pyproject.toml, under `[project.entry-points."bridgerl.critics"]`.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bridgerl.critics import CRITICS
from bridgerl.critics.base import Critic, CriticConfig
from bridgerl.nn.heads import Heads
from bridgerl.ops.targets import bellman
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec


@dataclass(frozen=True)
class AverageConfig(CriticConfig):
    """Averaged Q: the mean of an ensemble, with no pessimism at all."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    n_heads: int = 3
    """Independent networks."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        super().__post_init__()
        self.require_widths("hidden")
        self.require_counts("n_heads")

    def build(self, spec: EnvSpec, streams: Streams) -> "Average":
        """Make the critic for a task."""
        return Average(self, spec)


class Average(Critic):
    """y = r + discount (mean_h Q'_h(s', a') - entropy cost), squared error on each head."""

    def __init__(self, config: AverageConfig, spec: EnvSpec) -> None:
        sizes = (spec.obs_dim + spec.action_dim, *config.hidden, 1)
        super().__init__(config, Heads(config.n_heads, sizes))

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        """Sum over heads of the mean squared error."""
        with torch.no_grad():
            y = bellman(batch, boot, self.q(batch.next_obs, boot.action, target=True)[:, None])
        q = self.online(torch.cat([batch.obs, batch.action], -1))[..., 0]
        return (q - y).square().mean(0).sum()

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The ensemble's mean: (b,)."""
        return self._net(target=target)(torch.cat([obs, action], -1)).mean((1, 2))


def main() -> None:
    """Train SAC with it for a little while."""
    from bridgerl import resolve, train

    CRITICS["average"] = AverageConfig  # The one line.
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "add_a_critic")
    args = parser.parse_args()
    config = resolve("InvertedPendulum-v5", actor="sac", critic="average")
    short = replace(config.train, warmup=None)  # A tenth of so short a run.
    print(train(replace(config, steps=args.steps, train=short, out=args.out)))


if __name__ == "__main__":
    main()
