"""The degradation figure: a distribution handed on by Bellman backups of a critic's own copy."""

from dataclasses import replace
from typing import ClassVar

from bridgerl.studies import paper
from bridgerl.studies.base import SCALES, Figure, Measure, Place, Setting, Study
from bridgerl.studies.claims import Beats
from bridgerl.studies.jobs import TOY, Job, toy_job
from bridgerl.truth.settings import ToyConfig


class ToyStudy(Study):
    """Critics in the toy."""

    measures: ClassVar[dict[str, Measure]] = {
        "w1_share": Measure("W1 / std", "distance to the exact one over its deviation, at last"),
        "valley": Measure("valley mass", "mass in the middle between two modes, at last"),
        "drift_kurtosis": Measure("drift, kurtosis", "share of the way to a Gaussian's kurtosis"),
        "drift_bimodality": Measure("drift, Sarle", "the same of Sarle's bimodality"),
    }
    figure = Figure("Distance to the exact distribution", "backup", "W1 / std", "Mean over seeds.")

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """A toy; only `smoke` is shorter than the toy's own defaults."""
        preset = SCALES[place.scale].preset
        toy = ToyConfig(critics=(setting.critic,), preset=preset, seeds=(seed,))
        if place.scale == "smoke":
            toy = replace(toy, fit_steps=60, iterations=3, steps_per_iteration=5)
        return toy_job(setting.key, toy, place.out / task / setting.key / f"seed{seed}")


STUDY = ToyStudy(
    name="degradation",
    title="Gaussian degradation under repeated Bellman backups",
    tables=(paper.DEGRADATION,),
    settings=tuple(Setting(name, "", name) for name in ("flow", "vdrl", "dbc")),
    tasks=(TOY,),
    claims=(
        Beats("flow", "dbc", TOY, says="flow matching degrades more than DBC"),
        Beats("vdrl", "dbc", TOY, says="a diffusion critic degrades more than DBC"),
    ),
)
