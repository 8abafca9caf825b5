"""An environment's call that never returns: ended by an exception, at worst with the process."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import gymnasium as gym

from bridgerl.errors import EnvFault

GRACE = 5.0
"""Seconds that a call has to let go of the exception, before the process ends."""


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose reset and step must return within so many seconds."""

    def __init__(
        self, env: gym.Env[Any, Any], seconds: float, fault: Callable[[str], EnvFault]
    ) -> None:
        super().__init__(env)
        self._limit = _Limit(seconds, fault)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        with self._limit:
            return self.env.reset(**how)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self._limit:
            return self.env.step(action)

    def close(self) -> None:
        self._limit.closed.set()
        self.env.close()


class _Limit:
    """A block that must be left in time.

    An alarm raises inside of it, which ends loops and sleeps of Python. What catches the exception,
    or waits outside of Python, is ended by a thread with the whole process: its checkpoints are
    safe at any time. Code that never lets other threads run can only be killed from outside.
    """

    def __init__(self, seconds: float, fault: Callable[[str], EnvFault]) -> None:
        self._seconds, self._fault = seconds, fault
        self._due = math.inf
        self.closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> None:
        self._due = time.monotonic() + self._seconds
        # Python lets the main thread alone handle signals.
        self._alarms = threading.current_thread() is threading.main_thread()
        if self._alarms:
            self._before = signal.signal(signal.SIGALRM, self._raise)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, kind: object, *_: object) -> None:
        late, self._due = time.monotonic() > self._due, math.inf
        if self._alarms:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
        if late and kind is None:
            raise self._late()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._due < math.inf:  # Else it came back in this very moment.
            raise self._late()

    def _late(self) -> EnvFault:
        return self._fault(f"no answer within --env-timeout {self._seconds:g} seconds")

    def _watch(self) -> None:
        while not self.closed.wait(min(self._seconds, 1.0)):
            if time.monotonic() > self._due + GRACE:
                os.write(2, f"bridgerl: error: {self._late()}\n".encode())
                os._exit(EnvFault.exit_code)
