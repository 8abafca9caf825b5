"""The table of endpoint errors, which follows from closed forms."""

from typing import ClassVar

from bridgerl.studies import paper
from bridgerl.studies.base import Figure, Measure, Place, Setting, Study
from bridgerl.studies.claims import Beats, Cell, Cells, Exceeds
from bridgerl.studies.jobs import ENDPOINT, Job, endpoint_job
from bridgerl.truth.settings import EndpointConfig


def rule_name(rule: str, schedule: str) -> str:
    """A row of the table; `exact` are integrals."""
    name = "exact integral" if rule == "exact" else f"Euler, {rule} endpoint"
    return f"{name}, {schedule}"


RIGHT = {name: rule_name("right", name) for name in EndpointConfig.schedules}
NOTE = "Exact weights miss by rounding alone, and have no line."


class EndpointStudy(Study):
    """Every rule and schedule at the paper's numbers of steps."""

    measures: ClassVar[dict[str, Measure]] = {
        "percent": Measure("error, %", "how far the walk misses an endpoint that stands still")
    }
    figure = Figure("Error by the number of steps", "steps M", "endpoint error, %", NOTE, log=True)

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """The one job of the study, whatever the seeds."""
        return endpoint_job(EndpointConfig(steps=tuple(paper.EULER)), place.out / "endpoint-error")

    def paper_cells(self) -> Cells:
        """The printed table, which is that of right endpoints."""
        return {
            (rule, f"M = {m}"): Cell(percent, 0.0, 1, exact=True)
            for m, row in paper.EULER.items()
            for rule, percent in zip(RIGHT.values(), row, strict=True)
        }


def _misses_less(name: str, m: int) -> Beats:
    says = f"{name}: exact weights miss by less than Euler's at M = {m}"
    return Beats(RIGHT[name], rule_name("exact", name), f"M = {m}", says=says)


STUDY = EndpointStudy(
    name="endpoint-bias",
    title="Endpoint error of Euler steps",
    tables=(paper.ENDPOINT,),
    settings=(Setting("every rule", "", ""),),
    tasks=(ENDPOINT,),
    claims=(
        *(
            Exceeds(RIGHT[name], f"M = {m}", 21, f"{name}: the error exceeds 21 % at M = {m}")
            for name in ("linear", "cosine")
            for m in (1, 2, 5)
        ),
        *(
            Exceeds(RIGHT[name], "M = 100", 0.1, f"{name}: 100 Euler steps miss by over 0.1 %")
            for name in RIGHT
        ),
        *(_misses_less(name, m) for name in RIGHT for m in paper.EULER),
    ),
)
