"""DBC in place of CDQ under three actors, on the two tasks the paper shows."""

from bridgerl.studies import paper
from bridgerl.studies.base import TrainingStudy, pairs
from bridgerl.studies.claims import Beats, GainsMore, beats

TASKS = paper.COLUMNS[paper.PLUG]

STUDY = TrainingStudy(
    name="plug-and-play",
    title="DBC as a critic for SAC, TD3 and QVPO",
    tables=(paper.PLUG,),
    settings=pairs("qvpo+cdq", "qvpo+dbc", "sac+cdq", "sac+dbc", "td3+cdq", "td3+dbc"),
    tasks=TASKS,
    claims=(
        *(
            c
            for actor in ("qvpo", "sac", "td3")
            for c in beats(f"{actor}+dbc", (f"{actor}+cdq",), TASKS)
        ),
        Beats(
            "sac+dbc",
            "sac+cdq",
            "Humanoid-v5",
            factor=1.13,
            says="DBC gains SAC at least 13 % on Humanoid-v5",
        ),
        Beats(
            "td3+dbc",
            "td3+cdq",
            "Walker2d-v5",
            factor=1.24,
            says="DBC gains TD3 at least 24 % on Walker2d-v5",
        ),
        *(
            GainsMore(
                f"{most}+dbc",
                f"{most}+cdq",
                f"{other}+dbc",
                f"{other}+cdq",
                task,
                f"DBC gains {most.upper()} more than {other.upper()} on {task}",
            )
            for most, others, task in (
                ("sac", ("td3", "qvpo"), "Humanoid-v5"),
                ("td3", ("sac", "qvpo"), "Walker2d-v5"),
            )
            for other in others
        ),
    ),
)
