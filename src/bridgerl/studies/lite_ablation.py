"""What each piece of the preset `lite` is worth, taken out alone, and what was left out of it."""

from typing import Any, ClassVar

from bridgerl.studies.base import Setting, TrainingStudy
from bridgerl.studies.claims import beats

Changes = dict[str, Any]


class LiteAblation(TrainingStudy):
    """Short runs: `lite` is made for the first minutes."""

    most_steps: ClassVar[int] = 60_000


def _lite(key: str, critic: Changes | None = None, **others: Changes) -> Setting:
    """SAC+DBC under `lite` at every scale, with something changed."""
    return Setting(key, "sac", "dbc", critic or {}, "lite", others)


def _both(key: str, **changes: Any) -> Setting:
    """Something changed of critic and actor alike."""
    return _lite(key, changes, actor=changes)


PIECES = (
    _both("learning rate 3e-4", lr=3e-4),
    _both("256 units", hidden=(256, 256)),
    _lite("raw observations", train={"normalize_obs": False}),
    _lite("values not divided", {"z_scale": 1.0}),
    _lite("no atoms dropped", {"drop": 0.0}),
)
LEFT_OUT = (
    _both("layer norms", trunk="layernorm"),
    _lite("normalised returns", train={"normalize_returns": True, "return_unit": 100.0}),
)

STUDY = LiteAblation(
    name="lite-ablation",
    title="What each piece of `lite` is worth",
    settings=(_lite("sac+dbc"), *PIECES, *LEFT_OUT),
    tasks=("HalfCheetah-v5",),
    claims=beats("sac+dbc", tuple(s.key for s in (*PIECES, *LEFT_OUT)), ("HalfCheetah-v5",)),
)
