"""What the anchor loss adds, and whether it can stand alone."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, dbc
from bridgerl.studies.claims import beats

SHOWN = paper.COLUMNS[paper.WEIGHT]

STUDY = TrainingStudy(
    name="anchor-weight",
    title="Weight w of the anchor loss",
    tables=(paper.WEIGHT, paper.WEIGHT_FULL),
    settings=(
        dbc("w = 0", anchor_weight=0.0),
        dbc("sac+dbc", anchor_weight=0.01),  # The paper's own; `lite` has none.
        dbc("w = 0.02", anchor_weight=0.02),
        dbc("w = 0.1", anchor_weight=0.1),
        dbc("no quantile loss", quantile_weight=0.0, anchor_weight=1.0),
    ),
    claims=(
        # Small weights help: three tasks in the text, "a wider range" in the appendix.
        *beats("sac+dbc", ("w = 0", "no quantile loss"), paper.TASKS),
        *beats("w = 0.02", ("w = 0",), paper.TASKS),
        # The best of all on the three.
        *beats("sac+dbc", ("w = 0.02", "w = 0.1"), SHOWN),
        # A large one hurts.
        *beats("w = 0", ("w = 0.1",), ("HalfCheetah-v5", "Hopper-v5")),
    ),
)
