"""One measurement or one race of another library, by any interpreter that has it.

    python peers.py '{"library": "sbx", "algorithm": "SAC", ...}'

Imports nothing of bridgerl; prints one JSON object on its last line.
"""

import importlib.util
import json
import os
import sys
import time
from typing import Any

LOOK = 50
"""Steps between two looks at the clock."""
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


def race(task: dict[str, Any]) -> dict[str, list[float]]:
    """Minutes, steps and returns of a library at its defaults, but for what is asked for."""
    import gymnasium as gym
    import numpy as np

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task["cores"])
    module, more = importlib.import_module(MODULES[task["library"]]), dict(task["settings"])
    if task["library"] != "sbx":
        import torch

        torch.set_num_threads(1)
        more["device"] = "cpu"
    if "net_arch" in more:
        more["policy_kwargs"] = {"net_arch": more.pop("net_arch")}
    model = getattr(module, task["algorithm"])("MlpPolicy", task["env"], seed=task["seed"], **more)
    stage = gym.make(task["env"])

    def look(mark: int) -> float:
        totals = []
        for episode in range(task["episodes"]):
            obs, _ = stage.reset(seed=1_000_003 * (task["seed"] + 1) + 1_000 * mark + episode)
            total, over = 0.0, False
            while not over:
                action, _ = model.predict(obs, deterministic=True)
                obs, reward, terminated, truncated, _ = stage.step(action)
                total, over = total + float(reward), terminated or truncated
            totals.append(total)
        return float(np.mean(totals))

    curve: dict[str, list[float]] = {"minutes": [], "steps": [], "returns": []}
    spent, steps, seconds, marks = 0.0, 0, 60 * task["minutes"], task["marks"]
    while len(curve["returns"]) < marks:
        started = time.perf_counter()
        model.learn(LOOK, reset_num_timesteps=False)
        spent, steps = spent + time.perf_counter() - started, steps + LOOK
        if spent >= seconds * (len(curve["returns"]) + 1) / marks:
            found = look(len(curve["returns"]))
            for name, value in (("minutes", spent / 60), ("steps", steps), ("returns", found)):
                curve[name].append(float(value))
    return curve


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    answer = race if request.get("race") else measure
    print(json.dumps(answer(request) if request else installed()))
