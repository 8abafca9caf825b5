"""DBC in place of CDQ under three actors, on the two tasks the paper shows."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, pairs
from bridgerl.studies.claims import Beats, GainsMore, beats

ACTORS = ("td3", "sac", "qvpo")
TASKS = paper.COLUMNS[paper.PLUG]

STUDY = TrainingStudy(
    name="plug-and-play",
    title="DBC as a critic for SAC, TD3 and QVPO",
    tables=(paper.PLUG,),
    settings=pairs("qvpo+cdq", "qvpo+dbc", "sac+cdq", "sac+dbc", "td3+cdq", "td3+dbc"),
    tasks=TASKS,
    claims=(
        *(c for actor in ACTORS for c in beats(f"{actor}+dbc", (f"{actor}+cdq",), TASKS)),
        *(
            Beats(
                f"{actor}+dbc",
                f"{actor}+cdq",
                task,
                1 + percent / 100,
                says=f"DBC gains {actor.upper()} at least {percent} % on {task}",
            )
            for actor, percent, task in (("sac", 13, "Humanoid-v5"), ("td3", 24, "Walker2d-v5"))
        ),
        *(
            GainsMore(
                f"{most}+dbc",
                f"{most}+cdq",
                f"{other}+dbc",
                f"{other}+cdq",
                task,
                says=f"DBC gains {most.upper()} more than {other.upper()} on {task}",
            )
            for most, task in (("sac", "Humanoid-v5"), ("td3", "Walker2d-v5"))
            for other in ACTORS
            if other != most
        ),
    ),
)
