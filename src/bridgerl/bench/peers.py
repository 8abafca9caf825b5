"""One measurement of another library, by any interpreter that has it, ours or its own.

    python peers.py '{"library": "sbx", "algorithm": "SAC", ...}'

Imports nothing of bridgerl; prints one JSON object on its last line.
"""

import importlib.util
import json
import os
import sys
import time
from typing import Any

MODULES = {"stable-baselines3": "stable_baselines3", "sb3-contrib": "sb3_contrib", "sbx": "sbx"}


def installed() -> list[str]:
    """The libraries that this interpreter has."""
    return [name for name, module in MODULES.items() if importlib.util.find_spec(module)]


def measure(task: dict[str, Any]) -> dict[str, float]:
    """Steps per second of a library as its users run it, at the sizes asked for."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task["cores"])
    module = importlib.import_module(MODULES[task["library"]])
    more: dict[str, Any] = {"policy_kwargs": {"net_arch": task["hidden"]}}
    more |= {"learning_starts": task["fill"], "buffer_size": 100_000, "batch_size": task["batch"]}
    if task["library"] != "sbx":
        import torch

        torch.set_num_threads(len(task["cores"]))
        more["device"] = "cpu"
    algorithm = getattr(module, task["algorithm"])
    model = algorithm("MlpPolicy", task["env"], train_freq=1, gradient_steps=1, seed=0, **more)
    model.learn(task["fill"] + task["round"])
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < task["seconds"]:
        model.learn(task["round"], reset_num_timesteps=False)
        steps += task["round"]
    return {"steps_per_second": steps / (time.perf_counter() - started)}


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    print(json.dumps(measure(request) if request else installed()))
