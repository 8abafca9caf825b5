"""How many steps M the bridge needs."""

from bridgerl.studies import paper
from bridgerl.studies.base import Setting, TrainingStudy
from bridgerl.studies.claims import beats

STUDY = TrainingStudy(
    name="flow-steps",
    title="Flow steps M",
    tables=(paper.STEPS, paper.STEPS_FULL),
    settings=(
        Setting("M = 1", "sac+dbc --bridge-steps 1"),
        Setting("sac+dbc", "sac+dbc"),
        Setting("M = 10", "sac+dbc --bridge-steps 10"),
    ),
    tasks=paper.TASKS,
    claims=beats("sac+dbc", ("M = 1", "M = 10"), paper.TASKS),
)
