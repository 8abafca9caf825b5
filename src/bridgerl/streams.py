"""Named random generators, so that no part of a run can disturb the draws of another."""

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor

from bridgerl.errors import UserError


def derive_seed(seed: int, *path: str | int) -> int:
    """A 63-bit seed for one purpose, e.g. `derive_seed(0, "eval", step, episode)`."""
    digest = hashlib.sha256(json.dumps([seed, *path]).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class Streams:
    """One torch generator per name, created on first use and saved with the run."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        self.seed = seed
        self.device = device
        self._generators: dict[str, torch.Generator] = {}

    def __call__(self, name: str, device: str | None = None) -> torch.Generator:
        """The generator of that name; always the same object."""
        if name not in self._generators:
            generator = torch.Generator(device or self.device)
            self._generators[name] = generator.manual_seed(self._seed_of(name))
        return self._generators[name]

    def _seed_of(self, name: str) -> int:
        return derive_seed(self.seed, "stream", name)

    def reseed(self, seed: int) -> None:
        """Begin anew with another seed; whoever holds a generator keeps it."""
        self.seed = seed
        for name, generator in self._generators.items():
            generator.manual_seed(self._seed_of(name))

    def state(self) -> dict[str, Tensor]:
        """The state of every generator used so far."""
        return {name: g.get_state() for name, g in sorted(self._generators.items())}

    def load(self, state: dict[str, Tensor]) -> None:
        """Put every generator back to a saved state."""
        for name, value in state.items():
            self(name).set_state(value)

    @contextmanager
    def kept(self) -> Generator[None]:
        """Draw inside as if it never happened: afterwards every generator is where it was."""
        before = self.state()
        try:
            yield
        finally:
            self.load(before)
            for name in self._generators.keys() - before.keys():  # Born inside.
                self._generators[name].manual_seed(self._seed_of(name))


def require_streams(value: object) -> None:
    """Refuse what is given for streams, a seed alone for one."""
    if not isinstance(value, Streams):
        raise UserError(f"streams must be made of a seed, e.g. Streams(0), got {value!r}")
