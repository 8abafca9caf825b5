"""Named places where a test can kill the process or break the disk; nothing happens otherwise."""

import errno
import os
import signal

_NAME, _NTH, _ACTION = ([*os.environ.get("BRIDGERL_FAILPOINT", "").split(":"), "", ""])[:3]
_seen = 0


def failpoint(name: str) -> None:
    """Act on the nth visit when BRIDGERL_FAILPOINT=name:nth:kill|term|enospc asks for it."""
    global _seen
    if name != _NAME:
        return
    _seen += 1
    if _seen != int(_NTH or 1):
        return
    if _ACTION == "enospc":
        raise OSError(errno.ENOSPC, "No space left on device")
    os.kill(os.getpid(), signal.SIGTERM if _ACTION == "term" else signal.SIGKILL)
