"""Every pair of actor and critic as an off-policy algorithm of Stable-Baselines3."""

from collections import defaultdict
from typing import Any, ClassVar, Self

import torch
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.utils import FloatSchedule
from torch import Tensor, nn

from bridgerl.actors import ActorConfig
from bridgerl.actors.sac import AutoTemperature, Temperature
from bridgerl.critics import CriticConfig
from bridgerl.runs.log import SB3_TAGS
from bridgerl.sb3 import files, settings, spaces
from bridgerl.sb3.policy import ActorView, AgentPolicy, CriticView, to_batch
from bridgerl.sb3.saved import Saved
from bridgerl.sb3.words import ArgumentRefused, spoken
from bridgerl.streams import Streams
from bridgerl.training.step import check_streak
from bridgerl.types import Batch

POLICIES = ("MlpPolicy", "MultiInputPolicy")
"""Names of the one policy there is; the second for Dict observations, as there."""


class ActorCritic(Saved):
    """Any actor with any critic: `ActorCritic("MlpPolicy", env, actor="td3", critic="dbc")`.

    What Stable-Baselines3's SAC has too means the same. `learning_rate` and `tau` None leave
    each part its own; `actor_kwargs` and `critic_kwargs` are fields of their configs.
    Normalisers and `return_unit` are as in `bridgerl train`; None leaves them to the preset.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = dict.fromkeys(POLICIES, AgentPolicy)
    critic_name: ClassVar[str | None] = None
    """The one critic of a class, None: any."""

    def __init_subclass__(cls, critic: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.critic_name = critic or cls.critic_name

    def __init__(  # noqa: PLR0913
        self,
        policy: str | type[AgentPolicy] = "MlpPolicy",
        env: GymEnv | str | None = None,
        learning_rate: float | Schedule | None = None,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float | None = None,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        actor: str | ActorConfig = "sac",
        critic: str | CriticConfig | None = None,
        preset: str = "lite",
        actor_kwargs: dict[str, Any] | None = None,
        critic_kwargs: dict[str, Any] | None = None,
        normalize_obs: bool | None = None,
        normalize_returns: bool | None = None,
        return_unit: float | None = None,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        **words: Any,
    ) -> None:
        if policy not in (*POLICIES, AgentPolicy):
            known = " or ".join(map(repr, POLICIES))
            raise ArgumentRefused(f"the policy must be {known}, got {policy!r}")
        if env is None and _init_setup_model:
            what = "an environment is needed: an object, or a name such as 'Hopper-v5'"
            raise ArgumentRefused(what)
        env = None if env is None else maybe_make_env(env, verbose)
        name = settings.env_id(env)
        if env is not None:
            # Before Stable-Baselines3 looks: it would advise a policy that is not here.
            spaces.check(name, env.observation_space, env.action_space)
        config = settings.settle(name, actor, critic or self.critic_name or "dbc", preset)
        if self.critic_name not in (None, config.critic_name):
            own, other = type(self).__name__, config.critic_name
            raise ArgumentRefused(f"{own} has no critic {other}; ActorCritic takes any")
        config = settings.adjust(
            config,
            tau=tau,
            policy_kwargs=policy_kwargs,
            actor_kwargs=actor_kwargs,
            critic_kwargs=critic_kwargs,
            words=words,
        )
        amounts = (buffer_size, learning_starts, batch_size, config.critic.polyak, gamma)
        pace = (train_freq, gradient_steps, action_noise)
        replay = (replay_buffer_class, replay_buffer_kwargs, optimize_memory_usage, n_steps)
        super().__init__(
            policy,
            env,  # pyright: ignore[reportArgumentType]
            learning_rate,  # pyright: ignore[reportArgumentType]
            *amounts,
            *pace,
            *replay,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log and str(tensorboard_log),
            verbose=verbose,
            seed=seed,
            device=device,
            support_multi_env=True,
            use_sde=settings.renews_noise(config.actor),
            sde_sample_freq=sde_sample_freq,
            use_sde_at_warmup=use_sde_at_warmup,
            sde_support=False,
        )
        self.config = config
        self._settle(config.train, normalize_obs, normalize_returns, return_unit)
        self._latest: Batch | None = None
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        # Without a seed, the global generator decides, as everywhere in Stable-Baselines3.
        seed = int(torch.randint(2**31, ())) if self.seed is None else self.seed
        self.streams = Streams(seed, str(self.device))
        parts: dict[str, Any] = {"config": self.config, "streams": self.streams}
        parts |= {"normalizer": self._build_normalizer(), "return_unit": self.return_unit}
        self.policy_kwargs = parts
        super()._setup_model()
        # What a file cannot hold is refused now, not after a day of training.
        with spoken():
            files.Header.decode(self._header().encode(), "the model")

    def _setup_lr_schedule(self) -> None:
        """None leaves every optimiser its own rate; the log then shows the critic's."""
        rate = self.config.critic.lr if self.learning_rate is None else self.learning_rate
        self.lr_schedule = FloatSchedule(rate)

    def set_random_seed(self, seed: int | None = None) -> None:
        super().set_random_seed(seed)
        if seed is not None:
            self.streams.reseed(seed)

    @property
    def actor(self) -> ActorView:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.policy.actor

    @property
    def critic(self) -> CriticView:
        return self.policy.critic

    @property
    def critic_target(self) -> nn.Module:
        return self.policy.critic_target

    @property
    def log_ent_coef(self) -> Tensor | None:
        """The logarithm of SAC's temperature while it is learnt, as in Stable-Baselines3."""
        temperature = self._temperature
        return temperature.log_value if isinstance(temperature, AutoTemperature) else None

    @property
    def ent_coef_tensor(self) -> Tensor | None:
        """SAC's temperature."""
        return None if self._temperature is None else self._temperature.value

    @property
    def _temperature(self) -> Temperature | None:
        return getattr(self.agent.actor, "temperature", None)

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train; TensorBoard's folder has the name of the class, unless another is given."""
        name = tb_log_name or type(self).__name__
        how = (callback, log_interval, name, reset_num_timesteps, progress_bar)
        return super().learn(total_timesteps, *how)

    def train(self, gradient_steps: int, batch_size: int | None = None) -> None:
        """Sample and update; the numbers for the log are read from the device once."""
        assert self.replay_buffer is not None
        rows = self.batch_size if batch_size is None else batch_size
        rate = self.lr_schedule(self._current_progress_remaining)
        if self.learning_rate is not None:
            for optimizer in self.agent.optimizers:
                optimizer.lr = rate
        flatten = self.policy.flatten
        history: dict[str, list[Tensor]] = defaultdict(list)
        for _ in range(gradient_steps):
            samples = self.replay_buffer.sample(rows, env=self._vec_normalize_env)
            self._latest = to_batch(samples, self.gamma, flatten)
            for key, value in self.agent.update(self._latest).items():
                history[key].append(value)
        self._n_updates += gradient_steps
        means = [torch.stack(values).mean() for values in history.values()]
        streak, *numbers = torch.stack([self.agent.worst_streak(), *means]).tolist()
        check_streak(streak, self.num_timesteps)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/learning_rate", rate)
        for key, number in zip(history, numbers, strict=True):
            self.logger.record(SB3_TAGS.get(key, key), number)

    def dump_logs(self) -> None:
        """Write the log, with the critic's diagnostics on the latest batch."""
        if self._latest is not None:
            for key, value in self.agent.diagnostics(self._latest).items():
                self.logger.record(SB3_TAGS.get(key, key), float(value))
        super().dump_logs()
