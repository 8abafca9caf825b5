"""Load the agent that a run left, and play episodes with it."""

import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bridgerl.agent import Agent, build_agent, build_normalizer
from bridgerl.config import RunConfig
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.errors import StorageFault, UserError, require, require_seeds
from bridgerl.runs import checkpoint, store
from bridgerl.runs.folder import RunFolder, Which, step_of
from bridgerl.runs.tensors import check_fit, without_prefix
from bridgerl.runs.trust import require_trusted
from bridgerl.streams import Streams
from bridgerl.training.evaluate import EvalResult, play_episodes
from bridgerl.training.process import check_device, tuned_process
from bridgerl.types import EnvSpec


class Player(NamedTuple):
    """A run's agent on its task, ready for so many episodes."""

    agent: Agent
    step: int
    """The step of training that the weights are from."""
    task: Task
    config: RunConfig


def load_agent(
    run: Path | str, weights: Which = "best", *, device: str = "cpu"
) -> tuple[Agent, int]:
    """The agent of a run folder, on a device, and the step its weights are from.

    Safe with a stranger's folder: networks are made by this library alone, and no module that the
    folder names is imported. To play the agent on an environment of your own, import its module.
    """
    check_device(device, 'device="cpu"')
    folder = RunFolder(Path(run))
    folder.read_config()  # What is no run at all is told first.
    path = folder.weights(weights)
    given = without_prefix(checkpoint.load_weights(path), "agent.")
    agent = _build_to_fit(given, folder, path / checkpoint.TENSORS, device)
    agent.load_state_dict(agent.played(given), strict=False)
    try:
        if shifts := folder.shifts().get(str(step_of(path))):
            agent.shifts = torch.tensor(shifts, device=device)
    except StorageFault as fault:  # It can be measured again; the agent is whole without it.
        warnings.warn(f"{fault}; run bridgerl calibrate again", stacklevel=2)
    return agent, step_of(path)


class _Shapes(Streams):
    """Streams of an agent whose tensors have shapes and no memory."""

    def __init__(self) -> None:
        super().__init__(0, "meta")

    def __call__(self, name: str, device: str | None = None) -> torch.Generator:
        return super().__call__(name, "cpu")


def _build(config: RunConfig, spec: EnvSpec, streams: Streams) -> Agent:
    normalizer = build_normalizer(config.train, spec)
    return build_agent(config.actor, config.critic, spec, streams, normalizer)


def _build_to_fit(given: dict[str, Tensor], folder: RunFolder, where: Path, device: str) -> Agent:
    """The agent of a run; one that the weights do not fit is refused before it asks for memory."""
    config, spec, wanted = folder.read_config(), _spec(folder), None
    sizes, numbers = folder.sizes(), sum(t.numel() for t in given.values())
    # A network has a weight for every input, which bounds what sizes alone can ask for.
    store.require_intact(1 <= min(sizes) <= max(sizes) <= numbers, where, f"sizes {sizes}")
    with suppress(Exception):  # A critic of another package may need numbers to be made.
        wanted = _build(config, spec, _Shapes())
    if wanted is not None:
        check_fit(wanted.played(given), wanted.played(wanted.state_dict()), str(where))
    try:
        agent = _build(config, spec, Streams(config.seed, device))
    except RuntimeError as error:  # How torch says that memory cannot be had.
        raise StorageFault(f"{where} does not fit this agent: {error}") from None
    check_fit(agent.played(given), agent.played(agent.state_dict()), str(where))
    return agent


@contextmanager
def playing(
    run: Path, weights: Which, episodes: int, seed: int, *, limited: bool = True
) -> Iterator[Player]:
    """A run's agent and task for the length of a block, in a process as the run had it.

    The task's time limit holds if it is `limited`.

    An environment `module:Name-v0` is made only if its module was imported before: a folder that
    comes from somebody else must not choose which code runs.
    """
    folder = RunFolder(run)
    config = folder.read_config()
    require_trusted(config, run)
    config = config.changed(eval={"episodes": episodes})
    recipe, timeout = Recipe.of(config), config.env_timeout
    with closing(Task(recipe, seed, "play", limited=limited, timeout=timeout)) as task:
        agent, step = load_agent(run, weights)
        if task.spec != _spec(folder):
            raise UserError(f"{config.env} has other sizes now than when {run} was trained")
        with tuned_process(config.train.threads):
            yield Player(agent, step, task, config)


def evaluate(
    run: Path | str, weights: Which = "best", episodes: int = 10, seed: int = 0
) -> EvalResult:
    """Play episodes with a run's weights, without exploration, as `bridgerl evaluate` does.

    Import the module of an environment of your own first: none that a folder names is imported.
    """
    require(episodes >= 1, "episodes", episodes, "must be at least 1")
    require_seeds("seed", seed)
    with playing(Path(run), weights, episodes, seed) as player:
        return _evaluated(player, seed)


def _evaluated(player: Player, seed: int) -> EvalResult:
    result = play_episodes(player.agent, player.task, player.config.eval, seed=seed, key=0)
    assert result is not None  # Nothing stops it on the way.
    return result


def play(run: Path, weights: Which, episodes: int, seed: int) -> dict[str, Any]:
    """What `bridgerl evaluate` prints of a run's deterministic episodes."""
    with playing(run, weights, episodes, seed) as player:
        result = _evaluated(player, seed)
    played = {"env": player.config.env, "step": player.step}
    summary = {"mean": result.mean, "std": result.std}
    return played | summary | {"returns": result.returns, "lengths": result.lengths}


def _spec(folder: RunFolder) -> EnvSpec:
    return EnvSpec(folder.read_config().env, *folder.sizes())
