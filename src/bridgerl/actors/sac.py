"""Soft actor-critic with an automatic temperature (Haarnoja et al. 2018, the second paper)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bridgerl.actors.base import Actor, ActorConfig
from bridgerl.nn.flat import GuardedAdam
from bridgerl.nn.heads import network
from bridgerl.nn.squash import tanh_normal
from bridgerl.nn.state_noise import StateNoise
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics, QFn

LOG_STD_RANGE = (-20.0, 2.0)
SEEDS = 2**24
"""Seeds of held noise, all of which a float32 holds exactly."""


@dataclass(frozen=True)
class SACConfig(ActorConfig):
    """Soft actor-critic: a tanh-Gaussian policy that is paid for its entropy."""

    fewest_hidden = 0

    temperature: float = 1.0
    """Initial entropy temperature."""
    temperature_lr: float | None = 3e-4
    """Learning rate of the temperature; None keeps it fixed."""
    target_entropy: float | None = None
    """Entropy the temperature steers to; None means minus the action dimension."""
    sde: bool = False
    """Explore by noise that is a linear function of the policy's last features (gSDE). Its weights
    are held for some steps, so that an episode is smooth."""
    sde_sample_every: int | None = 64
    """Steps for which the weights of the noise are held; None: until an episode begins."""
    sde_log_std: float = -3.0
    """Initial log standard deviation of the weights of the noise."""
    sde_expln: bool = False
    """Let that deviation grow like a logarithm above 1, not like an exponential."""
    sde_mean_limit: float | None = 2.0
    """Largest size of the mean before its tanh, under sde; None: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        value, lr, goal = self.temperature, self.temperature_lr, self.target_entropy
        self.require(0 < value < math.inf, "temperature", "must be positive and finite")
        self.require(lr is None or 0 < lr < 1, "temperature_lr", "must be in (0, 1), or None")
        ok = goal is None or math.isfinite(goal)
        self.require(ok, "target_entropy", "must be finite, or None")
        every, limit = self.sde_sample_every, self.sde_mean_limit
        self.require(every is None or every >= 1, "sde_sample_every", "must be at least 1, or None")
        ok = -20 <= self.sde_log_std <= 2
        self.require(ok, "sde_log_std", "must be from -20 to 2")
        ok = limit is None or 0 < limit < math.inf
        self.require(ok, "sde_mean_limit", "must be positive and finite, or None")

    def build(self, spec: EnvSpec, streams: Streams) -> "SAC":
        return (StateSAC if self.sde else SAC)(self, spec, streams)


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
        super().__init__(config, self._network(config, spec))
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

    @staticmethod
    def _network(config: SACConfig, spec: EnvSpec) -> nn.Module:
        return network((spec.obs_dim, *config.hidden, 2 * spec.action_dim), config.trunk)

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

    def loss(self, batch: Batch, q: QFn) -> tuple[Tensor, Metrics, Tensor]:
        """mean(temperature * log pi(a|s) - Q(s, a)) with a reparameterised; mean log pi besides."""
        action, log_prob = self._sample(batch.obs, self._policy_noise)
        temperature = self.temperature.value
        loss = (temperature * log_prob - q(batch.obs, action)).mean()
        mean_log_prob = log_prob.detach().mean()
        metrics = {"actor/log_prob": mean_log_prob, "actor/temperature": temperature}
        return loss, metrics, mean_log_prob

    def learn_beside(self, *lessons: Tensor) -> Metrics:
        """The temperature's step, on the log probabilities of the policy's."""
        (mean_log_prob,) = lessons
        return self.temperature.update(mean_log_prob)

    def _parameters_at(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def _sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Reparameterised action (b, a) and log probability (b,)."""
        mean, log_std = self._parameters_at(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return tanh_normal(mean, log_std, noise)


class HeldNoise(nn.Module):
    """The noise that is held: a seed, as every row of a batch needs weights of its own."""

    training_only = True
    seed: Tensor
    age: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.tensor(-1.0))  # None yet.
        self.register_buffer("age", torch.tensor(0.0))


class StateSAC(SAC):
    """SAC that explores with a = tanh(mean + x @ W), x its last features and W held (gSDE).

    Losses sample the Gaussian that this is over all W, with draws of their own for every row.
    """

    net: StateNoise

    def __init__(self, config: SACConfig, spec: EnvSpec, streams: Streams) -> None:
        super().__init__(config, spec, streams)
        self._every, self.held = config.sde_sample_every, HeldNoise()

    @staticmethod
    def _network(config: SACConfig, spec: EnvSpec) -> nn.Module:
        return StateNoise(
            (spec.obs_dim, *config.hidden, spec.action_dim),
            config.trunk,
            log_std=config.sde_log_std,
            use_expln=config.sde_expln,
            mean_limit=config.sde_mean_limit,
        )

    def act(self, obs: Tensor, q: QFn, *, explore: bool, generator: torch.Generator) -> Tensor:
        """The held noise on top of the mean while exploring, each row's its own."""
        if not explore:
            return super().act(obs, q, explore=False, generator=generator)
        old = self._every is not None and self.held.age >= self._every
        if old or self.held.seed < 0:
            self.reset_noise(generator)
        self.held.age += 1
        source = torch.Generator(obs.device).manual_seed(int(self.held.seed))
        shape = (obs.shape[0], *self.net.std.shape)
        draws = torch.randn(shape, generator=source, device=obs.device)
        return torch.tanh(self.net.explore(obs, draws))

    def begin_episode(self) -> None:
        """Ask for other noise, unless steps are counted."""
        if self._every is None:
            self.held.seed.fill_(-1.0)

    def reset_noise(self, generator: torch.Generator) -> None:
        """Draw other weights for the noise."""
        seed = torch.randint(SEEDS, (), generator=generator, device=generator.device)
        self.held.seed.copy_(seed)
        self.held.age.zero_()

    def _parameters_at(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.net(obs)
