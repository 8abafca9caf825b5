"""What the experiments are given, as data; free of torch, so that jobs can be read without it."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from bridgerl.actors import ActorConfig
from bridgerl.bridge.names import SCHEDULE_NAMES
from bridgerl.config import RunConfig, encode_part
from bridgerl.critics import CRITICS, CriticConfig
from bridgerl.errors import choose, require, require_seeds, require_some
from bridgerl.presets import resolve

LEAGUE = "league"
"""What presets call settings for distributions that are learnt in thousands of updates."""
PROBLEMS = ("two-point", "bernoulli-loop", "mixture-chain", "heavy-tail")
PROBLEMS += ("risky-choice", "stochastic-transition")
"""The league's own problems, see `problems`."""
RANDOM = "random:"
"""Prefix of problems that are drawn from a seed or a range of seeds, see `random_problems`."""
FIRST_UNSEEN = 1_000
"""Random problems below this seed are for tuning, those from it on for reports."""
SURE = "sure-loop:"
"""Prefix, before a discount, of problems that pay 1 for ever, so that the return is certain."""
LOOP = "bernoulli-loop:"
"""Prefix, before a reward, of problems that pay it or nothing, by a coin, at discount 1/2."""
EXAMPLE = f"{RANDOM}{FIRST_UNSEEN}..{FIRST_UNSEEN + 39}"
MOST_SEEDS = 10_000
FORK_TAIL = 1e-4
"""Weight of what forked returns leave out. Deviations may be a hundredth of the return; were a
hundredth left out, the best critic would look wrong."""
INTERVALS = (0.5, 0.8, 0.95)
"""Shares of returns that central intervals should cover."""


def read_problems(texts: Iterable[str]) -> tuple[str, ...]:
    """Names of problems, ranges such as `random:1000..1039` written out, each once."""
    names: dict[str, None] = {}
    for text in texts:
        found = re.fullmatch(RANDOM + r"(\d{1,9})(?:\.\.(\d{1,9}))?", text)
        if found:
            first, last = int(found[1]), int(found[2] or found[1])
            fits = first <= last < first + MOST_SEEDS
            require(fits, "tasks", text, f"must ascend over at most {MOST_SEEDS} seeds")
            names |= dict.fromkeys(f"{RANDOM}{seed}" for seed in range(first, last + 1))
        elif text.startswith(SURE):
            ok = re.fullmatch(r"0(\.\d{1,9})?", text.removeprefix(SURE))
            require(bool(ok), "tasks", text, f"needs a discount in [0, 1), e.g. {SURE}0.9")
            names[text] = None
        elif text.startswith(LOOP):
            ok = re.fullmatch(r"-?[1-9]\d{0,5}", text.removeprefix(LOOP))
            require(bool(ok), "tasks", text, f"needs a whole reward, e.g. {LOOP}-100")
            names[text] = None
        else:
            choose("task", text, dict.fromkeys((*PROBLEMS, EXAMPLE)))
            names[text] = None
    return tuple(names)


def league_config(critic: str, preset: str = "lite", actor: str = "sac") -> RunConfig:
    """Settings of a pair for distributions that are learnt in thousands of updates."""
    return resolve(LEAGUE, actor, critic, preset)


@dataclass(frozen=True)
class LeagueCell:
    """One critic on one problem with one seed, and the budget that all share."""

    problem: str
    critic: str
    config: CriticConfig
    seed: int
    updates: int = 2_500
    batch: int = 128

    def identity(self) -> dict[str, Any]:
        """All that decides the result but the machine and its versions."""
        critic = encode_part(self.critic, self.config)
        budget = {"updates": self.updates, "batch": self.batch}
        return {"problem": self.problem, "critic": critic, "seed": self.seed, **budget}


@dataclass(frozen=True)
class PolicyData:
    """A frozen policy and what is gathered of it, once for all critics."""

    task: str
    policy_steps: int = 50_000
    """Steps of the SAC+CDQ run whose last policy it is."""
    transitions: int = 50_000
    """Transitions that critics learn from."""
    states: int = 64
    """States that are held out, at which critics are judged."""
    returns: int = 64
    """Returns that are played from each state."""
    discount: float = 0.95
    """Discount of rewards, lower than in training: values settle in fewer updates."""
    seed: int = 0
    tail: float = FORK_TAIL
    """Largest weight, in a played return, of rewards that are left out."""


@dataclass(frozen=True)
class EvaluationCell:
    """One critic that learns a frozen policy's returns, and the budget that all share."""

    data: PolicyData
    critic: str
    config: CriticConfig
    seed: int
    updates: int = 6_000
    batch: int = 128

    def identity(self) -> dict[str, Any]:
        """All that decides the result but the machine and its versions."""
        critic = encode_part(self.critic, self.config)
        budget = {"updates": self.updates, "batch": self.batch}
        return {"data": asdict(self.data), "critic": critic, "seed": self.seed, **budget}


