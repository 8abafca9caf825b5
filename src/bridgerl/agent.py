"""One actor and one critic; the only place that knows in which order they learn."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from bridgerl.actors import ActorConfig
from bridgerl.actors.base import Actor
from bridgerl.config import TrainConfig
from bridgerl.critics import CriticConfig
from bridgerl.critics.base import Critic
from bridgerl.errors import UserError
from bridgerl.nn.flat import GuardedAdam, Pinned
from bridgerl.nn.normalize import Normalizer, ObsMoments, ReturnScale
from bridgerl.ops.levels import Numbers, as_levels
from bridgerl.ops.quantile import shifted
from bridgerl.presets import resolve
from bridgerl.settings.measures import MEAN, Measure, parse
from bridgerl.streams import Streams, derive_seed, require_streams
from bridgerl.types import Batch, Bootstrap, EnvSpec, Metrics, QFn

T = TypeVar("T")
Rows = Tensor | np.ndarray


class Agent(Pinned):
    """A policy and its value; state_dict() holds all that learning has changed.

    From outside, everything is in the task's units. Inside, actor and critic may live in others:
    the agent alone knows the normaliser between them.
    """

    def __init__(  # noqa: PLR0913
        self,
        actor: Actor,
        critic: Critic,
        streams: Streams,
        *,
        actor_every: int,
        target_every: int,
        normalizer: Normalizer | None = None,
        risk: Measure = MEAN,
        sizes: tuple[int, int] | None = None,
    ) -> None:
        """`sizes`: numbers in an observation and in an action; others are then refused."""
        super().__init__()
        self.actor, self.critic, self._streams = actor, critic, streams
        self.normalizer = normalizer or Normalizer()
        self.updates = 0
        self.optimizers = [m for m in self.modules() if isinstance(m, GuardedAdam)]
        """Of the policy, of the critic, and of what learns beside them."""
        self._actor_every = actor_every
        self._target_every = target_every
        self._risk = risk
        if risk.is_mean:
            self._actor_q: QFn = critic.q if actor.follows_gradient else critic.q_rank
            self._rank: QFn = critic.q_rank
            self._target_q: QFn = partial(critic.q_rank, target=True)
        else:
            self._actor_q = partial(self._value, fixed=not actor.follows_gradient)
            self._rank = partial(self._value, fixed=True)
            self._target_q = partial(self._value, fixed=True, target=True)
        self.device = next(actor.parameters()).device
        self.shifts: Tensor | None = None
        """What calibration adds to quantiles at midpoint levels: (k,)."""
        self._sizes = sizes or (None, None)

    def begin_episode(self, obs: np.ndarray, env: int = 0) -> None:
        """Take note of an episode's first observation, (o,)."""
        self.normalizer.begin_episode(obs, env)
        self.actor.begin_episode()

    def observe(self, obs: np.ndarray, reward: float, env: int = 0) -> None:
        """Take note of a training step: the observation (o,) it reached and its reward."""
        ratio = self.normalizer.add(obs, reward, env)
        if ratio != 1:
            self.critic.rescale(ratio)

    def act(
        self, obs: Rows, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> np.ndarray:
        """`actions` for one observation: (o,) -> (a,)."""
        one = torch.as_tensor(obs)[None]
        return self.actions(one, explore=explore, generator=generator)[0].cpu().numpy()

    @torch.no_grad()
    def actions(
        self, obs: Rows, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Actions in [-1, 1] for a batch of observations: (b, o) -> (b, a).

        Without a generator equal observations get equal actions at every call.
        """
        if generator is None:
            if explore:
                hint = "pass generator=torch.Generator(agent.device)"
                raise UserError(f"exploring draws anew at every call; {hint}, and keep it")
            # Some policies draw candidates though they do not explore.
            generator = torch.Generator(self.device).manual_seed(0)
        return self.actor.act(self._seen(obs), self._rank, explore=explore, generator=generator)

    @property
    def _gain(self) -> float:
        """What the learner's returns are, over those of the task."""
        return 1.0 if self.normalizer.returns is None else self.normalizer.returns.gain

    def _value(self, obs: Tensor, action: Tensor, *, fixed: bool, target: bool = False) -> Tensor:
        """What a policy that minds risk maximises, in the learner's units: (b,)."""
        measure = self._risk.rescaled(self._gain)
        return self.critic.risk(obs, action, measure, fixed=fixed, target=target)

    def q(self, obs: Rows, action: Rows) -> Tensor:
        """The mean return, of CDQ the value it uses, its heads' minimum: (b,). Draws nothing."""
        return self.normalizer.in_task_units(self.critic.mean(*self._checked(obs, action)))

    def risk(self, obs: Rows, action: Rows, measure: Measure | str) -> Tensor:
        """A measure of the return such as cvar:0.1: (b,), with a graph to the action."""
        pairs, scaled = self._checked(obs, action), parse(measure).rescaled(self._gain)
        return self.normalizer.in_task_units(self.critic.risk(*pairs, scaled, fixed=True))

    def quantiles(
        self,
        obs: Rows,
        action: Rows,
        tau: Numbers,
        *,
        calibrated: bool = False,
        graph: bool = False,
    ) -> Tensor:
        """Quantiles of the return at levels tau, a number, (k,) or (b or 1, k): (b, k).

        With `calibrated` as `bridgerl calibrate --recalibrate` corrects them; with `graph` they
        can be differentiated, by observations and actions among others.
        """
        z = self.critic.quantiles(*self._checked(obs, action), tau, graph=graph)
        z = self.normalizer.in_task_units(z)
        if not calibrated:
            return z
        if self.shifts is None:
            hint = "run bridgerl calibrate RUN --recalibrate, then load_agent"
            raise UserError(f"these weights were not recalibrated; {hint}")
        return shifted(z, as_levels(tau, z), self.shifts)

    def particles(self, obs: Rows, action: Rows, n: int) -> Tensor:
        """N equally likely returns: (b, n)."""
        if n < 1:
            raise UserError(f"particles must be at least 1, got {n}")
        pairs = self._checked(obs, action)
        return self.normalizer.in_task_units(self.critic.particles(*pairs, n))

    def _rows(self, x: Rows, what: str, n: int | None) -> Tensor:
        """Observations or actions as networks take them, (b, n); other shapes are refused."""
        rows = torch.as_tensor(x, dtype=torch.float32, device=self.device)
        if rows.dim() != 2 or rows.shape[1] != (n or rows.shape[1]):
            raise UserError(f"{what} must be of shape (b, {n}), got {tuple(rows.shape)}")
        return rows

    def _seen(self, obs: Rows) -> Tensor:
        return self.normalizer.normalize_obs(self._rows(obs, "observations", self._sizes[0]))

    def _checked(self, obs: Rows, action: Rows) -> tuple[Tensor, Tensor]:
        """What the critic takes: it joins both, and would mix what is of other shapes."""
        seen, taken = self._seen(obs), self._rows(action, "actions", self._sizes[1])
        if len(seen) != len(taken):
            rows = f"{len(seen)} and {len(taken)} rows"
            raise UserError(f"pairs must be of shape (b, o) and (b, a), got {rows}")
        return seen, taken

    @torch.no_grad()
    def bootstrap(self, obs: Tensor) -> Bootstrap:
        """An action of the policy that the critic values, and its price as a return."""
        boot = self.actor.bootstrap(self.normalizer.normalize_obs(obs), self._target_q)
        return boot._replace(entropy_cost=self.normalizer.in_task_units(boot.entropy_cost))

    def update(self, batch: Batch) -> Metrics:
        """Critic step, actor step every `actor_every`-th time, then the targets follow."""
        batch = self.normalizer.normalize_batch(batch)
        metrics = self.critic.update(batch, self._bootstrap(batch))
        self.updates += 1
        if self.updates % self._actor_every == 0:
            metrics |= self.actor.update(batch, self._actor_q)
        if self.updates % self._target_every == 0:
            self.critic.update_target()
        return metrics

    def diagnostics(self, batch: Batch) -> Metrics:
        """What the log shows of the critic: its loss and more, at the next update's own draws.

        In the units of the critic, as `kappa` is; the gain says what they are.
        """
        batch = self.normalizer.normalize_batch(batch)
        before = [buffer.clone() for buffer in self.critic.buffers()]
        with self._streams.kept():
            boot = self._bootstrap(batch)
            self.critic.see(batch, boot)
            with self.critic.joint(batch, boot):
                with self._streams.kept():
                    loss = self.critic.loss(batch, boot).detach()  # Its graph goes before the next.
                told = self.critic.diagnostics(batch, boot) | {"critic/loss": loss}
        for buffer, value in zip(self.critic.buffers(), before, strict=True):
            buffer.copy_(value)
        if self.normalizer.returns is not None:
            told["agent/return_gain"] = torch.tensor(self._gain)
        return {name: value.detach() for name, value in told.items()}

    @torch.no_grad()
    def _bootstrap(self, batch: Batch) -> Bootstrap:
        return self.actor.bootstrap(batch.next_obs, self._target_q)

    def compile_losses(self, **how: Any) -> None:
        """Fuse both losses by torch.compile, with its own arguments."""
        critic, actor = self.critic, self.actor
        # Methods, so that a copy's losses are its own.
        critic.objective = MethodType(torch.compile(type(critic).objective, **how), critic)
        actor.loss = MethodType(torch.compile(type(actor).loss, **how), actor)

    def worst_streak(self) -> torch.Tensor:
        """The longest run of updates lost to non-finite numbers, over all optimisers."""
        return torch.stack([o.worst_streak for o in self.optimizers]).max()

    def played(self, state: Mapping[str, T]) -> dict[str, T]:
        """The part of a state, by name, that playing needs: not what optimisers and noise keep."""
        idle = [name for name, m in self.named_modules() if getattr(m, "training_only", False)]
        prefixes = tuple(f"{name}." for name in idle)
        return {name: value for name, value in state.items() if not name.startswith(prefixes)}

    def get_extra_state(self) -> Any:
        """The update counter travels with the weights."""
        return torch.tensor(self.updates, dtype=torch.int64)

    def set_extra_state(self, state: Any) -> None:
        """Restore the update counter."""
        self.updates = int(state)


def build_agent(
    actor: ActorConfig | str,
    critic: CriticConfig | str,
    spec: EnvSpec,
    streams: Streams,
    normalizer: Normalizer | None = None,
    *,
    preset: str = "lite",
) -> Agent:
    """An agent from configs, or from names such as "sac" and "dbc": a preset's settings for a task.

    With a name the preset's normaliser comes too, if none is given; it learns by `begin_episode`
    and `observe`. A critic starts the same whatever the actor.
    """
    if isinstance(actor, str) or isinstance(critic, str):
        run = resolve(spec.env_id, actor, critic, preset)
        actor, critic = run.actor, run.critic
        normalizer = normalizer or build_normalizer(run.train, spec)
    with _initial_weights("actor", streams):
        built_actor = actor.build(spec, streams)
    built_critic = build_critic(critic, spec, streams)
    return Agent(
        built_actor,
        built_critic,
        streams,
        actor_every=actor.delay,
        target_every=critic.target_every,
        normalizer=normalizer,
        risk=parse(actor.risk),
        sizes=spec.sizes,
    )


def build_normalizer(train: TrainConfig, spec: EnvSpec) -> Normalizer:
    """What stands between the task's units and the learner's in a run with these settings."""
    obs = ObsMoments(spec.obs_dim) if train.normalize_obs else None
    how = (train.discount, train.return_unit, train.n_envs)
    return Normalizer(obs, ReturnScale(*how) if train.normalize_returns else None)


def build_critic(
    critic: CriticConfig | str, spec: EnvSpec, streams: Streams, *, preset: str = "lite"
) -> Critic:
    """A critic for any loop, from its config or from its name and a preset."""
    if isinstance(critic, str):
        critic = resolve(spec.env_id, critic=critic, preset=preset).critic
    with _initial_weights("critic", streams):
        return critic.build(spec, streams)


@contextmanager
def _initial_weights(part: str, streams: Streams) -> Iterator[None]:
    """Build on the streams' device, from a seed of its own that no other draw can disturb."""
    require_streams(streams)
    device = torch.device(streams.device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), device:
        torch.manual_seed(derive_seed(streams.seed, "weights", part))
        yield
