"""What a million steps cost, in hours."""

from typing import ClassVar

from bridgerl.studies import paper
from bridgerl.studies.base import Measure, Study, TrainingStudy, pairs
from bridgerl.studies.claims import Beats, Cell, Cells


class TimeStudy(TrainingStudy):
    """Runs that are judged by their speed."""

    measures: ClassVar[dict[str, Measure]] = {
        "hours": Measure("hours", "hours of training for a million steps, as the runs were run")
    }
    pools_tasks = more_is_better = False
    printed = Study.printed

    def paper_cells(self) -> Cells:
        return {
            (setting, task): Cell(value, 0.0, 1, exact=True)
            for setting, row in paper.HOURS.items()
            for task, value in zip(paper.TASKS, row, strict=True)
        }


STUDY = TimeStudy(
    name="training-time",
    title="Training time",
    tables=(paper.TIME,),
    settings=pairs(*paper.HOURS),
    claims=tuple(
        Beats(rival, "sac+dbc", task, 0.4, f"DBC takes about 2 x {rival} on {task}, below 2.5 x")
        for task in paper.TASKS
        for rival in ("sac+cdq", "sac+tqc", "sac+iqn")
    ),
)
