"""Does the printed training input bias DBC, and which way? Random rewards that go round a loop."""

from typing import ClassVar

from bridgerl.studies.base import LeagueStudy, Measure, Setting, dbc
from bridgerl.studies.claims import beats
from bridgerl.truth.settings import LOOP

# The largest printed network that a CPU can pay ten times over.
PRINTED = {"hidden": (128, 128, 128), "n_target": 32, "n_online": 16}
UP, DOWN = f"{LOOP}100", f"{LOOP}-100"


class LabelStudy(LeagueStudy):
    """Learned distributions of both loops."""

    measures: ClassVar[dict[str, Measure]] = {
        "w1": Measure("W1", "distance between the learned and the true distribution"),
        "bias": Measure("bias", "learned mean less the true one", judges=False),
    }
    paired, n_seeds = True, 10


STUDY = LabelStudy(
    name="label-bias",
    title="The bias of the printed training input",
    settings=(
        dbc("lite"),
        dbc("label", bridge_input="label"),
        dbc("path", bridge_input="path"),
        Setting("printed", "sac", "dbc", PRINTED, "paper"),
        Setting("printed, self", "sac", "dbc", PRINTED | {"bridge_input": "self"}, "paper"),
    ),
    tasks=(UP, DOWN),
    claims=(
        *beats("label", ("lite",), (UP, DOWN)),
        *beats("printed", ("printed, self",), (UP, DOWN)),
    ),
)