RISKS = ("mean", "cvar:0.5", "cvar:0.25", "cvar:0.1", "wang:0.75", "mean-std:0.75")
"""Measures of risk whose best action of a gamble is asked for."""
CLOSE = 0.05
"""Distance from the best action up to which it counts as learnt."""
# What fits returns of size 10, learnt in thousands of updates instead of millions.
_WIDTHS = (64, 64)
GAMBLERS: dict[str, dict[str, Any]] = {
    "sac": {"hidden": _WIDTHS, "temperature": 0.02, "temperature_lr": None},
    "td3": {"hidden": _WIDTHS, "delay": 1},
    "qvpo": {"hidden": _WIDTHS, "lr": 1e-3, "entropy": 0.002},
}
"""Actors that gamble, and what differs from their preset."""
ADVISERS: dict[str, dict[str, Any]] = {
    "dsac": {"hidden": _WIDTHS},
    "iqn": {"hidden": _WIDTHS, "kappa": 0.1},
    "tqc": {"hidden": _WIDTHS, "kappa": 0.1},
    "vf": {"features": _WIDTHS, "z_scale": 5.0},
    "vdrl": {"features": _WIDTHS, "z_scale": 5.0},
    "dbc": {"hidden": _WIDTHS, "kappa": 0.1, "z_scale": 5.0},
}
"""Critics that gamble, which know a distribution, and what differs from their preset."""


@dataclass(frozen=True)
class GambleCell:
    """An actor and a critic that learn the best action of a gamble under a measure of risk."""

    actor: str
    policy: ActorConfig
    critic: str
    config: CriticConfig
    seed: int = 0
    updates: int = 2_000
    batch: int = 64

    @classmethod
    def of(
        cls, actor: str, critic: str, measure: str, seed: int = 0, updates: int = updates
    ) -> "GambleCell":
        """The cell of a pair by name, with networks of the size that gambles need."""
        base = league_config(critic, actor=actor)
        policy = replace(base.actor, **GAMBLERS.get(actor, {}), risk=measure).settled(updates)
        config = replace(base.critic, **ADVISERS.get(critic, {}))
        return cls(actor, policy, critic, config, seed, updates)

    @property
    def measure(self) -> str:
        return self.policy.risk

    def identity(self) -> dict[str, Any]:
        """All that decides the result but the machine and its versions."""
        parts = {
            "actor": encode_part(self.actor, self.policy),
            "critic": encode_part(self.critic, self.config),
        }
        return {**parts, "seed": self.seed, "updates": self.updates, "batch": self.batch}


class Affine(NamedTuple):
    """The distribution of shift + scale Z_0."""

    shift: float
    scale: float

    def __call__(self, z: Any) -> Any:
        return self.shift + self.scale * z


@dataclass(frozen=True)
class ToyConfig:
    """Budget and backup of the toy, equal for every critic."""

    critics: tuple[str, ...] = ("flow", "dbc")
    """Critics to compare: flow, or any that trains agents."""
    preset: str = "lite"
    """Preset of the critics."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; each gives a run per critic."""
    fit_steps: int = 10_000
    """Updates on draws of Z_0."""
    iterations: int = 20
    """Bellman iterations."""
    steps_per_iteration: int = 100
    """Updates per Bellman iteration."""
    batch: int = 64
    """Transitions per update; there is one state, and critics draw several atoms for each."""
    lr: float = 1e-3
    """Adam learning rate."""
    # The paper gives neither. One mode's width per backup: a critic that stands still is seen.
    reward: float = 10.0
    """Reward r of a backup."""
    # That of training. A smaller one shrinks the distribution towards the noise of the updates.
    discount: float = 0.99
    """Discount of a backup."""
    flow_steps: int = 50
    """Euler steps of the flow's sampler."""
    flow_width: int = 128
    """Width of the flow's three hidden layers."""

    def __post_init__(self) -> None:
        require_some("critics", self.critics)
        require_some("seeds", self.seeds)
        for name in self.critics:
            choose("critic", name, dict.fromkeys(("flow", *CRITICS)))
        require_seeds("seeds", *self.seeds)
        counts = ("fit_steps", "iterations", "steps_per_iteration", "batch")
        for name in (*counts, "flow_steps", "flow_width"):
            most, value = 10**7 if name in counts else 65536, getattr(self, name)
            require(1 <= value <= most, name, value, f"must be from 1 to {most}")
        require(0 < self.lr < 1, "lr", self.lr, "must be in (0, 1)")
        require(abs(self.reward) <= 1e6, "reward", self.reward, "must be from -1e6 to 1e6")
        require(0 < self.discount <= 1, "discount", self.discount, "must be in (0, 1]")

    @property
    def updates(self) -> int:
        """Updates of one run."""
        return self.fit_steps + self.iterations * self.steps_per_iteration

    @property
    def total(self) -> int:
        return len(self.critics) * len(self.seeds) * self.updates

    def exact(self, k: int) -> Affine:
        """The distribution that k backups make of Z_0."""
        powers = [self.discount**i for i in range(k + 1)]
        return Affine(self.reward * sum(powers[:k]), powers[k])


@dataclass(frozen=True)
class EndpointConfig:
    """Schedules and numbers of steps whose endpoint error is wanted."""

    schedules: tuple[str, ...] = SCHEDULE_NAMES
    """Schedules of the drift rate."""
    steps: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 1000)
    """Numbers of bridge steps M."""
    theta: float = 1.0
    """Drift rate of the constant schedule."""
    theta_min: float = 0.1
    """Drift rate at the start of the others."""
    theta_max: float = 5.0
    """Drift rate at the end of the others."""

    def __post_init__(self) -> None:
        require_some("schedules", self.schedules)
        for name in self.schedules:
            choose("schedule", name, dict.fromkeys(SCHEDULE_NAMES))
        require_some("steps", self.steps)
        for n in self.steps:
            require(1 <= n <= 10**6, "steps", n, "must be from 1 to 10**6")
