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

from bridgerl.errors import EnvFault
from bridgerl.runs.folder import versions
from bridgerl.training.envs import Task

MOST_STEPS = 100
MOST_SECONDS = 0.1
"""A sample of an environment ends with the step that exceeds either."""


def check_env(env_id: str, steps: int = 200) -> dict[str, Any]:
    """Step an environment with one seed and the same actions, anew and again, and compare bits."""
    with closing(Task(env_id, 0, "check")) as task, closing(Task(env_id, 0, "check")) as other:
        first, again, anew = (list(_trace(t, steps)) for t in (task, task, other))
    facts = {"obs_dim": task.spec.obs_dim, "action_dim": task.spec.action_dim}
    facts |= {"reproducible": first == again == anew, "remembers": first == anew != again}
    return {"env": env_id} | facts | {"time_limit": task.time_limit, "versions": versions()}


def sample(task: Task, steps: int | None = None) -> dict[str, Any] | None:
    """A checksum of spaces, time limit and first transitions, and how many these are.

    None if the environment has a fault: who trains on it is told soon enough. Global generators
    that it may draw from stay as they are.
    """
    digest = hashlib.sha256(_description(task).encode())
    started, count = time.monotonic(), -1
    most, seconds = (MOST_STEPS, MOST_SECONDS) if steps is None else (steps, math.inf)
    generators = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        for row in _trace(task, min(most, MOST_STEPS)):
            digest.update(row)
            count += 1
            if time.monotonic() - started > seconds and count > 0:
                break
    except EnvFault:
        return None
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
    return {"steps": count, "sha256": digest.hexdigest()}


def behaves_as(task: Task, known: Any) -> bool:
    """Whether a sample with as many steps is the one that is known."""
    steps = known.get("steps") if isinstance(known, dict) else None
    return type(steps) is int and sample(task, steps) == known


def _description(task: Task) -> str:
    spaces = [task.env.observation_space, task.env.action_space]
    bounds = [
        [str(s.dtype), s.shape, s.low.tolist(), s.high.tolist()]
        for s in spaces
        if isinstance(s, gym.spaces.Box)
    ]
    return json.dumps([task.spec.env_id, task.time_limit, bounds])


def _trace(task: Task, steps: int) -> Iterator[bytes]:
    """The first observation, then every step of a few episodes under fixed random actions."""
    draws, episodes = np.random.default_rng(0), itertools.count()
    yield task.reset(next(episodes)).tobytes()
    for _ in range(steps):
        out = task.step(draws.uniform(-1, 1, task.spec.action_dim).astype(np.float32))
        row = out.obs.tobytes() + np.array([out.reward, out.terminated, out.truncated]).tobytes()
        if out.terminated or out.truncated:
            row += task.reset(next(episodes)).tobytes()
        yield row
