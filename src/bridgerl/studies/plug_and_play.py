"""DBC in place of CDQ under three actors, on the two tasks the paper shows."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, pairs
from bridgerl.studies.claims import Beats, GainsMore, beats

ACTORS = ("td3", "sac", "qvpo")
TASKS = paper.COLUMNS[paper.PLUG]


def _gains(actor: str, percent: int, task: str) -> Beats:
    says = f"DBC gains {actor.upper()} at least {percent} % on {task}"
    return Beats(f"{actor}+dbc", f"{actor}+cdq", task, 1 + percent / 100, says)


def _gains_more(actor: str, other: str, task: str) -> GainsMore:
    says = f"DBC gains {actor.upper()} more than {other.upper()} on {task}"
    return GainsMore(f"{actor}+dbc", f"{actor}+cdq", f"{other}+dbc", f"{other}+cdq", task, says)


STUDY = TrainingStudy(
    name="plug-and-play",
    title="DBC as a critic for SAC, TD3 and QVPO",
    tables=(paper.PLUG,),
    settings=pairs("qvpo+cdq", "qvpo+dbc", "sac+cdq", "sac+dbc", "td3+cdq", "td3+dbc"),
    tasks=TASKS,
    claims=(
        *(c for actor in ACTORS for c in beats(f"{actor}+dbc", (f"{actor}+cdq",), TASKS)),
        _gains("sac", 13, "Humanoid-v5"),
        _gains("td3", 24, "Walker2d-v5"),
        *(_gains_more("sac", other, "Humanoid-v5") for other in ("td3", "qvpo")),
        *(_gains_more("td3", other, "Walker2d-v5") for other in ("sac", "qvpo")),
    ),
)
