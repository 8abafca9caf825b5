"""How the bridge's drift rate should change over its time."""

from bridgerl.studies import paper
from bridgerl.studies.base import Setting, TrainingStudy
from bridgerl.studies.claims import beats

STUDY = TrainingStudy(
    name="schedules",
    title="Schedules of the drift rate",
    tables=(paper.SCHEDULE,),
    settings=(
        Setting("sac+dbc", "sac+dbc"),
        Setting("cosine", "sac+dbc --schedule cosine"),
        Setting("linear", "sac+dbc --schedule linear"),
    ),
    tasks=paper.TASKS,
    # The paper calls constant and linear comparable and recommends both over cosine.
    claims=(
        *beats("sac+dbc", ("cosine",), paper.TASKS),
        *beats("linear", ("cosine",), paper.TASKS),
    ),
)
