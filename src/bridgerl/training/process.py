"""The process around a run: threads, allocator, and the facts that decide its bits."""

import contextlib
import ctypes
import ctypes.util
import gc
import hashlib
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from textwrap import shorten
from types import FrameType
from typing import Any, ClassVar

import torch

from bridgerl.errors import UserError
from bridgerl.runs.source import COMPUTING, checksum_of
from bridgerl.runs.versions import processor, versions

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@contextlib.contextmanager
def tuned_process(threads: int) -> Iterator[None]:
    """Fix what speed and bits depend on, and give it back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if sys.platform == "linux":
        libc = ctypes.CDLL(ctypes.util.find_library("c"))
        if hasattr(libc, "mallopt"):  # Or glibc returns freed activations, only to fault them in.
            libc.mallopt(_M_TRIM_THRESHOLD, 2**30)
            libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
    # What lives as long as the run need not be looked at by every garbage collection.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


def check_device(device: str, instead: str = "--train.device cpu") -> None:
    """Refuse a device that is not there, and say what to type instead; never fall back silently."""
    try:
        kind = torch.device(device).type
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        # What follows its first sentence are lists of all that torch was built for.
        why = shorten(str(error).partition(". ")[0], 90, placeholder=" ...")
        raise UserError(f"device {device!r} cannot be used: {why}; try {instead}") from None
    if kind == "meta":
        raise UserError(f"device 'meta' holds no numbers; try {instead}")


@cache
def fingerprint(threads: int, device: str, *rooms: str) -> dict[str, Any]:
    """Everything two runs must share for equal bits; what is no run names `rooms` of its own."""
    cuda = torch.device(device).type == "cuda"
    return {
        "device": f"{torch.cuda.get_device_name(device)} {torch.version.cuda}" if cuda else device,
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {processor()}",
        "simd": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "arithmetic": _arithmetic(threads, device),
        # Of our own code: another release may compute other bits.
        "source": checksum_of((*COMPUTING, *rooms)),
        **versions(),
    }


def _arithmetic(threads: int, device: str) -> str:
    """A hash of products and functions of fixed numbers: some modes of BLAS show only here."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        draws = torch.Generator().manual_seed(0)
        x, y = (torch.randn(shape, generator=draws) for shape in ((64, 300), (300, 80)))
        product = x.to(device) @ y.to(device)
        results = (product, product.tanh(), product.exp(), product.sum(0))
        data = b"".join(result.cpu().numpy().tobytes() for result in results)
    finally:
        torch.set_num_threads(before)
    return hashlib.sha256(data).hexdigest()[:16]


class Stopped(Exception):
    """A signal ended the run after a checkpoint."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped at step {step:,} after a checkpoint; the same command resumes")
        self.exit_code = 128 + number


class StopSignal:
    """SIGINT, SIGTERM and SIGHUP as a flag read at step boundaries; a second one ends at once."""

    together: ClassVar[float] = 0.0
    """Seconds within which signals count as one: some supervisors signal all processes of a group,
    and our own study then asks its runs once more."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._first = 0.0
        # Python lets the main thread alone handle signals; a run in another thread has none.
        mine = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if mine else ()
        handlers = {number: signal.getsignal(number) for number in numbers}
        # What is ignored stays ignored: nohup means to outlive its terminal.
        self._previous = {n: h for n, h in handlers.items() if h != signal.SIG_IGN}

    def __enter__(self) -> "StopSignal":
        for number in self._previous:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if time.monotonic() - self._first < self.together:
                return
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.number, self._first = number, time.monotonic()
        if sys.stderr.isatty():
            print("bridgerl: stopping after a checkpoint; once more ends at once", file=sys.stderr)
