"""Shared ways to run the program the way users do."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

Run = Callable[..., subprocess.CompletedProcess[str]]

# A whole run in about a second: toy environment, narrow networks, everything else real.
TINY = (
    "train --env toy_envs:Point-v0 --steps 600 --train.warmup 100 --train.batch-size 32 "
    "--train.buffer-size 10000 --actor.hidden 16 --critic.hidden 16 --eval.every 200 "
    "--eval.episodes 2 --log.every 50 --save.every 150 --log.no-tensorboard"
).split()


torch.set_num_threads(1)  # Workers share the cores; a thread each is fastest.


@pytest.fixture
def cli() -> Run:
    """Run `python -m bridgerl ARGS` in a process of its own; keywords become its environment."""

    def run(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "bridgerl", *args],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
