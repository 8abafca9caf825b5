"""Twin delayed deterministic policy gradient (Fujimoto et al. 2018), actor side."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bridgerl.actors.base import TargetActor, TargetActorConfig
from bridgerl.nn.heads import network
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics, QFn


@dataclass(frozen=True)
class TD3Config(TargetActorConfig):
    """TD3: a deterministic policy, updated late, smoothed in the target."""

    fewest_hidden = 0

    delay: int = 2
    """Critic updates per actor update."""
    explore_noise: float = 0.1
    """Standard deviation of exploration noise, in units of the action half-range."""
    target_noise: float = 0.2
    """Standard deviation of the smoothing noise on the target action."""
    target_noise_clip: float = 0.5
    """Bound of the smoothing noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_not_negative("explore_noise", "target_noise", "target_noise_clip")

    def build(self, spec: EnvSpec, streams: Streams) -> "TD3":
        return TD3(self, spec, streams)


class TD3(TargetActor):
    """Policy a = tanh(net(s)); loss -mean Q(s, a)."""

    def __init__(self, config: TD3Config, spec: EnvSpec, streams: Streams) -> None:
        sizes = (spec.obs_dim, *config.hidden, spec.action_dim)
        super().__init__(config, network(sizes, config.trunk))
        self.config = config
        self._target_noise = streams("target_noise")

    def act(self, obs: Tensor, q: QFn, *, explore: bool, generator: torch.Generator) -> Tensor:
        """The policy, with clipped Gaussian noise while exploring."""
        action = torch.tanh(self.net(obs))
        if explore:
            noise = torch.randn(action.shape, generator=generator, device=action.device)
            action = (action + self.config.explore_noise * noise).clamp(-1, 1)
        return action

    def bootstrap(self, next_obs: Tensor, target_q: QFn) -> Bootstrap:
        """The target policy with clipped smoothing noise; one draw for all heads and atoms."""
        action = torch.tanh(self.target_net(next_obs))
        noise = torch.randn(action.shape, generator=self._target_noise, device=action.device)
        bound = self.config.target_noise_clip
        noise = (self.config.target_noise * noise).clamp(-bound, bound)
        return Bootstrap((action + noise).clamp(-1, 1), torch.zeros_like(action[:, 0]))

    def loss(self, batch: Batch, q: QFn) -> tuple[Tensor, Metrics]:
        """-mean Q(s, pi(s))."""
        return -q(batch.obs, torch.tanh(self.net(batch.obs))).mean(), {}
