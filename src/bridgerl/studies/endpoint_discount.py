"""The endpoint error is a change of discount: what DBC learns of reward 1 for ever, by rule."""

from typing import ClassVar

from bridgerl.studies.base import LeagueStudy, Measure, Setting
from bridgerl.studies.claims import Beats
from bridgerl.truth.settings import SURE

RULES, STEPS = ("exact", "left", "right"), (2, 5, 10)
# The paper's network and loss, of sizes that a CPU can pay; targets follow fast enough to settle.
SMALL = {"hidden": (64, 64, 64), "n_target": 16, "n_online": 16, "polyak": 0.05}


class DiscountStudy(LeagueStudy):
    """Learned values of a certain return."""

    measures: ClassVar[dict[str, Measure]] = {
        "mean": Measure("value", "learned value of reward 1 for ever")
    }
    n_seeds = 5


def _setting(rule: str, m: int) -> Setting:
    changes = SMALL | {"rule": rule, "bridge_steps": m}
    return Setting(f"{rule}, M = {m}", "sac", "dbc", changes, "paper")


TASKS = tuple(f"{SURE}{discount}" for discount in (0.5, 0.8, 0.9))
STUDY = DiscountStudy(
    name="endpoint-discount",
    title="The endpoint error as a change of discount",
    settings=tuple(_setting(rule, m) for m in STEPS for rule in RULES),
    tasks=TASKS,
    claims=tuple(
        Beats(f"{more}, M = {m}", f"{less}, M = {m}", task)
        for more, less in (("left", "exact"), ("exact", "right"))
        for task in TASKS
        for m in STEPS
    ),
)
