"""How a model is saved, loaded and given new environments; nothing is pickled."""

import warnings
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import check_for_correct_spaces, get_system_info
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from torch import Tensor

from bridgerl.agent import Agent
from bridgerl.config import RunConfig
from bridgerl.errors import StorageFault, UserError
from bridgerl.runs.tensors import check_fit, without_prefix
from bridgerl.sb3 import arguments, files, replay, settings, spaces
from bridgerl.sb3.normalize import Normalizing
from bridgerl.sb3.policy import AgentPolicy
from bridgerl.sb3.words import ArgumentRefused
from bridgerl.streams import Streams

LAST = {"obs": "_last_obs", "original_obs": "_last_original_obs", "starts": "_last_episode_starts"}
"""Where the environments stood, by the names in the file."""
SUMS = "last.return_sums"
"""Name of what the return normaliser had added up of the episodes under way."""


class Saved(Normalizing):
    """An algorithm whose models are files of settings and tensors."""

    config: RunConfig
    streams: Streams
    _lost: tuple[str, ...] = ()
    """Arguments that a loaded model had and no file holds."""

    @property
    def agent(self) -> Agent:
        return self.policy.agent

    @property
    def _plain_policy(self) -> AgentPolicy:
        """The policy itself, also where torch.compile has wrapped it."""
        return getattr(self.policy, "_orig_mod", self.policy)

    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: torch.device | str = "auto"
    ) -> None:
        """Take the weights of a state dict or of a saved model, in place."""
        policy, self.policy = self.policy, self._plain_policy
        try:
            if not isinstance(load_path_or_dict, dict):
                _, tensors = files.read_model(load_path_or_dict)
                names = self.policy.state_dict()
                load_path_or_dict = {"policy": {k: v for k, v in tensors.items() if k in names}}
            super().set_parameters(load_path_or_dict, exact_match, device)
        finally:
            self.policy = policy

    def save(
        self,
        path: files.Place,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        """Write settings, weights, optimisers and random streams; docs/sb3.md tells the format.

        What is excluded gets the value that the constructor would give it.
        """
        included = set(include or ())
        if more := sorted(included - set(arguments.ATTRIBUTES)):
            raise ArgumentRefused(f"include cannot add {', '.join(more)} to a file without pickles")
        header = self._header(set(exclude or ()) - included)
        files.write_model(path, header, self._tensors() | self._standing())

    @classmethod
    def load(
        cls,
        path: files.Place,
        env: GymEnv | None = None,
        device: torch.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Make a saved model again; keywords replace its stored arguments.

        `custom_objects` do so too, where there is something to replace, and may name the spaces.
        """
        if print_system_info:
            get_system_info()
        header, tensors = files.read_model(path)
        custom = custom_objects or {}
        given = arguments.given(custom, kwargs)
        config = settings.from_json(header.agent)
        arguments.take_parts(config, given)
        config = arguments.adjusted(config, given)
        stored = zip(spaces.SPACES, spaces.from_tensors(tensors), strict=True)
        found = [custom.get(name, space) for name, space in stored]
        files.check_widths(config, found[0], tensors)
        env = None if env is None else cls._wrap_env(env)
        if env is not None:
            check_for_correct_spaces(env, *found)
        how: dict[str, Any] = {name: getattr(config, name) for name in arguments.PARTS}
        how |= {"policy": AgentPolicy, "env": env, "device": device, "_init_setup_model": False}
        model = cls(**how)
        model.config, model.tau = config, config.critic.polyak
        model.observation_space, model.action_space = found
        vars(model).update(arguments.stored(header, env) | given)
        model._lost = tuple(set(header.not_stored) - set(given))
        model._build()
        model._fill(header, tensors, seeded=given.get("seed") is not None)
        if env is not None:
            model._warn_of_lost()
            if not force_reset:
                model._stand_where(tensors)
        return model

    def _build(self) -> None:
        """Make what the file describes, or refuse it in one line."""
        try:
            self._setup_model()
        except (RuntimeError, MemoryError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, UserError):
                raise
            text = " ".join(str(error).split())
            raise StorageFault(
                f"the model that the file describes cannot be made: {text}"
            ) from None

    def _fill(self, header: files.Header, tensors: dict[str, Tensor], *, seeded: bool) -> None:
        """Take over weights and optimisers, and random streams unless a seed began new ones."""
        weights = without_prefix(tensors, "agent.")
        check_fit(weights, self.agent.state_dict(), "the saved model")
        self.agent.load_state_dict(weights)
        # Generators of other devices have other states.
        if header.device == self.device.type and not seeded:
            states = without_prefix(tensors, "stream.")
            check_fit(states, self.streams.state(), "the saved model")
            self.streams.load(states)

    def _stand_where(self, tensors: dict[str, Tensor]) -> None:
        """Go on from the observations that the saved model saw last, if it saw any."""
        assert self.env is not None
        for name, attribute in LAST.items():
            whole = tensors.get(f"last.{name}")
            parts = {k: v.numpy() for k, v in without_prefix(tensors, f"last.{name}/").items()}
            setattr(self, attribute, whole.numpy() if whole is not None else parts or None)
        starts, n_envs = self._last_episode_starts, self.env.num_envs
        if starts is None:
            return
        if starts.shape != (n_envs,):
            held = f"the model was saved with {starts.size} environments, not {n_envs}"
            raise ArgumentRefused(f"force_reset must be True: {held}")
        if not spaces.holds(self.observation_space, self._last_obs, n_envs):
            raise StorageFault("the saved model has no valid last observations; force a reset")
        returns, sums = self.agent.normalizer.returns, tensors.get(SUMS)
        if returns is not None and sums is not None:  # Earlier releases did not keep them.
            check_fit({SUMS: sums}, self._return_sums(), "the saved model")
            returns.go_on(sums.tolist())

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        super().set_env(env, force_reset)
        if isinstance(self.replay_buffer, HerReplayBuffer):
            self.replay_buffer.env = self.env  # It asks for rewards there.
        self._warn_of_lost()

    def _still_lost(self) -> list[str]:
        """What a loaded model had that no file holds and nobody has given it since."""
        return [name for name in files.CODE if name in self._lost and not self._code()[name]]

    def _code(self) -> dict[str, bool]:
        """Which of the arguments that may be code are."""
        return {
            "learning_rate": callable(self.learning_rate),
            "action_noise": self.action_noise is not None,
            "replay_buffer_class": not self._usual_buffer,
        }

    def _warn_of_lost(self) -> None:
        if lost := ", ".join(self._still_lost()):
            message = f"no file holds {lost}: to train on as before, pass it to load()"
            warnings.warn(message, stacklevel=3)

    def save_replay_buffer(self, path: files.Place) -> None:
        replay.write(path, self.replay_buffer)

    def load_replay_buffer(self, path: files.Place, truncate_last_traj: bool = True) -> None:
        """Put what a file holds in the place of the model's own buffer, as large as it was."""
        buffer = replay.read(path, self.n_envs, self._empty_buffer)
        buffer.device = self.device
        if isinstance(buffer, HerReplayBuffer) and truncate_last_traj:
            buffer.truncate_last_trajectory()
        self.replay_buffer = buffer

    def _empty_buffer(self, size: int) -> ReplayBuffer:
        assert self.replay_buffer_class is not None
        how: dict[str, Any] = dict(self.replay_buffer_kwargs)
        if issubclass(self.replay_buffer_class, HerReplayBuffer):
            how["env"] = self.env
        how |= {"device": self.device, "n_envs": self.n_envs}
        how["optimize_memory_usage"] = self.optimize_memory_usage
        sizes: Any = size, self.observation_space, self.action_space
        return self.replay_buffer_class(*sizes, **how)

    @property
    def _usual_buffer(self) -> bool:
        """Whether the class of the buffer is one that its settings already decide."""
        kind = self.replay_buffer_class
        fits = (kind is NStepReplayBuffer) == (self.n_steps > 1)
        return kind is HerReplayBuffer or (kind in replay.KINDS.values() and fits)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = self._plain_policy.tensors()
        for name in spaces.SPACES:
            tensors |= spaces.to_tensors(getattr(self, name), name)
        return tensors

    def _standing(self) -> dict[str, Tensor]:
        """What the environments showed last, for who goes on without a reset."""
        tensors = self._return_sums()
        for name, attribute in LAST.items():
            value: Any = getattr(self, attribute)
            parts = value if isinstance(value, dict) else {}
            tensors |= {f"last.{name}/{k}": torch.as_tensor(v) for k, v in parts.items()}
            if isinstance(value, np.ndarray):
                tensors[f"last.{name}"] = torch.as_tensor(value)
        return tensors

    def _return_sums(self) -> dict[str, Tensor]:
        """What the return normaliser has added up of the episodes under way, if there is one."""
        returns = self.agent.normalizer.returns
        return {} if returns is None else {SUMS: torch.tensor(returns.sums, dtype=torch.float64)}

    def _header(self, exclude: Iterable[str] = ()) -> files.Header:
        """Settings, arguments and counters, as far as they are data."""
        frequency: Any = self.train_freq
        lost = self._code() | dict.fromkeys(self._still_lost(), True)
        data: dict[str, Any] = {name: getattr(self, name, None) for name in arguments.ATTRIBUTES}
        data |= {"train_freq": frequency.frequency, "train_unit": frequency.unit.value}
        data |= {"tensorboard_log": None, "buffer_kind": None}
        if callable(self.learning_rate):
            # Where it started: where it ended may be 0, and a constant 0 would learn nothing.
            data["learning_rate"] = float(self.lr_schedule(1.0))
        if self.replay_buffer_class is HerReplayBuffer:
            data["buffer_kind"] = HerReplayBuffer.__name__
        data["replay_buffer_kwargs"] = self._buffer_kwargs() if self._usual_buffer else {}
        defaults = arguments.defaults(type(self))
        data |= {name: defaults[name] for name in exclude if name in data and name in defaults}
        data = {k: v.item() if isinstance(v, np.generic) else v for k, v in data.items()}
        return files.Header(
            agent=settings.to_json(self.config),
            attributes=files.Attributes(**data),
            device=self.device.type,
            not_stored=tuple(name for name, gone in lost.items() if gone),
        )

    def _buffer_kwargs(self) -> dict[str, Any]:
        """Arguments of the buffer, a strategy of HER by its name."""
        kwargs = dict(self.replay_buffer_kwargs)
        return {
            k: v.name.lower() if isinstance(v, GoalSelectionStrategy) else v
            for k, v in kwargs.items()
        }
