"""Every actor and critic the paper pairs, on all its tasks."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, pairs
from bridgerl.studies.claims import beats

ACTORS = ("qvpo", "sac", "td3")
SETTINGS = tuple(key for key, row in paper.RETURNS.items() if paper.FULL in row.tables)

STUDY = TrainingStudy(
    name="actors",
    title="All pairs of actor and critic",
    tables=(paper.FULL,),
    settings=pairs(*SETTINGS),
    claims=tuple(claim for a in ACTORS for claim in beats(f"{a}+dbc", (f"{a}+cdq",), paper.TASKS)),
)
