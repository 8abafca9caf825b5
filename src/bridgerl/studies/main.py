"""The main comparison: seven critics under the SAC actor."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, pairs
from bridgerl.studies.claims import beats

RIVALS = ("sac+cdq", "sac+iqn", "sac+tqc", "sac+vdrl", "sac+vf", "sac+dsac")

STUDY = TrainingStudy(
    name="main",
    title="Seven critics under SAC",
    tables=(paper.MAIN, paper.CURVES),
    settings=pairs(*RIVALS, "sac+dbc"),
    claims=beats("sac+dbc", RIVALS, paper.TASKS),
)
