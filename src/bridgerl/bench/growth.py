"""How the cost of an update grows with one size at a time."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bridgerl.agent import build_agent
from bridgerl.bench.clock import Setting
from bridgerl.cli.entrants import Pair
from bridgerl.critics import CriticConfig
from bridgerl.streams import Streams
from bridgerl.training.envs import Task
from bridgerl.training.process import tuned_process
from bridgerl.types import Batch, EnvSpec, Metrics

GROWTH: dict[str, tuple[float, ...]] = {
    "steps M": (1, 2, 5, 10, 20),
    "atoms K": (0.5, 1, 2, 4),
    "batch": (64, 128, 256, 512),
    "width": (0.5, 1, 2),
}
"""Steps and rows as numbers, atoms and widths as factors of the critic's own."""
FIELDS = {
    "steps M": ("bridge_steps", "flow_steps", "diffusion_steps"),
    "atoms K": ("n_target", "n_online", "n_atoms"),
    "width": ("hidden",),
}


def measure_growth(pair: Pair, setting: Setting) -> dict[str, list[dict[str, float]]]:
    """Milliseconds per update as one size grows; all sizes take turns in one process."""
    setting.pin()
    task = Task(setting.env, 0)
    task.close()
    with tuned_process(setting.threads):
        cells = [
            (name, value, _update_of(pair, task.spec, setting.batch, name, value))
            for name, values in GROWTH.items()
            for value in values
            if vary(pair.critic_config, name, value) is not None
        ]
        times: list[list[float]] = [[] for _ in cells]
        end = time.perf_counter() + 4 * setting.seconds
        while time.perf_counter() < end or not times[0]:
            for (_, _, update), spent in zip(cells, times, strict=True):
                update()  # Brings its own data into the cache.
                started = time.perf_counter()
                for _ in range(3):
                    update()
                spent.append((time.perf_counter() - started) / 3)
    curves: dict[str, list[dict[str, float]]] = {}
    for (name, value, _), spent in zip(cells, times, strict=True):
        row = {"value": value, "update_ms": 1e3 * statistics.median(spent)}
        curves.setdefault(name, []).append(row)
    return curves


def vary(config: CriticConfig, name: str, value: float) -> CriticConfig | None:
    """A config with one size changed; None if the critic has no such size."""
    if name == "batch":
        return config
    changes: dict[str, Any] = {}
    for key in FIELDS[name]:
        old = getattr(config, key, None)
        if isinstance(old, tuple):
            changes[key] = tuple(max(1, round(value * n)) for n in old)
        elif isinstance(old, int):
            changes[key] = int(value) if name == "steps M" else max(1, round(value * old))
    return replace(config, **changes) if changes else None


def _update_of(
    pair: Pair, spec: EnvSpec, batch: int, name: str, value: float
) -> Callable[[], Metrics]:
    """An update of a varied pair on one fixed batch."""
    config = vary(pair.critic_config, name, value)
    assert config is not None
    agent = build_agent(pair.actor_config, config, spec, Streams(0))
    n = int(value) if name == "batch" else batch
    draws = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draws)

    rows = Batch(
        draw(n, spec.obs_dim),
        draw(n, spec.action_dim).tanh(),
        draw(n),
        torch.full((n,), 0.99),
        draw(n, spec.obs_dim),
    )
    return lambda: agent.update(rows, measuring=False)
