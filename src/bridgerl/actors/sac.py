"""Soft actor-critic with an automatic temperature (Haarnoja et al. 2018, the second paper)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bridgerl.actors.base import Actor, ActorConfig
from bridgerl.nn.flat import GuardedAdam
from bridgerl.nn.heads import network
from bridgerl.nn.squash import tanh_normal
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics, QFn

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class SACConfig(ActorConfig):
    """Soft actor-critic: a tanh-Gaussian policy that is paid for its entropy."""

    temperature: float = 1.0
    """Initial entropy temperature."""
    temperature_lr: float | None = 3e-4
    """Learning rate of the temperature; None keeps it fixed."""
    target_entropy: float | None = None
    """Entropy the temperature steers to; None means minus the action dimension."""

    def __post_init__(self) -> None:
        super().__post_init__()
        value, lr, goal = self.temperature, self.temperature_lr, self.target_entropy
        self.require(0 < value < math.inf, "temperature", "must be positive and finite")
        self.require(lr is None or 0 < lr < 1, "temperature_lr", "must be in (0, 1), or None")
        ok = goal is None or math.isfinite(goal)
        self.require(ok, "target_entropy", "must be finite, or None")

    def build(self, spec: EnvSpec, streams: Streams) -> "SAC":
        return SAC(self, spec, streams)


class Temperature(nn.Module):
    """Fixed entropy temperature."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor([math.log(value)]), requires_grad=False)

    @property
    def value(self) -> Tensor:
        """The temperature, detached, 0-d."""
        return self.log_value.detach().exp().squeeze(0)

    def update(self, mean_log_prob: Tensor) -> Metrics:
        """A fixed temperature learns nothing."""
        return {}


class AutoTemperature(Temperature):
    """Temperature that steers the policy's entropy to a target."""

    def __init__(self, value: float, *, lr: float, target_entropy: float) -> None:
        super().__init__(value)
        self.log_value.requires_grad_(True)
        self._target_entropy = target_entropy
        self.optimizer = GuardedAdam([self.log_value], lr=lr)

    def update(self, mean_log_prob: Tensor) -> Metrics:
        """One step on -log temperature * mean(log pi + target entropy), linear in both."""
        slope = -(mean_log_prob + self._target_entropy)
        loss = (slope * self.log_value.detach()).squeeze(0)
        self.optimizer.descend(loss, [slope])
        return {"actor/temperature_loss": loss}


class SAC(Actor):
    """Policy a = tanh(mean + std * noise); loss mean(temperature * log pi - Q)."""

    def __init__(self, config: SACConfig, spec: EnvSpec, streams: Streams) -> None:
        sizes = (spec.obs_dim, *config.hidden, 2 * spec.action_dim)
        super().__init__(config, network(sizes, config.trunk))
        goal = config.target_entropy
        self.temperature = (
            Temperature(config.temperature)
            if config.temperature_lr is None
            else AutoTemperature(
                config.temperature,
                lr=config.temperature_lr,
                target_entropy=-float(spec.action_dim) if goal is None else goal,
            )
        )
        self._target_noise = streams("target_noise")
        self._policy_noise = streams("policy_noise")

    def act(self, obs: Tensor, q: QFn, *, explore: bool, generator: torch.Generator) -> Tensor:
        """A sample while exploring, tanh(mean) otherwise."""
        mean, log_std = self._parameters_at(obs)
        if explore:
            noise = torch.randn(mean.shape, generator=generator, device=mean.device)
            mean = torch.addcmul(mean, log_std.exp(), noise)
        return torch.tanh(mean)

    def bootstrap(self, next_obs: Tensor, target_q: QFn) -> Bootstrap:
        """A sample of the current policy and the price of its log probability."""
        action, log_prob = self._sample(next_obs, self._target_noise)
        return Bootstrap(action, self.temperature.value * log_prob)

    def loss(self, batch: Batch, q: QFn) -> tuple[Tensor, Metrics]:
        """mean(temperature * log pi(a|s) - Q(s, a)) with a reparameterised."""
        action, log_prob = self._sample(batch.obs, self._policy_noise)
        temperature = self.temperature.value
        loss = (temperature * log_prob - q(batch.obs, action)).mean()
        return loss, {
            "actor/log_prob": log_prob.detach().mean(),
            "actor/temperature": temperature,
        }

    def update(self, batch: Batch, q: QFn) -> Metrics:
        """The policy step, then the temperature step on the same log probabilities."""
        metrics = super().update(batch, q)
        return metrics | self.temperature.update(metrics["actor/log_prob"])

    def _parameters_at(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def _sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Reparameterised action (b, a) and log probability (b,)."""
        mean, log_std = self._parameters_at(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return tanh_normal(mean, log_std, noise)
