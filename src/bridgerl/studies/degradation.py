"""The degradation figure: laws handed on by Bellman backups of a critic's own copy."""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import ClassVar

from bridgerl.lab.commands import Toy
from bridgerl.studies import paper
from bridgerl.studies.base import SCALES, Study
from bridgerl.studies.claims import Beats
from bridgerl.studies.jobs import Job, ToyJob

LAST = "last backup"


@dataclass(frozen=True)
class ToyStudy(Study):
    """Critics in the toy, a process per critic and seed."""

    critics: tuple[str, ...]

    measures: ClassVar[dict[str, str]] = {
        "w1_share": "W1 to the exact law over its deviation, after the last backup",
        "valley": "mass in the middle between two modes, after the last backup",
    }

    def jobs(self, scale: str, out: Path, seeds: tuple[int, ...] | None = None) -> list[Job]:
        """A toy per critic and seed; only `smoke` is shorter than the toy's own defaults."""
        jobs: list[Job] = []
        for seed, critic in product(seeds or SCALES[scale].seeds, self.critics):
            folder = out / scale / "toy" / critic / f"seed{seed}"
            toy = Toy(critics=(critic,), seeds=(seed,), out=folder)
            if scale == "smoke":
                toy = replace(toy, fit_steps=60, iterations=3, steps_per_iteration=5)
            jobs.append(ToyJob(critic, toy))
        return jobs


STUDY = ToyStudy(
    name="degradation",
    title="Gaussian degradation under repeated Bellman backups",
    tables=(paper.DEGRADATION,),
    critics=("flow", "dbc"),
    claims=(Beats("flow", "dbc", LAST, says="flow matching degrades more than DBC"),),
)
