"""The table of endpoint errors, which follows from closed forms."""

from pathlib import Path
from typing import ClassVar

from bridgerl.studies import paper
from bridgerl.studies.base import Figure, Measure, Place, Setting, Study
from bridgerl.studies.claims import Beats, Cell, Cells, Exceeds
from bridgerl.studies.jobs import ENDPOINT, Job, endpoint_job
from bridgerl.truth.settings import EndpointConfig


def rule_name(rule: str, schedule: str) -> str:
    """A row of the table; `integral` are the exact weights."""
    name = "exact integral" if rule == "integral" else f"Euler, {rule} endpoint"
    return f"{name}, {schedule}"


class EndpointStudy(Study):
    """Every rule and schedule at the paper's numbers of steps."""

    measures: ClassVar[dict[str, Measure]] = {
        "percent": Measure("error, %", "how far the walk misses an endpoint that stands still")
    }
    figure = Figure(
        "Error by the number of steps",
        "steps M",
        "endpoint error, %",
        "Exact weights miss by rounding alone, and have no line.",
        log=True,
    )

    def jobs(
        self, scale: str, out: Path, seeds: tuple[int, ...] | None = None, device: str = "cpu"
    ) -> list[Job]:
        """One, whatever the seeds."""
        return super().jobs(scale, out, (0,), device)

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        return endpoint_job(EndpointConfig(steps=tuple(paper.EULER)), place.out / "endpoint-error")

    def paper_cells(self) -> Cells:
        """The printed table, which is that of right endpoints."""
        return {
            (rule_name("right", schedule), f"M = {m}"): Cell(percent, 0.0, 1, exact=True)
            for m, row in paper.EULER.items()
            for schedule, percent in zip(paper.EULER_SCHEDULES, row, strict=True)
        }


STUDY = EndpointStudy(
    name="endpoint-bias",
    title="Endpoint error of Euler steps",
    tables=(paper.ENDPOINT,),
    settings=(Setting("every rule", "", ""),),
    tasks=(ENDPOINT,),
    claims=(
        *(
            Exceeds(
                rule_name("right", schedule),
                f"M = {m}",
                bound=21,
                says=f"{schedule}: the error exceeds 21 % at M = {m}",
            )
            for schedule in ("linear", "cosine")
            for m in (1, 2, 5)
        ),
        *(
            Beats(
                rule_name("right", schedule),
                rule_name("integral", schedule),
                f"M = {m}",
                says=f"{schedule}: exact weights miss by less than Euler's at M = {m}",
            )
            for schedule in paper.EULER_SCHEDULES
            for m in paper.EULER
        ),
    ),
)
