"""How the bridge's drift rate should change over its time."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, dbc
from bridgerl.studies.claims import Spreads

STUDY = TrainingStudy(
    name="schedules",
    title="Schedules of the drift rate",
    tables=(paper.SCHEDULE,),
    settings=(dbc("sac+dbc"), *(dbc(name, schedule=name) for name in ("cosine", "linear"))),
    # The paper calls cosine more variable than the two others; their means it calls alike, which no
    # interval can confirm.
    claims=tuple(
        Spreads("cosine", other, task) for task in paper.TASKS for other in ("sac+dbc", "linear")
    ),
)
