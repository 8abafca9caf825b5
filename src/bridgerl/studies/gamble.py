"""Is risk learnt? Actions that actors and critics learn where the best one is known."""

from typing import ClassVar

from bridgerl.studies.base import Figure, Measure, Place, Setting, Study, pairs, slug_of
from bridgerl.studies.claims import StaysBelow
from bridgerl.studies.jobs import Job, gamble_job
from bridgerl.truth.settings import ADVISERS, CLOSE, GAMBLERS, RISKS, GambleCell

PAIRS = tuple(f"{actor}+{critic}" for actor in GAMBLERS for critic in ADVISERS)


class GambleStudy(Study):
    """Every pair that knows a distribution, under each measure of risk, which are its tasks."""

    measures: ClassVar[dict[str, Measure]] = {
        "miss": Measure("miss", "distance of the learned action from the best one"),
        "action": Measure("action", "learned action", judges=False),
    }
    figure = Figure(
        "What actions are worth",
        "action",
        "worth under the measure",
        "As the critic says, at the end. The actor should find its top. Mean over seeds.",
    )

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """A cell as `bridgerl gamble` runs it; only `smoke` is shorter."""
        updates = 5 if place.scale == "smoke" else GambleCell.updates
        cell = GambleCell.of(setting.actor, setting.critic, task, seed, updates)
        folder = place.out / "gamble" / slug_of(task) / slug_of(setting.key) / f"seed{seed}"
        return gamble_job(setting.key, cell, folder)


STUDY = GambleStudy(
    name="gamble",
    title="A choice whose best action under a measure of risk is known",
    settings=pairs(*PAIRS),
    tasks=RISKS,
    claims=tuple(
        StaysBelow(pair, risk, CLOSE, f"{pair} comes within {CLOSE} of the best under {risk}")
        for risk in RISKS
        for pair in PAIRS
    ),
)
