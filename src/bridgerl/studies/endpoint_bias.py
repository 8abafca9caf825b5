"""The table of endpoint errors, which needs no run."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bridgerl.bridge.schedule import SCHEDULES
from bridgerl.studies import paper
from bridgerl.studies.base import Curves, Figure, Measure, Study
from bridgerl.studies.claims import Beats, Cell, Cells, Exceeds
from bridgerl.studies.jobs import Job
from bridgerl.truth.endpoint import error_table

EXACT = "exact integral"


@dataclass(frozen=True)
class BiasStudy(Study):
    """Closed forms: there is nothing to run."""

    measures: ClassVar[dict[str, Measure]] = {
        "percent": Measure("error, %", "how far the walk misses an endpoint that stands still")
    }
    figure: ClassVar[Figure] = Figure(
        "Error by the number of steps",
        "steps M",
        "endpoint error, %",
        "Exact weights miss by rounding alone, and have no line.",
        log=True,
    )

    def jobs(self, scale: str, out: Path, seeds: tuple[int, ...] | None = None) -> list[Job]:
        """None."""
        return []

    def exact_cells(self) -> Cells:
        """Every rule and schedule at the paper's numbers of steps."""
        return {
            (name, f"M = {m}"): Cell(percent, 0.0, 1, exact=True)
            for name, row in _errors().items()
            for m, percent in row.items()
        }

    def exact_curves(self) -> Curves:
        """Euler's rules; a logarithm has no place for zero."""
        return {name: row for name, row in _errors().items() if not name.startswith(EXACT)}

    def paper_cells(self) -> Cells:
        """The printed table, which is that of right endpoints."""
        return {
            (rule("right", schedule), f"M = {m}"): Cell(percent, 0.0, 1, exact=True)
            for m, row in paper.EULER.items()
            for schedule, percent in zip(paper.EULER_SCHEDULES, row, strict=True)
        }


def _errors() -> Curves:
    """Per cent by rule and schedule, then by M."""
    schedules = {name: make() for name, make in SCHEDULES.items()}
    rows = error_table(schedules, tuple(paper.EULER))
    return {rule(row["rule"], row["schedule"]): row["percent"] for row in rows}


def rule(name: str, schedule: str) -> str:
    """A row of the table; `integral` are the exact weights."""
    return f"{EXACT}, {schedule}" if name == "integral" else f"Euler, {name} endpoint, {schedule}"


STUDY = BiasStudy(
    name="endpoint-bias",
    title="Endpoint bias of Euler steps",
    tables=(paper.BIAS,),
    claims=(
        *(
            Exceeds(
                rule("right", schedule),
                f"M = {m}",
                21,
                f"{schedule}: the error exceeds 21 % at M = {m}",
            )
            for schedule in ("linear", "cosine")
            for m in (1, 2, 5)
        ),
        *(
            Beats(
                rule("right", schedule),
                f"{EXACT}, {schedule}",
                f"M = {m}",
                says=f"{schedule}: exact weights miss by less than Euler's at M = {m}",
            )
            for schedule in paper.EULER_SCHEDULES
            for m in paper.EULER
        ),
    ),
)
