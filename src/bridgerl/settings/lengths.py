"""Settings that follow from the length of a run where nobody chose them."""

LONGEST_WARMUP = 10_000
"""Steps of a warm-up in a run long enough for them."""
LONGEST_SAVE, SHORTEST_SAVE = 50_000, 1_000
"""Steps between checkpoints, at most and at least."""


def warmup_of(setting: int | None, steps: int) -> int:
    """The warm-up of a run of so many steps."""
    return max(1, min(LONGEST_WARMUP, steps // 10)) if setting is None else setting


def save_every_of(setting: int | None, steps: int) -> int:
    """Steps between checkpoints of a run of so many steps: few are lost to a kill."""
    return max(SHORTEST_SAVE, min(LONGEST_SAVE, steps // 5)) if setting is None else setting
