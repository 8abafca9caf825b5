"""Named places where a test can kill the process or break the disk; nothing happens otherwise."""

import errno
import os
import signal
from collections import Counter

_points: dict[str, tuple[int, bool, str]] = {}
"""What to do at a point, by its name: from which visit on, whether at all later ones, and how."""
_visits: Counter[str] = Counter()


def arm(text: str) -> None:
    """Set `name:nth:kill|term|int|hup|enospc`, several with commas; `nth+` goes on from the nth."""
    _points.clear()
    _visits.clear()
    for part in filter(None, text.split(",")):
        name, nth, action = part.split(":")
        _points[name] = int(nth.removesuffix("+")), nth.endswith("+"), action


def failpoint(name: str) -> None:
    """Act when this place is armed and its turn has come."""
    if name not in _points:
        return
    first, every_time, action = _points[name]
    _visits[name] += 1
    if _visits[name] == first or (every_time and _visits[name] > first):
        if action == "enospc":
            raise OSError(errno.ENOSPC, "No space left on device")
        os.kill(os.getpid(), signal.Signals[f"SIG{action.upper()}"])


arm(os.environ.get("BRIDGERL_FAILPOINT", ""))
