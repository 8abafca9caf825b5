"""A study of your own: which critic learns to swing up a pendulum, and does a longer target help?

bridgerl reproduce examples/my_study.py --dry-run
bridgerl reproduce examples/my_study.py --scale smoke      # minutes: shows that all of it runs
bridgerl reproduce examples/my_study.py --scale cpu        # what can decide something
bridgerl report studies/cpu/pendulum --study-file examples/my_study.py
"""

from bridgerl.studies.base import Setting, TrainingStudy, pairs
from bridgerl.studies.claims import beats


class Pendulum(TrainingStudy):
    """Short runs: the task is small."""

    most_steps = 20_000


STUDY = Pendulum(
    name="pendulum",  # Names a folder: studies/SCALE/pendulum.
    title="Critics on a pendulum",
    settings=(
        *pairs("sac+cdq", "sac+dbc"),
        Setting("three steps", "sac", "dbc", others={"train": {"n_step": 3}}),
    ),
    tasks=("Pendulum-v1",),
    claims=(
        *beats("sac+dbc", ("sac+cdq",), ("Pendulum-v1",)),
        *beats("three steps", ("sac+dbc",), ("Pendulum-v1",)),
    ),
)
