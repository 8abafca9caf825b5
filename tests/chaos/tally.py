"""What was tried and what came of it, on disk after every attempt."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridgerl.runs import store


@dataclass
class Row:
    """All tries of one fault."""

    attempts: int = 0
    seconds: float = 0.0
    recovered: int = 0
    """Went on and ended as if nothing had happened."""
    refused: int = 0
    """Said in one line what is wrong, with the right exit code, and changed nothing."""
    silent: list[str] = field(default_factory=list)
    """Ended with something else, and nobody was told."""
    loud: list[str] = field(default_factory=list)
    """Neither recovered nor refused as promised: a traceback, a wrong exit code, a lost file."""
    note: str = ""
    """Why nothing could be tried."""

    @property
    def failures(self) -> int:
        return len(self.silent) + len(self.loud)

    @property
    def tries(self) -> int:
        return self.recovered + self.refused + self.failures

    def add(self, other: "Row") -> None:
        """Add what another attempt or worker saw."""
        self.attempts += other.attempts
        self.seconds += other.seconds
        self.recovered += other.recovered
        self.refused += other.refused
        self.silent += other.silent
        self.loud += other.loud
        self.note = other.note or self.note


class Tally:
    """The rows of one worker, by the name of the fault."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._path = path
        self.about = about
        self.rows: dict[str, Row] = {}
        if path.exists():
            kept = store.open_sealed_json(store.read_json_bytes(path), str(path))
            if kept["about"] != about:
                raise SystemExit(
                    f"{path} was written by other code or with another seed; "
                    "remove its folder or choose another with OUT=..."
                )
            self.rows = {name: Row(**row) for name, row in kept["rows"].items()}

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows.values())

    def row(self, name: str) -> Row:
        return self.rows.setdefault(name, Row())

    def save(self) -> None:
        rows = {name: asdict(row) for name, row in self.rows.items()}
        data = store.to_sealed_json({"about": self.about, "rows": rows})
        store.publish_file(self._path, data)


def total(tallies: Iterable[Tally], names: Iterable[str]) -> dict[str, Row]:
    """The rows of all workers together."""
    rows = {name: Row() for name in names}
    for tally in tallies:
        for name, row in tally.rows.items():
            rows.setdefault(name, Row()).add(row)
    return rows


def table(rows: dict[str, Row]) -> str:
    """As Markdown, failures below."""
    head = ("fault", "tries", "recovered", "refused", "silent failures", "other failures")
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * 5}"]
    for name, row in rows.items():
        counts = (row.tries, row.recovered, row.refused, len(row.silent), len(row.loud))
        told = f"{name} (not tried: {row.note})" if row.note and not row.tries else name
        lines.append(f"| {told} | {' | '.join(f'{count:,}' for count in counts)} |")
    failures = [f"- {name}: {text}" for name, row in rows.items() for text in row.silent + row.loud]
    return "\n".join([*lines, *([""] if failures else []), *failures])
