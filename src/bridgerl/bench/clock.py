"""What measurements share: the setting, cores of one's own, and a clock of parts."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bridgerl.errors import UserError
from bridgerl.runs.versions import usable_cores

PARTS = ("env", "act", "sample", "target", "forward", "backward", "optimiser", "actor")
TICK = 1e-9
"""The least that anything can take: where the clock stands still, nothing is divided by zero."""


@dataclass(frozen=True)
class Setting:
    """What all contenders share."""

    env: str
    batch: int
    threads: int
    seconds: float

    @property
    def cores(self) -> list[int]:
        """The first so many of the cores this process may use."""
        cores = usable_cores()
        if self.threads > len(cores):
            raise UserError(f"--threads {self.threads} needs as many cores; {len(cores)} are free")
        return cores[: self.threads]

    def pin(self) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)


def seconds_since(started: float) -> float:
    """On the same clock as `time.perf_counter`, and never zero."""
    return max(time.perf_counter() - started, TICK)


class Clock:
    """Time per part, in seconds; a part within a part counts as itself alone."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._stack: list[float] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        self._stack.append(0.0)
        try:
            yield
        finally:
            whole = time.perf_counter() - started
            self.spent[name] += whole - self._stack.pop()
            if self._stack:
                self._stack[-1] += whole

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Charge every call of one object's method to a part."""
        call = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return call(*args, **kwargs)

        setattr(owner, method, timed)


class GraphTime(TorchDispatchMode):
    """Operator time with and without a graph; inside a loss, no graph means the target."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = {True: 0.0, False: 0.0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        graph, started = torch.is_grad_enabled(), time.perf_counter()
        out = func(*args, **(kwargs or {}))
        self.spent[graph] += time.perf_counter() - started
        return out


class Flops(TorchDispatchMode):
    """Floating-point operations of every matrix product, by torch's own formulas.

    Torch's counter also asks which module they are of. Its hooks for that do not bear a loss that
    calls `autograd.grad`, as the one of Value Flows does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if formula := flop_registry.get(func.overloadpacket):
            self.total += formula(*args, **kwargs, out_val=out)
        return out
