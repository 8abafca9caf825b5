"""What an averse policy gives up on average, and gains in bad episodes, critic by critic."""

from typing import ClassVar

from bridgerl.studies.base import Measure, Setting, TrainingStudy
from bridgerl.studies.claims import beats

MEASURE = "cvar:0.1"
AVERSE = ("dbc", "iqn", "tqc")
TASKS = ("Risky/HalfCheetah-v5", "Risky/Hopper-v5", "Risky/PointMass-v0")


class RiskStudy(TrainingStudy):
    """Neutral and averse policies on tasks with rare costly events."""

    measures: ClassVar[dict[str, Measure]] = {
        "late_cvar_10": Measure(
            "CVaR 0.1", "mean of the worst tenth of the episodes of the last ten evaluations"
        ),
        "late": Measure("mean", "mean of those episodes", judges=False),
        "final": Measure("final", "last evaluation", judges=False),
    }
    n_seeds, pools_tasks = 5, False


def _averse(critic: str) -> Setting:
    return Setting(f"{critic} {MEASURE}", "sac", critic, others={"actor": {"risk": MEASURE}})


STUDY = RiskStudy(
    name="risk",
    title="Mean against bad cases",
    settings=(
        *(Setting(f"{name} neutral", "sac", name) for name in (*AVERSE, "cdq")),
        *(_averse(name) for name in AVERSE),
    ),
    tasks=TASKS,
    claims=tuple(
        claim
        for name in AVERSE
        for claim in beats(f"{name} {MEASURE}", (f"{name} neutral", "cdq neutral"), TASKS)
    ),
)
