"""A run as data: what the command line fills in, what config.json holds, what resume compares."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgerl.actors import ACTORS, ActorConfig
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import Unregistered, UserError, choose, require, require_name, require_seeds
from bridgerl.registry import Registry
from bridgerl.settings.codec import change_fields
from bridgerl.settings.codec import decode_fields as decode_fields
from bridgerl.settings.codec import encode_part as encode_part
from bridgerl.settings.environment import canonical_kwargs, canonical_wrapper
from bridgerl.settings.lengths import save_every_of, warmup_of
from bridgerl.settings.measures import parse


def _require_counts(config: object, section: str, *names: str) -> None:
    """Refuse what is below 1; None leaves a number open."""
    for name in names:
        value = getattr(config, name)
        require(value is None or value >= 1, f"{section}.{name}", value, "must be at least 1")


@dataclass(frozen=True)
class TrainConfig:
    """How transitions are gathered and used."""

    batch_size: int = 256
    """Transitions per update."""
    buffer_size: int = 1_000_000
    """Transitions the replay holds."""
    warmup: int | None = None
    """Random steps before the first update; None: 10,000, or a tenth of a shorter run."""
    updates_per_step: float = 1.0
    """Updates per environment step after warm-up; 0.25 is one every fourth step."""
    n_envs: int = 1
    """Environments that take turns; there are as many updates per step of each as with one."""
    n_step: int = 1
    """Rewards that a target adds up before it uses the critic's value. SAC's entropy of the steps
    between is left out."""
    discount: float = 0.99
    """Discount of future rewards."""
    normalize_obs: bool = False
    """Let actor and critic see observations less their running mean, over their deviation."""
    normalize_returns: bool = False
    """Let actor and critic see rewards times a gain that makes returns as large as return-unit."""
    return_unit: float = 10.0
    """Root mean square of normalised returns; kappa, temperature and z-scale are in its units."""
    threads: int = 1
    """CPU threads; results are exact for one number only. 0 lets a short probe choose."""
    device: str = "cpu"
    """Torch device, e.g. cpu or cuda."""
    compile: bool = False
    """Fuse both losses by torch.compile, at the price of a minute's start; for CUDA."""

    def __post_init__(self) -> None:
        slower = self.compile and self.device.startswith("cpu")
        require(not slower, "train.compile", True, "is for CUDA; a CPU is faster without it")
        _require_counts(self, "train", "batch_size", "n_step", "warmup")
        ok = 1 <= self.buffer_size <= 10**9
        require(ok, "train.buffer-size", self.buffer_size, "must be from 1 to 10**9")
        ok = 0.001 <= self.updates_per_step <= 1000
        require(ok, "train.updates-per-step", self.updates_per_step, "must be from 0.001 to 1000")
        require(0 <= self.discount < 1, "train.discount", self.discount, "must be in [0, 1)")
        ok = 0 < self.return_unit < math.inf
        require(ok, "train.return-unit", self.return_unit, "must be positive and finite")
        require(0 <= self.threads <= 1024, "train.threads", self.threads, "must be from 0 to 1024")
        require(1 <= self.n_envs <= 1024, "train.n-envs", self.n_envs, "must be from 1 to 1024")
        if self.batch_size > self.buffer_size:
            what = f"--train.batch-size {self.batch_size} is larger than --train.buffer-size"
            raise UserError(f"{what} {self.buffer_size}; lower the first or raise the second")


@dataclass(frozen=True)
class EvalConfig:
    """Deterministic episodes on an environment and seeds of their own."""

    every: int = 10_000
    """Steps between evaluations."""
    episodes: int = 10
    """Episodes per evaluation."""
    max_steps: int = 10_000
    """Steps after which an evaluation episode is broken off."""
    stop_at: float | None = None
    """Stop training once an evaluation's mean return reaches this."""
    risk: str | None = None
    """A measure of the episodes' returns to log beside their mean, e.g. cvar:0.1."""

    def __post_init__(self) -> None:
        _require_counts(self, "eval", "every", "episodes", "max_steps")
        if self.risk is not None:
            parse(self.risk)
        ok = self.stop_at is None or math.isfinite(self.stop_at)
        require(ok, "eval.stop-at", self.stop_at, "must be finite, or None")


@dataclass(frozen=True)
class LogConfig:
    """What is written down while training."""

    every: int = 1_000
    """Steps between two records of losses and returns."""
    tensorboard: bool | None = None
    """Write TensorBoard events too; None: if tensorboard is installed."""

    def __post_init__(self) -> None:
        _require_counts(self, "log", "every")


