"""What the anchor loss adds, and whether it can stand alone."""

from bridgerl.studies import paper
from bridgerl.studies.base import Setting, TrainingStudy
from bridgerl.studies.claims import beats

SHOWN = paper.COLUMNS[paper.WEIGHT]

STUDY = TrainingStudy(
    name="anchor-weight",
    title="Weight w of the anchor loss",
    tables=(paper.WEIGHT, paper.WEIGHT_FULL),
    settings=(
        Setting("w = 0", "sac+dbc --anchor-weight 0"),
        Setting("sac+dbc", "sac+dbc"),
        Setting("w = 0.02", "sac+dbc --anchor-weight 0.02"),
        Setting("w = 0.1", "sac+dbc --anchor-weight 0.1"),
        Setting("no quantile loss", "sac+dbc --quantile-weight 0 --anchor-weight 1"),
    ),
    tasks=paper.TASKS,
    claims=(
        # Small weights help: three tasks in the text, "a wider range" in the appendix.
        *beats("sac+dbc", ("w = 0", "no quantile loss"), paper.TASKS),
        *beats("w = 0.02", ("w = 0",), paper.TASKS),
        # The best of all on the three.
        *beats("sac+dbc", ("w = 0.02", "w = 0.1"), SHOWN),
    ),
)
