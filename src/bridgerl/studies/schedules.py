"""How the bridge's drift rate should change over its time."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, dbc
from bridgerl.studies.claims import Alike, Spreads

STUDY = TrainingStudy(
    name="schedules",
    title="Schedules of the drift rate",
    tables=(paper.SCHEDULE,),
    settings=(dbc("sac+dbc"), *(dbc(name, schedule=name) for name in ("cosine", "linear"))),
    # The paper calls cosine more variable than the two others, and these comparable.
    claims=(
        *(Spreads("cosine", x, task) for task in paper.TASKS for x in ("sac+dbc", "linear")),
        *(Alike("sac+dbc", "linear", task) for task in paper.TASKS),
    ),
)
