"""What verbs found out about a run's weights and left in its folder, each file sealed."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from bridgerl.errors import StorageFault
from bridgerl.runs import store

FORMAT = 2
"""Version of the file with the figures of values; the first had no checksum."""


def write_values(path: Path, data: dict[str, Any]) -> None:
    """Leave figures of the critic's values."""
    store.publish_file(path, store.to_sealed_json(data | {"format": FORMAT}))


def read_values(path: Path) -> dict[str, Any]:
    """Figures of the critic's values, of known weights; older releases sealed none."""
    data = store.read_json_bytes(path)
    found = store.parse_json(data, str(path))
    found = found if isinstance(found, dict) else {}
    if {store.SEAL, "format"} & found.keys():
        found = store.open_sealed_json(data, str(path))
    share = found.get("relative_q_bias", found.get("relative_bias", ""))
    known = found.get("weights") in ("best", "last") and type(found.get("step")) is int
    ok = known and (share is None or isinstance(share, float))
    store.require_intact(ok, path, "no value bias of known weights")
    return found | {"relative_q_bias": share}


def write_calibration(path: Path, result: dict[str, Any]) -> None:
    """Leave what a calibration found; shifts of other weights, or older ones, stay."""
    kept: dict[str, list[float]] = {}
    with suppress(StorageFault):  # What is damaged is replaced.
        kept = read_shifts(path)
    new = {str(result["step"]): result["shifts"]} if "shifts" in result else {}
    store.publish_file(path, store.to_sealed_json(result | {"shifts": kept | new}))


def read_shifts(path: Path) -> dict[str, list[float]]:
    """What corrects the quantiles of weights, by their step."""
    found = store.open_sealed_json(store.read_json_bytes(path), str(path)).get("shifts")
    rows = list(found.values()) if isinstance(found, dict) else [None]
    ok = all(isinstance(row, list) and all(type(z) is float for z in row) for row in rows)
    store.require_intact(ok, path, "no shifts of quantiles")
    return found if isinstance(found, dict) else {}
