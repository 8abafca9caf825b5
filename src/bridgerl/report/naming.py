"""What a run is called: by its config, or by what other libraries put into names of folders."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bridgerl.errors import BridgeError, printable
from bridgerl.runs import store

_ENV = re.compile(r"(.+-v\d+)(?:_(\d+))?")
_SEED = re.compile(r"seed[_-]?(\d+)")
# CleanRL: ENV__PROGRAM__SEED__SECONDS.
_CLEANRL = re.compile(r"(?P<env>.+-v\d+)__(?P<rest>.+)__(?P<seed>\d+)__\d{9,}")
_INSIDE = re.compile(r"[A-Za-z][A-Za-z0-9]*-v\d+(?![A-Za-z0-9])")
MONITORS = ("monitor.csv", "0.monitor.csv")
"""Logs of Stable-Baselines3 whose first line names the environment."""
HEAD_BYTES = 4096


class Words(NamedTuple):
    """What one part of a path says: a task, a seed, and what is left."""

    env: str | None
    seed: int | None
    rest: str


def label(root: Path, folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Name, task, setting and seed, from the config and the path below the root."""
    name = Path(os.path.relpath(folder, root)).as_posix()
    parts = [p for p in name.split("/") if p not in (".", "..")] or folder.resolve().parts[-2:]
    env, seed, rest = config.get("env"), config.get("seed"), []
    for words in (read_name(part, ours=bool(config)) for part in parts):
        env = env or words.env
        seed = words.seed if seed is None else seed
        rest += [words.rest] if words.rest else []
    setting = "/".join(rest) or folder.resolve().parent.name
    env = env or monitored(folder) or "unnamed task"
    texts = {"name": name, "env": env, "setting": setting}
    return {key: printable(text) for key, text in texts.items()} | {"seed": seed}


def read_name(part: str, *, ours: bool = False) -> Words:
    """`Ant-v4_1`, `seed3`, `sac_Ant-v4_seed3`, `Ant-v4__sac__1__1700000000`, or just a name.

    In folders of ours the config tells the task, and a setting keeps its whole name.
    """
    if task := _ENV.fullmatch(part):
        return Words(task[1], int(task[2]) if task[2] else None, "")
    if number := _SEED.fullmatch(part):
        return Words(None, int(number[1]), "")
    if ours:
        return Words(None, None, part)
    if found := _CLEANRL.fullmatch(part):
        return Words(found["env"], int(found["seed"]), found["rest"])
    if task := _INSIDE.search(part):
        rest = part[: task.start()] + part[task.end() :]
        number = _SEED.search(rest)
        rest = rest.replace(number[0], "") if number else rest
        words = [word for word in re.split(r"[_-]+", rest) if word]
        return Words(task[0], int(number[1]) if number else None, "-".join(words))
    return Words(None, None, part)


def monitored(folder: Path) -> str | None:
    """The environment that a monitor's log in this folder or the one above it names."""
    for path in (place / name for place in (folder, folder.parent) for name in MONITORS):
        with suppress(OSError, BridgeError):
            if path.is_file():
                with path.open("rb") as file:
                    head = file.readline(HEAD_BYTES)
                found = store.parse_json(head.removeprefix(b"#"), path.name)
                env = found.get("env_id") if isinstance(found, dict) else None
                if isinstance(env, str) and env not in ("", "None"):
                    return env
    return None
