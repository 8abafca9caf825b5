"""Every pair of actor and critic as an off-policy algorithm of Stable-Baselines3."""

import warnings
from collections import defaultdict
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
from stable_baselines3.common.base_class import maybe_make_env
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.common.utils import FloatSchedule, check_for_correct_spaces, get_system_info
from torch import Tensor

from bridgerl.actors import ActorConfig
from bridgerl.agent import Agent
from bridgerl.critics import CriticConfig
from bridgerl.errors import StorageFault, UserError, nearest
from bridgerl.nn.flat import GuardedAdam
from bridgerl.runs.log import SB3_TAGS
from bridgerl.runs.tensors import check_fit, with_prefix, without_prefix
from bridgerl.sb3 import files, settings
from bridgerl.sb3.normalize import Normalizing
from bridgerl.sb3.policy import AgentPolicy, to_batch
from bridgerl.streams import Streams
from bridgerl.training.envs import check_spaces
from bridgerl.training.step import check_streak
from bridgerl.types import Batch

ATTRIBUTES = [f.name for f in fields(files.Attributes)]


class ActorCritic(Normalizing):
    """Any actor with any critic: `ActorCritic("MlpPolicy", env, actor="td3", critic="dbc")`.

    What Stable-Baselines3's SAC has too means the same. `learning_rate` and `tau` None leave
    each part its own; `actor_kwargs` and `critic_kwargs` are fields of their configs. The last
    three are as in `bridgerl train`; None leaves them to the preset.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MlpPolicy": AgentPolicy}
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
    ) -> None:
        if policy not in ("MlpPolicy", AgentPolicy):
            raise UserError(f"the policy must be 'MlpPolicy', got {policy!r}")
        if env is None and _init_setup_model:
            raise UserError("an environment is needed: an object, or a name such as 'Hopper-v5'")
        env = None if env is None else maybe_make_env(env, verbose)
        name = settings.env_id(env)
        if env is not None:
            # Before Stable-Baselines3 looks: it would advise a policy that is not here.
            check_spaces(name, env)  # pyright: ignore[reportArgumentType]
        config = settings.settle(name, actor, critic or self.critic_name or "dbc", preset)
        if self.critic_name not in (None, config.critic_name):
            own, other = type(self).__name__, config.critic_name
            raise UserError(f"{own} has no critic {other}; ActorCritic takes any")
        changes = settings.widths(policy_kwargs or {})
        for part, given in (("actor", actor_kwargs), ("critic", critic_kwargs)):
            if tau is not None and hasattr(getattr(config, part), "polyak"):
                changes[part]["polyak"] = tau  # Not every actor has a target policy.
            config = settings.change(config, part, changes[part] | (given or {}))
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
            sde_support=False,
        )
        self.config = config
        self._settle(config.train, normalize_obs, normalize_returns, return_unit)
        self._latest: Batch | None = None
        if _init_setup_model:
            self._setup_model()

    @property
    def agent(self) -> Agent:
        return self.policy.agent

    def _setup_model(self) -> None:
        # Without a seed, the global generator decides, as everywhere in Stable-Baselines3.
        seed = int(torch.randint(2**31, ())) if self.seed is None else self.seed
        self.streams = Streams(seed, str(self.device))
        parts = {"config": self.config, "streams": self.streams}
        self.policy_kwargs = parts | {"normalizer": self._build_normalizer()}
        super()._setup_model()
        self.actor, self.critic = self.agent.actor, self.agent.critic
        self._optimizers = [m for m in self.agent.modules() if isinstance(m, GuardedAdam)]
        # What a file cannot hold is refused now, not after a day of training.
        files.Header.decode(self._header().encode(), "the model")

    def _setup_lr_schedule(self) -> None:
        """None leaves every optimiser its own rate; the log then shows the critic's."""
        rate = self.config.critic.lr if self.learning_rate is None else self.learning_rate
        self.lr_schedule = FloatSchedule(rate)

    def set_random_seed(self, seed: int | None = None) -> None:
        super().set_random_seed(seed)
        if seed is not None:
            fresh = Streams(seed, str(self.device))
            self.streams.load({name: fresh(name).get_state() for name in self.streams.state()})

    def train(self, gradient_steps: int, batch_size: int) -> None:
        """Sample and update; the numbers for the log are read from the device once."""
        assert self.replay_buffer is not None
        rate = self.lr_schedule(self._current_progress_remaining)
        if self.learning_rate is not None:
            for optimizer in self._optimizers:
                optimizer.lr = rate
        history: dict[str, list[Tensor]] = defaultdict(list)
        for _ in range(gradient_steps):
            samples = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            self._latest = to_batch(samples, self.gamma)
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
        """Write the log, with the critic's figures on the latest batch."""
        if self._latest is not None:
            for key, value in self.agent.figures(self._latest).items():
                self.logger.record(SB3_TAGS.get(key, key), float(value))
        super().dump_logs()

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: torch.device | str = "auto"
    ) -> None:
        """Take the weights of a state dict or of a saved model, in place."""
        if not isinstance(load_path_or_dict, dict):
            _, tensors = files.read_model(load_path_or_dict)
            names = self.policy.state_dict()
            load_path_or_dict = {"policy": {k: v for k, v in tensors.items() if k in names}}
        super().set_parameters(load_path_or_dict, exact_match, device)

    def save(self, path: files.Place, exclude: Any = None, include: Any = None) -> None:
        """Write settings, weights, optimisers and random streams; docs/sb3.md tells the format."""
        if exclude or include:
            raise UserError("a saved model is always whole: exclude and include change nothing")
        files.write_model(path, self._header(), self._tensors())

    @classmethod
    def load(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        path: files.Place,
        env: GymEnv | None = None,
        device: torch.device | str = "auto",
        custom_objects: None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Make a saved model again; keywords replace its stored arguments."""
        if custom_objects is not None:
            raise UserError("no file of ours holds code, so there are no custom_objects to replace")
        if print_system_info:
            get_system_info()
        header, tensors = files.read_model(path)
        known = [*ATTRIBUTES, *files.CODE]
        for key in kwargs:
            if key not in known:
                raise UserError(f"load cannot change {key!r}{nearest(key, known)}")
        lost = ", ".join(set(header.not_stored) - set(kwargs))
        if env is not None and lost:
            message = f"no file holds {lost}: to train on as before, pass it to load()"
            warnings.warn(message, stacklevel=2)
        config, spaces = settings.from_json(header.agent), files.boxes(tensors)
        files.check_widths(config, tensors)
        # Where something is written is the user's to say, not the file's.
        stored = dict(vars(header.attributes)) | {"tensorboard_log": None}
        stored["train_freq"] = stored["train_freq"], stored.pop("train_unit")
        if env is not None:
            env = cls._wrap_env(env)
            check_for_correct_spaces(env, *spaces)
            stored["n_envs"] = env.num_envs
        parts = {"actor": config.actor, "critic": config.critic, "preset": config.preset}
        model = cls(env=env, device=device, _init_setup_model=False, **parts)
        model.config = config
        model.observation_space, model.action_space = spaces
        vars(model).update(stored | kwargs)
        try:
            model._setup_model()
        except (RuntimeError, MemoryError, TypeError, ValueError, OverflowError) as error:
            text = " ".join(str(error).split())
            raise StorageFault(
                f"the model that the file describes cannot be made: {text}"
            ) from None
        weights = without_prefix(tensors, "agent.")
        check_fit(weights, model.agent.state_dict(), "the saved model")
        model.agent.load_state_dict(weights)
        if header.device == model.device.type:  # Generators of other devices have other states.
            states = without_prefix(tensors, "stream.")
            check_fit(states, model.streams.state(), "the saved model")
            model.streams.load(states)
        return model

    def save_replay_buffer(self, path: files.Place) -> None:
        files.write_buffer(path, self.replay_buffer)

    def load_replay_buffer(self, path: files.Place, truncate_last_traj: bool = True) -> None:
        files.read_buffer(path, self.replay_buffer)

    def _tensors(self) -> dict[str, Tensor]:
        spaces: Any = {name: getattr(self, name) for name in files.SPACES}
        lows = {f"{k}.low": torch.from_numpy(v.low) for k, v in spaces.items()}
        highs = {f"{k}.high": torch.from_numpy(v.high) for k, v in spaces.items()}
        streams = with_prefix("stream.", self.streams.state())
        return self.policy.state_dict() | streams | lows | highs

    def _header(self) -> files.Header:
        """Settings, arguments and counters, as far as they are data."""
        frequency: Any = self.train_freq
        usual = NStepReplayBuffer if self.n_steps > 1 else ReplayBuffer
        code = {
            "learning_rate": callable(self.learning_rate),
            "action_noise": self.action_noise is not None,
            "replay_buffer_class": self.replay_buffer_class is not usual,
        }
        data: dict[str, Any] = {name: getattr(self, name, None) for name in ATTRIBUTES}
        data |= {"train_freq": frequency.frequency, "train_unit": frequency.unit.value}
        data["tensorboard_log"] = None
        if code["learning_rate"]:
            # Where it started: where it ended may be 0, and a constant 0 would learn nothing.
            data["learning_rate"] = float(self.lr_schedule(1.0))
        if code["replay_buffer_class"]:
            data["replay_buffer_kwargs"] = {}
        data = {k: v.item() if isinstance(v, np.generic) else v for k, v in data.items()}
        return files.Header(
            agent=settings.to_json(self.config),
            attributes=files.Attributes(**data),
            device=self.device.type,
            not_stored=tuple(name for name, lost in code.items() if lost),
        )
