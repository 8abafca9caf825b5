"""How many threads an update is fastest with, found out by a few updates of a throw-away agent."""

import dataclasses
import time

import torch

from bridgerl.agent import build_agent
from bridgerl.config import RunConfig
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.versions import usable_cores
from bridgerl.streams import Streams
from bridgerl.types import Batch, EnvSpec

ROUNDS = 5
GAIN = 0.9
"""Share of the time with fewer threads below which more of them are worth having."""


def settle_threads(config: RunConfig, spec: EnvSpec) -> RunConfig:
    """Replace 0 threads by a number: the run's own if it began before, else the probe's."""
    if config.train.threads > 0:
        return config
    run = RunFolder(config.folder)
    known = run.config_file.exists()
    n = run.read_config().train.threads if known else probe_threads(config, spec)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, threads=n))


def probe_threads(config: RunConfig, spec: EnvSpec) -> int:
    """The fastest of 1, 2, 4, ... threads; more only if they gain a tenth."""
    cores = len(usable_cores())
    counts = [2**i for i in range(cores.bit_length()) if 2**i <= cores]
    agent = build_agent(config.actor, config.critic, spec, Streams(0, config.train.device))
    n, device = config.train.batch_size, config.train.device
    obs, action = torch.zeros(n, spec.obs_dim), torch.zeros(n, spec.action_dim)
    rows = Batch(obs, action, torch.zeros(n), torch.full((n,), config.train.discount), obs)
    rows = Batch(*(column.to(device) for column in rows))
    before, best = torch.get_num_threads(), dict.fromkeys(counts, float("inf"))
    try:
        for _ in range(ROUNDS):
            for count in counts:  # In turns: a disturbance then hits all alike.
                torch.set_num_threads(count)
                started = time.perf_counter()
                for _ in range(config.actor.delay):  # One of them is the actor's.
                    agent.update(rows)
                best[count] = min(best[count], time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    chosen = 1
    for count in counts:
        if best[count] < GAIN * best[chosen]:
            chosen = count
    return chosen
