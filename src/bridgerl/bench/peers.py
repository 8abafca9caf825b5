"""One measurement or one race of another library, by any interpreter that has it.

    python peers.py '{"library": "sbx", "algorithm": "SAC", ...}'

Imports nothing of bridgerl; prints one JSON object on its last line.
"""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
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
    started = now = time.perf_counter()
    steps, before = 0, -1.0
    while before != now and now - started < task["seconds"]:  # A clock may stand still.
        model.learn(task["round"], reset_num_timesteps=False)
        steps += task["round"]
        before, now = now, time.perf_counter()
    return {"steps_per_second": steps / max(now - started, 1e-9)}


def against_the_clock(
    learn: Callable[[], int], look: Callable[[], float], seconds: float, marks: int
) -> dict[str, list[float]]:
    """Learn for so many seconds of a core; at every mark the clock stands still for a look.

    Of CPU time, all threads together: on a busy machine everybody still gets the same.
    """
    curve: dict[str, list[float]] = {"minutes": [], "steps": [], "returns": []}
    spent, steps = 0.0, 0
    while len(curve["returns"]) < marks:
        started = time.process_time()
        steps += learn()
        spent += time.process_time() - started
        if spent >= seconds * (len(curve["returns"]) + 1) / marks:
            for name, value in (("minutes", spent / 60), ("steps", steps), ("returns", look())):
                curve[name].append(float(value))
    return curve


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

    def look() -> float:
        totals = []
        for episode in range(task["episodes"]):
            own = 1_000_003 * (task["seed"] + 1) + model.num_timesteps + episode
            obs, _ = stage.reset(seed=own)
            total, over = 0.0, False
            while not over:
                action, _ = model.predict(obs, deterministic=True)
                obs, reward, terminated, truncated, _ = stage.step(action)
                total, over = total + float(reward), terminated or truncated
            totals.append(total)
        return float(np.mean(totals))

    def learn() -> int:
        before = model.num_timesteps  # Some train every few steps only, and end after more.
        model.learn(LOOK, reset_num_timesteps=False)
        return model.num_timesteps - before

    return against_the_clock(learn, look, 60 * task["minutes"], task["marks"])


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    answer = race if request.get("race") else measure
    print(json.dumps(answer(request) if request else installed()))
