"""What each piece of the preset `lite` is worth, taken out alone, and what was left out of it."""

from typing import ClassVar

from bridgerl.studies.base import Setting, TrainingStudy, pairs
from bridgerl.studies.claims import beats


class LiteAblation(TrainingStudy):
    """Short runs: `lite` is made for the first minutes."""

    most_steps: ClassVar[int] = 60_000


def _both(key: str, **changes: object) -> Setting:
    """Something changed of critic and actor alike."""
    return Setting(key, "sac", "dbc", changes, others={"actor": changes})


def _train(key: str, **changes: object) -> Setting:
    return Setting(key, "sac", "dbc", others={"train": changes})


PIECES = (
    _both("learning rate 3e-4", lr=3e-4),
    _both("256 units", hidden=(256, 256)),
    _train("raw observations", normalize_obs=False),
    Setting("values not divided", "sac", "dbc", {"z_scale": 1.0}),
)
LEFT_OUT = (
    _both("layer norms", trunk="layernorm"),
    _train("normalised returns", normalize_returns=True, return_unit=100.0),
)

STUDY = LiteAblation(
    name="lite-ablation",
    title="What each piece of `lite` is worth",
    settings=(*pairs("sac+dbc"), *PIECES, *LEFT_OUT),
    tasks=("HalfCheetah-v5",),
    claims=beats("sac+dbc", tuple(s.key for s in (*PIECES, *LEFT_OUT)), ("HalfCheetah-v5",)),
)
