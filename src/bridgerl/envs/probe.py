"""What an environment does under fixed seeds and actions: is it reproducible, is it as before."""

import hashlib
import itertools
import json
import math
import random
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np

from bridgerl.envs.recipe import Recipe, describe
from bridgerl.envs.task import Task, task_maker
from bridgerl.envs.watchdog import Watched
from bridgerl.errors import EnvFault
from bridgerl.runs.source import checksum, code_of, module_of
from bridgerl.runs.versions import versions

MOST_STEPS = 100
MOST_SECONDS = 0.1
"""A sample of an environment ends with the step that exceeds either."""


def check_env(
    env: str | Recipe, steps: int = 200, *, timeout: float | None = None
) -> dict[str, Any]:
    """Step an environment with one seed and the same actions, anew and again, and compare bits.

    `timeout`: seconds that a call may take.
    """
    make = task_maker(Recipe(env) if isinstance(env, str) else env, 0)
    with closing(make("check", timeout)) as task, closing(make("check", timeout)) as other:
        first, again, anew = (list(_rows(t, steps)) for t in (task, task, other))
    facts = {"obs_dim": task.spec.obs_dim, "action_dim": task.spec.action_dim}
    facts |= {"reproducible": first == again == anew, "remembers": first == anew != again}
    end = {"time_limit": task.time_limit, "versions": versions()}
    return {"env": task.spec.env_id} | facts | end


def trace_env(task: Task, steps: int | None = None) -> dict[str, Any] | None:
    """What an environment is made of, and a checksum of its first transitions, so many steps.

    None if the environment has a fault: who trains on it is told soon enough. Global generators
    that it may draw from stay as they are.
    """
    digest = hashlib.sha256(_description(task).encode())
    started, count = time.monotonic(), -1
    most, seconds = (MOST_STEPS, MOST_SECONDS) if steps is None else (steps, math.inf)
    generators = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        for row in _rows(task, min(most, MOST_STEPS)):
            digest.update(row)
            count += 1
            if time.monotonic() - started > seconds and count > 0:
                break
    except EnvFault:
        return None
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
    return {"steps": count, "sha256": digest.hexdigest(), "made": made_of(task)}


def changes(task: Task, known: Any) -> str | None:
    """What is not as in a sample that is known, in words; None if all is."""
    known = known if isinstance(known, dict) else {}
    steps, then = known.get("steps"), known.get("made")
    then = then if isinstance(then, dict) else {}
    found = trace_env(task, steps) if type(steps) is int else None
    now = {} if found is None else found["made"]
    # Earlier releases wrote nothing of what it is made of.
    names = [n for n in sorted(then.keys() | now.keys()) if then and then.get(n) != now.get(n)]
    same = found is not None and found["sha256"] == known.get("sha256")
    if same and not names:
        return None
    what = [f"other {name}" for name in names]
    return ", ".join(what or ["other spaces, time limit or first steps of one seed"])


def made_of(task: Task) -> dict[str, Any]:
    """What it is made of by name: recipe, spaces, layers, the code of what is not Gymnasium's."""
    # A run may be watched later: that changes nothing of what it does.
    layers = [type(env) for env in _layers(task.env) if not isinstance(env, Watched)]
    spec = task.env.unwrapped.spec
    arguments = {} if spec is None else spec.kwargs
    return {
        "settings": describe(task.recipe),
        "arguments": json.dumps(arguments, sort_keys=True, default=_kind),
        "spaces": checksum(json.dumps(task.spec.spaces, sort_keys=True)),
        "time limit": task.time_limit,
        "layers": [_path(layer) for layer in layers],
        **code_of(layers),
    }


def _layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """An environment and those inside of it, the outermost first."""
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


def _path(kind: type) -> str:
    return f"{module_of(kind)}:{kind.__qualname__}"


def _kind(value: object) -> Any:
    """What stands for a value that is no JSON: an array's numbers, or else its type alone."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else _path(type(value))


def _description(task: Task) -> str:
    spaces = [task.env.observation_space, task.env.action_space]
    bounds = [
        [str(s.dtype), s.shape, s.low.tolist(), s.high.tolist()]
        for s in spaces
        if isinstance(s, gym.spaces.Box)
    ]
    registered = None if task.env.spec is None else gym.spec(task.env.spec.id).max_episode_steps
    return json.dumps([task.spec.env_id, registered, bounds])


def _rows(task: Task, steps: int) -> Iterator[bytes]:
    """The first observation, then every step of a few episodes under fixed random actions."""
    draws, episodes = np.random.default_rng(0), itertools.count()
    yield task.reset(next(episodes)).tobytes()
    for _ in range(steps):
        out = task.step(draws.uniform(-1, 1, task.spec.action_dim).astype(np.float32))
        row = out.obs.tobytes() + np.array([out.reward, out.terminated, out.truncated]).tobytes()
        if out.terminated or out.truncated:
            row += task.reset(next(episodes)).tobytes()
        yield row
