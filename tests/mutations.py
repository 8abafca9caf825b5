"""Random damage to the files below a folder, one at a time and undone again; a seed repeats it."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[-+]?\d+)?")


class Mutation(NamedTuple):
    """What was done to a file."""

    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind} in {'/'.join(self.path.parts[-3:])}"


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.choice(b'0123456789.-e" ,\n')]) + data[at + 1 :]


def change_number(data: bytes, rng: random.Random) -> bytes:
    """Another number in the place of one, as text."""
    found = list(NUMBER.finditer(data))
    if not found:
        return flip_bit(data, rng)
    one = rng.choice(found)
    other = rng.choice([b"0", b"-1", b"7.25", b"1e9", one[0] + b"1", rng.choice(found)[0]])
    return data[: one.start()] + other + data[one.end() :]


def delete_range(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 200) :]


def repeat_range(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    end = at + rng.randint(1, 200)
    return data[:end] + data[at:end] + data[end:]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def append(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice([b"\0", b"\n", b"{}\n", rng.randbytes(rng.randint(1, 50)), data])


def drop_line(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def repeat_line(data: bytes, rng: random.Random) -> bytes:
    """A line again at another place."""
    lines = data.splitlines(keepends=True)
    lines.insert(rng.randint(0, len(lines)), rng.choice(lines))
    return b"".join(lines)


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


BYTES = (flip_bit, set_byte, change_number, change_number, delete_range, repeat_range, truncate)
BYTES += (append, drop_line, repeat_line, swap_lines)


def mutations(root: Path, seed: int, count: int) -> Iterator[tuple[Mutation, bytes | None]]:
    """So many kinds of damage to files below a root: what, and the new bytes or None for gone."""
    rng = random.Random(seed)
    by_name: dict[str, list[Path]] = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file() and p.stat().st_size):
        by_name.setdefault(path.name, []).append(path)
    for _ in range(count):
        # By name first: or the many files of checkpoints would get nearly all of it.
        path = rng.choice(by_name[rng.choice(sorted(by_name))])
        data = path.read_bytes()
        twins = [p for p in by_name[path.name] if p != path and p.read_bytes() != data]
        kind = rng.random()
        if kind < 0.02:
            yield Mutation("deletion", path), None
        elif kind < 0.1 and twins:
            yield Mutation("file of another run", path), rng.choice(twins).read_bytes()
        else:
            change = rng.choice(BYTES)
            yield Mutation(change.__name__, path), change(data, rng)


@contextmanager
def applied(mutation: Mutation, data: bytes | None) -> Iterator[bool]:
    """The damage for the length of a block; False if it changes nothing."""
    before = mutation.path.read_bytes()
    try:
        if data is None:
            mutation.path.unlink()
        else:
            mutation.path.write_bytes(data)
        yield data != before
    finally:
        mutation.path.write_bytes(before)
