"""How a run ended: its last figures, sealed together with the logs that they sum up."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bridgerl.errors import StorageFault
from bridgerl.runs import store

FILES, OWNER = "files", "run"
"""What the figures are sealed with: size and checksum of every log, and whose logs these are."""


def write_ending(path: Path, figures: dict[str, Any], logs: Iterable[Path], owner: str) -> None:
    """Write the figures of a run, if that is not what is there; nothing may follow in its logs."""
    marks = {}
    for log in logs:
        if log.is_file() and not log.is_symlink():
            data = store.read_log(log)
            marks[log.name] = {"bytes": len(data), "sha256": store.sha256(data)}
    sealed = store.to_sealed_json(figures | {FILES: marks, OWNER: owner})
    try:
        if not (path.is_file() and store.read_json_bytes(path) == sealed):
            store.publish_file(path, sealed)
    except OSError as error:
        raise StorageFault(f"{path} not written: {error}") from error


def read_ending(path: Path) -> dict[str, Any]:
    """The figures, proven unchanged; those of older releases have no checksum."""
    data = store.read_json_bytes(path)
    done = store.parse_json(data, str(path))
    if isinstance(done, dict) and {store.SEAL, FILES, OWNER} & done.keys():
        done = store.open_sealed_json(data, str(path))
    ok = isinstance(done, dict) and store.is_count(done.get("step"))
    store.require_intact(ok, path, "no step inside")
    marks = done.get(FILES, {})
    ok = isinstance(marks, dict) and all(map(_is_mark, marks.values()))
    store.require_intact(ok, path, "no checksums of logs")
    return done


def require_as_ended(log: Path, done: dict[str, Any]) -> None:
    """Refuse a log that is not as it was when the run ended, as far as the figures know."""
    mark = done.get(FILES, {}).get(log.name)
    if mark is not None:
        data = store.read_bytes(log, mark["bytes"] + 1)
        ok = len(data) == mark["bytes"] and store.sha256(data) == mark["sha256"]
        store.require_intact(ok, log, "it is not as it was when the run ended")


def changed(log: Path, done: dict[str, Any]) -> str | None:
    """What is wrong with such a log, if anything."""
    try:
        require_as_ended(log, done)
    except StorageFault as fault:
        return str(fault)
    return None


def _is_mark(mark: Any) -> bool:
    return isinstance(mark, dict) and store.is_count(mark.get("bytes")) and "sha256" in mark


def is_whole(done: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether a run ended with all the steps of an encoded config, or with the wanted return."""
    goal, last = (config.get("eval") or {}).get("stop_at"), done.get("final_return")
    reached = isinstance(goal, float) and isinstance(last, float) and last >= goal
    return reached or done["step"] >= config["steps"]
