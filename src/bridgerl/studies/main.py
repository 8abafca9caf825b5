"""The main comparison: seven critics under the SAC actor."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, pairs
from bridgerl.studies.claims import BeatsOverall, beats

BASELINE = paper.RETURNS["sac+cdq"]
RIVALS = ("sac+cdq", "sac+iqn", "sac+tqc", "sac+vdrl", "sac+vf", "sac+dsac")

UNITS = tuple((task, score.mean) for task in paper.TASKS if (score := BASELINE.on(task)))

STUDY = TrainingStudy(
    name="main",
    title="Seven critics under SAC",
    tables=(paper.MAIN, paper.CURVES),
    settings=pairs(*RIVALS, "sac+dbc"),
    claims=(
        *beats("sac+dbc", RIVALS, paper.TASKS),
        *(BeatsOverall("sac+dbc", rival, UNITS) for rival in RIVALS),
    ),
)
