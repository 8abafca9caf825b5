"""What the drift rate of a bridge may be called; free of torch."""

from typing import Literal, get_args

ScheduleName = Literal["constant", "linear", "cosine"]
SCHEDULE_NAMES: tuple[str, ...] = get_args(ScheduleName)
