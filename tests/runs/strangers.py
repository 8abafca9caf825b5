"""A finished run as a stranger might hand it over, made once, and ways to forge its files."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridgerl.cli.main import main
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder

COMMAND = [
    *("train", "--env", "toy_envs:Point-v0", "--critic", "cdq", "--steps", "80", "--quiet"),
    *("--train.warmup", "70", "--train.batch-size", "8", "--train.buffer-size", "64"),
    *("--actor.hidden", "8", "--critic.hidden", "8", "--eval.every", "40", "--eval.episodes", "2"),
    *("--log.every", "20", "--save.every", "40", "--log.no-tensorboard", "--out"),
]


def make_run(out: Path, seed: int = 0) -> Path:
    """Train one below `out`; returns its folder."""
    assert main([*COMMAND, str(out), "--seed", str(seed)]) == 0
    return next(out.glob(f"*/*/seed{seed}"))


def copy_run(run: Path, out: Path) -> Path:
    """The same run below another folder."""
    return Path(shutil.copytree(run, out.joinpath(*run.parts[-3:]), symlinks=True))


def forge_config(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what config.json holds and make its checksum right again."""
    stored = RunFolder(run).stored()
    change(stored)
    (run / "config.json").write_bytes(store.to_sealed_json(stored))


def forge_checkpoint(folder: Path, name: str, data: bytes) -> None:
    """Replace a file of a checkpoint and make every checksum right again."""
    manifest = store.read_manifest(folder)
    (folder / name).write_bytes(data)
    row = next(row for row in manifest["files"] if row["name"] == name)
    row.update(size=len(data), sha256=store.sha256(data))
    (folder / "manifest.json").write_bytes(store.to_sealed_json(manifest))
