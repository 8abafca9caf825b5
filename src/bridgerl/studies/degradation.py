"""The degradation figure: a distribution handed on by Bellman backups of a critic's own copy."""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import ClassVar

from bridgerl.studies import paper
from bridgerl.studies.base import SCALES, Figure, Measure, Study
from bridgerl.studies.claims import Beats
from bridgerl.studies.jobs import THREE_MODES, Job, toy_job
from bridgerl.truth.settings import ToyConfig


@dataclass(frozen=True)
class ToyStudy(Study):
    """Critics in the toy, a job per critic and seed."""

    critics: tuple[str, ...]

    measures: ClassVar[dict[str, Measure]] = {
        "w1_share": Measure("W1 / std", "distance to the exact one over its deviation, at last"),
        "valley": Measure("valley mass", "mass in the middle between two modes, at last"),
    }
    figure: ClassVar[Figure] = Figure(
        "Distance to the exact distribution", "backup", "W1 / std", "Mean over seeds."
    )

    def jobs(
        self, scale: str, out: Path, seeds: tuple[int, ...] | None = None, device: str = "cpu"
    ) -> list[Job]:
        """A toy per critic and seed; only `smoke` is shorter than the toy's own defaults."""
        jobs: list[Job] = []
        for seed, critic in product(seeds or SCALES[scale].seeds, self.critics):
            toy = ToyConfig(critics=(critic,), seeds=(seed,))
            if scale == "smoke":
                toy = replace(toy, fit_steps=60, iterations=3, steps_per_iteration=5)
            jobs.append(toy_job(critic, toy, out / scale / "toy" / critic / f"seed{seed}"))
        return jobs


STUDY = ToyStudy(
    name="degradation",
    title="Gaussian degradation under repeated Bellman backups",
    tables=(paper.DEGRADATION,),
    critics=("flow", "dbc"),
    claims=(Beats("flow", "dbc", THREE_MODES, says="flow matching degrades more than DBC"),),
)
