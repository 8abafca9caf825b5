"""Named places where a test can kill the process or break the disk; nothing happens otherwise."""

import errno
import os
import signal
from dataclasses import dataclass

_SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "hup": signal.SIGHUP,
}


@dataclass
class _Point:
    """What to do at one place, and how often it was visited."""

    first: int
    every_time: bool
    action: str
    visits: int = 0


_points: dict[str, _Point] = {}


def arm(text: str) -> None:
    """Set `name:nth:kill|term|int|hup|enospc`, several with commas; `nth+` goes on from the nth."""
    _points.clear()
    for part in filter(None, text.split(",")):
        name, nth, action = part.split(":")
        _points[name] = _Point(int(nth.removesuffix("+")), nth.endswith("+"), action)


def failpoint(name: str) -> None:
    """Act when this place is armed and its turn has come."""
    if name not in _points:
        return
    point = _points[name]
    point.visits += 1
    if point.visits == point.first or (point.every_time and point.visits > point.first):
        if point.action == "enospc":
            raise OSError(errno.ENOSPC, "No space left on device")
        os.kill(os.getpid(), _SIGNALS[point.action])


arm(os.environ.get("BRIDGERL_FAILPOINT", ""))
