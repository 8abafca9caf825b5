"""What a stranger may put into a run folder: code, links, names, sizes and odd values."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from bridgerl.runs import checkpoint, store
from bridgerl.runs.folder import RunFolder
from runs.strangers import COMMAND, forge_checkpoint, forge_config

PAYLOAD = """
import pathlib, gymnasium, toy_envs
pathlib.Path(__file__).with_name("canary").touch()
gymnasium.register("Own-v0", "toy_envs:Point", max_episode_steps=50)
"""
LOOKS = {
    "evaluate": ["evaluate", "RUN", "--episodes", "1"],
    "evaluate values": ["evaluate", "RUN", "--episodes", "1", "--values"],
    "calibrate": ["calibrate", "RUN", "--states", "1", "--returns", "2", "--no-plot"],
    "evaluate video": ["evaluate", "RUN", "--episodes", "1", "--video", "film.png"],
    "export": ["export", "RUN"],
    "resume": ["train", "--resume", "RUN"],
    "verify": ["verify", "RUN"],
    "pack": ["pack", "RUN", "scores.zip"],
    "compare": ["compare", "RUN", "RUN"],
    "report": ["report", "OUT"],
    "report run": ["report", "RUN"],
    "train": [*COMMAND, "OUT"],
    "reproduce": ["reproduce", "endpoint-bias", "--out", "OUT", "--workers", "1"],
    "plan": ["plan", "endpoint-bias", "--out", "OUT", "--seconds", "0.1"],
}
"""Verbs that read a run."""
EVIL = "evil\x1b[31m\x9b2J\x7f\u202e\x00\r\nnext"


def plant_payload(run: Path, place: Path) -> None:
    """Let a config name a module that lies where Python may find it; importing leaves a canary."""
    forge_config(run, lambda stored: stored["config"].update(env="payload:Own-v0"))
    (place / "payload.py").write_text(PAYLOAD)


def make_victim(folder: Path) -> Path:
    """Somebody's folder, with a name in it that looks like a leftover of ours."""
    folder.mkdir()
    for name in ("precious", ".tmp-x-01234567", "seg-000000.safetensors"):
        (folder / name).write_bytes(b"precious")
    return folder


def is_untouched(victim: Path) -> bool:
    """Whether it is as it was made."""
    files = list(victim.iterdir())
    return len(files) == 3 and all(path.read_bytes() == b"precious" for path in files)


def forge_tensor_name(run: Path, name: str) -> None:
    """Add a tensor to the newest checkpoint."""
    newest = RunFolder(run).last_weights()
    tensors = load((newest / checkpoint.TENSORS).read_bytes())
    forge_checkpoint(newest, checkpoint.TENSORS, save({**tensors, name: torch.zeros(1)}))


def _set_width(part: str, field: str, value: Any) -> Any:
    return lambda stored: stored["config"][part].update({field: value})


FORGED_SIZES = {
    "actor widths": _set_width("actor", "hidden", [65536, 65536]),
    "critic widths": _set_width("critic", "hidden", [65536, 65536]),
    "observation": lambda stored: stored["sizes"].update({"observation size": 2**40}),
    "action": lambda stored: stored["sizes"].update({"action size": 2**40}),
    "no observation": lambda stored: stored["sizes"].update({"observation size": 0}),
    "negative": lambda stored: stored["sizes"].update({"action size": -1}),
    "beyond integers": lambda stored: stored["sizes"].update({"action size": 10**30}),
}

ODD = [1e308, -1e308, 2**62, 2**70, 10**400, -1, 0, 1.5, True, None, "x", EVIL, [], {}, [[]]]


def _leaves(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside of JSON."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(pairs):
        yield data, key
        if isinstance(value, dict | list):
            yield from _leaves(value)


def forge_value(path: Path, rng: random.Random) -> bytes:
    """A file with one value replaced, sealed again if it was."""
    lines = path.name.endswith(".jsonl")
    text = path.read_bytes()
    data: Any = [json.loads(row) for row in text.splitlines()] if lines else json.loads(text)
    container, key = rng.choice(list(_leaves(data)))
    container[key] = rng.choice(ODD)
    if lines:
        return "".join(json.dumps(row) + "\n" for row in data).encode()
    sealed = data.pop("sha256", None) is not None
    return store.to_sealed_json(data) if sealed else store.to_json(data)
