"""How many steps M the bridge needs."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, dbc
from bridgerl.studies.claims import Spreads, beats

STUDY = TrainingStudy(
    name="flow-steps",
    title="Flow steps M",
    tables=(paper.STEPS, paper.STEPS_FULL),
    settings=(dbc("M = 1", bridge_steps=1), dbc("sac+dbc"), dbc("M = 10", bridge_steps=10)),
    claims=(
        *beats("sac+dbc", ("M = 1", "M = 10"), paper.TASKS),
        # Ten steps are called unstable.
        *(Spreads("M = 10", "sac+dbc", task) for task in paper.TASKS),
    ),
)
