"""Clocks that jump by seconds to decades, forth and back, or stand still."""

import random
import time
from collections.abc import Callable

NAMES = ("time", "monotonic", "perf_counter", "process_time")
YEAR = 365.25 * 86400
JUMPS = (1e-6, 1.0, 61.0, 3601.0, 86400.0, YEAR, 30 * YEAR)
CHANCE = 0.02


def disturb(seed: str) -> None:
    """Let all clocks of this process jump at random calls."""
    rng = random.Random(seed)
    for name in NAMES:
        setattr(time, name, _jumping(getattr(time, name), rng))


def _jumping(clock: Callable[[], float], rng: random.Random) -> Callable[[], float]:
    offset, frozen = 0.0, None

    def now() -> float:
        nonlocal offset, frozen
        if rng.random() < CHANCE:
            offset += rng.choice((-1, 1)) * rng.choice(JUMPS)
            frozen = clock() + offset if rng.random() < 0.3 else None
        return clock() + offset if frozen is None else frozen

    return now