@dataclass(frozen=True)
class SaveConfig:
    """Checkpoints a killed run goes on from."""

    every: int | None = None
    """Steps between checkpoints; None: 50,000, or a fifth of a shorter run, 1,000 at least."""
    keep: int = 3
    """Full checkpoints to keep."""
    weights_every: int = 100_000
    """Steps between weights kept for good, beside the best ones."""
    require_exact: bool = False
    """Refuse to resume when versions or hardware changed and bits may differ."""

    def __post_init__(self) -> None:
        _require_counts(self, "save", "every", "keep", "weights_every")


ENVIRONMENT = ("env_kwargs", "env_wrappers", "env_time_limit", "env_frame_skip", "env_factory")
"""Fields that say how an environment is made, beside its id."""

SECTIONS = {"train": TrainConfig, "eval": EvalConfig, "log": LogConfig, "save": SaveConfig}


@dataclass(frozen=True)
class RunConfig:
    """One training run."""

    env: str
    """Gymnasium id, e.g. Hopper-v5 or my_module:MyEnv-v0."""
    actor: ActorConfig
    """Settings of the chosen actor."""
    critic: CriticConfig
    """Settings of the chosen critic."""
    preset: str = "lite"
    """Where the defaults come from."""
    steps: int = 1_000_000
    """Environment steps in all."""
    seed: int = 0
    """Seed of everything random."""
    out: Path = Path("runs")
    """Folder that holds all runs."""
    name: str | None = None
    """Folder of this setting, in place of ACTOR-CRITIC-PRESET."""
    env_kwargs: str | None = None
    """Keyword arguments of the environment, as JSON: '{"terminate_when_unhealthy": false}'."""
    env_wrappers: tuple[str, ...] = ()
    """Wrappers, inner ones first, e.g. TimeAwareObservation 'ClipReward={"max_reward": 1}'; one of
    your own is my_module:MyWrapper."""
    env_time_limit: int | None = None
    """Steps after which an episode is cut off, in place of the environment's own limit."""
    env_frame_skip: int = 1
    """Steps of the environment for which one action holds; their rewards are added up."""
    env_factory: str | None = None
    """Function that makes the environment, my_module:make_env; --env then only names it."""
    env_timeout: float | None = None
    """Seconds after which a reset or step of the environment that has not returned is a fault."""
    env_processes: bool = False
    """Give each environment of --train.n-envs a process: slow ones then step at the same time."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """How transitions are gathered and used."""
    eval: EvalConfig = field(default_factory=EvalConfig)
    """How the policy is evaluated."""
    log: LogConfig = field(default_factory=LogConfig)
    """What is written down."""
    save: SaveConfig = field(default_factory=SaveConfig)
    """When checkpoints are kept."""

    def __post_init__(self) -> None:
        require(self.env != "", "env", self.env, "must name an environment, e.g. Hopper-v5")
        require(1 <= self.steps < 10**12, "steps", self.steps, "must be from 1 to 10**12 - 1")
        require_seeds("seed", self.seed)
        object.__setattr__(self, "env_kwargs", canonical_kwargs(self.env_kwargs))
        object.__setattr__(self, "env_wrappers", tuple(map(canonical_wrapper, self.env_wrappers)))
        ok = self.env_time_limit is None or 1 <= self.env_time_limit < 10**9
        require(ok, "env-time-limit", self.env_time_limit, "must be from 1 to 10**9 - 1, or None")
        ok = 1 <= self.env_frame_skip <= 1000
        require(ok, "env-frame-skip", self.env_frame_skip, "must be from 1 to 1000")
        ok = self.env_factory is None or ":" in self.env_factory
        require(ok, "env-factory", self.env_factory, "must be like my_module:make_env")
        ok = self.env_timeout is None or 0 < self.env_timeout < 10**6
        require(ok, "env-timeout", self.env_timeout, "must be positive and below 10**6, or None")
        if not (self.critic.distributional or parse(self.actor.risk).is_mean):
            known = ", ".join(name for name, kind in CRITICS.items() if kind.distributional)
            what = f"--actor.risk {self.actor.risk} needs a critic that knows the distribution"
            raise UserError(f"{what}: --critic {known}; {self.critic_name} knows only its mean")
        # These become paths, and lines of output.
        odd = re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", str(self.out))
        require(odd is None, "out", str(self.out), "must be text without control characters")
        for flag, value in (("name", self.name), ("preset", self.preset)):
            if value is not None:
                require_name(flag, value)
        if self.warmup >= self.steps:
            what = f"--train.warmup {self.warmup} leaves nothing of --steps {self.steps}"
            raise UserError(f"{what} to learn in; lower --train.warmup or raise --steps")
        n_step, n_envs = self.train.n_step, self.train.n_envs
        if (n_step - 1) * n_envs >= self.warmup:  # Learning would begin before a row is complete.
            per = f" for {n_envs} environments" if n_envs > 1 else ""
            what = f"--train.n-step {n_step} is more than --train.warmup {self.warmup}{per}"
            raise UserError(f"{what}; lower the first or raise the second")

    def changed(self, **changes: Any) -> "RunConfig":
        """This run with other settings, e.g. `changed(steps=1000, critic={"lr": 1e-4})`."""
        if "env_kwargs" in changes:  # A dictionary is kept as text.
            changes["env_kwargs"] = canonical_kwargs(changes["env_kwargs"])
        return change_fields(self, changes, "config")

    @property
    def warmup(self) -> int:
        """Steps before the first update, also where the setting leaves them open."""
        return warmup_of(self.train.warmup, self.steps)

    @property
    def save_every(self) -> int:
        """Steps between checkpoints, also where the setting leaves them open."""
        return save_every_of(self.save.every, self.steps)

    @property
    def actor_name(self) -> str:
        return _name_of(self.actor, ACTORS)

    @property
    def critic_name(self) -> str:
        return _name_of(self.critic, CRITICS)

    @property
    def folder(self) -> Path:
        """runs/<env>/<actor>-<critic>-<preset>/seed<k>."""
        setting = self.name or f"{self.actor_name}-{self.critic_name}-{self.preset}"
        env = re.sub(r"^\.|[^A-Za-z0-9._-]+", "_", self.env)
        return self.out / env / setting / f"seed{self.seed}"


def _name_of(config: object, table: Registry[Any]) -> str:
    name = table.name_of(config)
    if name is None:
        raise UserError(f"{config!r} is not the config of a registered actor or critic")
    return name


def checked(config: object) -> RunConfig:
    """The config as its own JSON reads back, so that a run can always be read again."""
    if not isinstance(config, RunConfig):
        raise UserError(f"train takes a RunConfig, e.g. resolve('Hopper-v5'), not {config!r}")
    try:
        return decode(encode(config))
    except (TypeError, ValueError) as error:
        raise UserError(f"the config holds a value of a wrong type: {error}") from None


def encode(config: RunConfig) -> dict[str, Any]:
    """The config as JSON values; actor and critic carry their registry names."""
    data = dataclasses.asdict(config)
    data["out"] = str(config.out)
    data["actor"] = encode_part(config.actor_name, config.actor)
    data["critic"] = encode_part(config.critic_name, config.critic)
    return data


def identity(data: dict[str, Any]) -> dict[str, Any]:
    """The part of an encoded config that decides the training trajectory, flat by flag name."""
    flat = {"env": data["env"], "seed": data["seed"]}
    # Those with their defaults are left out, as they are by releases that did not know them.
    defaults = {f.name: f.default for f in dataclasses.fields(RunConfig) if f.name in ENVIRONMENT}
    given = {name: data.get(name, default) for name, default in defaults.items()}
    flat |= {name: value for name, value in given.items() if value not in (defaults[name], [])}
    for section in ("actor", "critic", "train"):
        flat |= {f"{section}.{name}": value for name, value in data[section].items()}
    return flat | {"train.warmup": warmup_of(data["train"]["warmup"], data["steps"])}


def decode(data: object) -> RunConfig:
    """Read an encoded config back; anything unknown, missing or mistyped is refused."""
    if not isinstance(data, dict):
        raise UserError("config must be a JSON object")
    parts: dict[str, Any] = {}
    for part, table in (("actor", ACTORS), ("critic", CRITICS)):
        value = data.get(part)
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise UserError(f"config field {part} must be an object with a type")
        if value["type"] not in table and re.fullmatch(r"[a-z][a-z0-9_]*", value["type"]):
            hint = "install its package, or import the module that registers it, first"
            raise Unregistered(f"{part} {value['type']!r} is not registered here; {hint}")
        fields = {k: v for k, v in value.items() if k != "type"}
        parts[part] = decode_fields(choose(part, value["type"], table), fields, part)
    return decode_fields(RunConfig, data | parts, "config")
