"""Q-weighted variational policy optimisation (Ding et al. 2024): a diffusion policy.

No gradient of Q reaches the policy: it imitates its own best actions, weighted by advantage.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from bridgerl.actors.base import TargetActor, TargetActorConfig
from bridgerl.nn.denoiser import Denoiser, StepEmbedding
from bridgerl.nn.diffusion import Diffusion
from bridgerl.nn.heads import reader
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics, QFn

PAPER_UPDATES = 1_000_000


@dataclass(frozen=True)
class QVPOConfig(TargetActorConfig):
    """QVPO: a diffusion policy that imitates its best actions and a few uniform ones."""

    trunk_widths = "features"

    lr: float = 1e-4
    """Adam learning rate."""
    adam_eps: float = 1e-5
    """Adam epsilon."""
    grad_clip: float | None = 2.0
    """Largest gradient norm over all parameters jointly; None turns clipping off."""
    features: tuple[int, ...] = ()
    """Widths of a trunk that reads s before the denoiser; none by default."""
    diffusion_steps: int = 20
    """Steps T from noise to action."""
    n_embed: int = 32
    """Sinusoids in the embedding of a step."""
    noise_ratio: float = 1.0
    """Share of the noise that denoising adds on its way."""
    n_explore: int = 4
    """Candidates, the best of which is taken, when exploring."""
    n_target: int = 4
    """Candidates for the target's next action."""
    n_play: int = 32
    """Candidates when playing."""
    n_train: int = 64
    """Candidates per state, the best of which is imitated."""
    n_uniform: int = 10
    """Uniform actions per state that are imitated too: the entropy term."""
    entropy: float = 0.02
    """Weight of a uniform action at the start, where the best action of its state counts 1."""
    entropy_end: float = 0.002
    """Smallest weight of a uniform action later; a start below it stays as it is."""
    entropy_updates: int | None = None
    """Actor updates in which that weight would fall to zero, if entropy-end did not stop it. None:
    those of the run as it was begun; without a run, a million."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_counts("diffusion_steps", "n_embed")
        self.require_counts("n_explore", "n_target", "n_play", "n_train")
        self.require(self.n_embed % 2 == 0, "n_embed", "must be even")
        self.require(self.n_train >= 2, "n_train", "must be at least 2, to have an advantage")
        self.require(0 <= self.n_uniform <= 65536, "n_uniform", "must be from 0 to 65536")
        self.require_not_negative("noise_ratio", "entropy", "entropy_end")
        ok = self.entropy_updates is None or self.entropy_updates >= 1
        self.require(ok, "entropy_updates", "must be at least 1, or None")

    def settled(self, updates: int) -> "QVPOConfig":
        """Let the entropy fall over the run's own length."""
        known = self.entropy_updates or max(updates // self.delay, 1)
        return replace(self, entropy_updates=known)

    def build(self, spec: EnvSpec, streams: Streams) -> "QVPO":
        return QVPO(self, spec, streams)


class QVPO(TargetActor):
    """Policy: denoise Gaussian noise to an action; loss: advantage-weighted noise prediction."""

    follows_gradient = False
    net: Denoiser
    target_net: Denoiser
    n_updates: Tensor

    def __init__(self, config: QVPOConfig, spec: EnvSpec, streams: Streams) -> None:
        trunk, width = reader(spec.obs_dim, config.features, config.trunk)
        embed = StepEmbedding(config.diffusion_steps, config.n_embed, 8 * config.n_embed)
        net = Denoiser(spec.action_dim, width, config.hidden, embed, trunk)
        for module in net.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.5 * module.in_features**-0.5)
                nn.init.zeros_(module.bias)
        super().__init__(config, net)
        self.config = config
        self.action_dim = spec.action_dim
        self.diffusion = Diffusion(config.diffusion_steps)
        self.register_buffer("n_updates", torch.zeros(()))
        self._target_draws, self._policy_draws = streams("target_noise"), streams("policy_noise")
        self._diffuse_draws = streams("policy_diffusion")

    def act(self, obs: Tensor, q: QFn, *, explore: bool, generator: torch.Generator) -> Tensor:
        """The best of a few samples, of more when not exploring."""
        if explore:
            samples = self._sample(self.net, obs, self.config.n_explore, generator)
        else:  # Equal observations of a batch get equal candidates.
            samples = self._sample(self.net, obs, self.config.n_play, generator, shared=True)
        return self._best(samples, obs, q)[0]

    def bootstrap(self, next_obs: Tensor, target_q: QFn) -> Bootstrap:
        """The best of a few samples of the target policy, under the target critic."""
        samples = self._sample(self.target_net, next_obs, self.config.n_target, self._target_draws)
        action, _ = self._best(samples, next_obs, target_q)
        return Bootstrap(action, torch.zeros_like(action[:, 0]))

    def loss(self, batch: Batch, q: QFn) -> tuple[Tensor, Metrics]:
        """Mean over b (1 + n_uniform) actions of weight * squared error of the predicted noise."""
        c, obs = self.config, batch.obs
        with torch.no_grad():
            samples = self._sample(self.net, obs, c.n_train, self._policy_draws)
            best, values = self._best(samples, obs, q)
            # Rounding alone could make it negative.
            advantage = (values.amax(1) - values.mean(1)).clamp(min=0)[:, None]
            entropy = self._entropy()
            g, shape = self._diffuse_draws, (len(obs), c.n_uniform, self.action_dim)
            uniform = torch.rand(shape, generator=g, device=obs.device) * 2 - 1
            goals = torch.cat([best[:, None], uniform], 1)
            weight = torch.cat([advantage, (entropy * advantage).expand(-1, c.n_uniform)], 1)
            k = torch.randint(c.diffusion_steps, weight.shape, generator=g, device=obs.device)
            eps = torch.randn(goals.shape, generator=g, device=obs.device)
            x = self.diffusion.diffuse(goals, eps, k)
        error = self.net(self.net.begin(obs), x, k) - eps
        loss = (weight[..., None] * error.square()).mean()
        return loss, {
            "actor/advantage": advantage.mean(),
            "actor/q_best": values.amax(1).mean(),
            "actor/entropy_weight": entropy,
            "actor/spread": samples.std(1).mean(),
        }

    def update(self, batch: Batch, q: QFn) -> Metrics:
        """The policy step, counted for the entropy weight."""
        metrics = super().update(batch, q)
        self.n_updates.add_(1)
        return metrics

    def _entropy(self) -> Tensor:
        """Weight of a uniform action: falls linearly to its floor, 0-d."""
        c = self.config
        left = 1 - self.n_updates / (c.entropy_updates or PAPER_UPDATES)
        return (c.entropy * left).clamp(min=min(c.entropy_end, c.entropy))

    def _sample(
        self,
        net: Denoiser,
        obs: Tensor,
        n: int,
        generator: torch.Generator,
        *,
        shared: bool = False,
    ) -> Tensor:
        """N actions per state, of noise that rows may share, without gradient: (b, n, a)."""
        b = obs.shape[0]
        shape = (self.config.diffusion_steps, 1 if shared else b, n, self.action_dim)
        noise = torch.randn(shape, generator=generator, device=obs.device).expand(-1, b, -1, -1)
        with torch.no_grad():
            return self.diffusion.denoise(
                partial(net, net.begin(obs)),
                noise,
                limits=(-1.0, 1.0),
                noise_ratio=self.config.noise_ratio,
            )

    @torch.no_grad()
    def _best(self, samples: Tensor, obs: Tensor, q: QFn) -> tuple[Tensor, Tensor]:
        """Each state's best of its candidates (b, n, a) under q, and all values: (b, a), (b, n)."""
        b, n, _ = samples.shape
        values = q(obs.repeat_interleave(n, 0), samples.flatten(0, 1)).view(b, n)
        return samples[torch.arange(b, device=obs.device), values.argmax(1)], values
