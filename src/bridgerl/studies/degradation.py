"""The degradation figure: laws handed on by Bellman backups of a critic's own copy."""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import ClassVar

from bridgerl.cli.truth import Toy
from bridgerl.plots import can_plot
from bridgerl.runs import store
from bridgerl.studies import paper
from bridgerl.studies.base import SCALES, Figure, Measure, Study
from bridgerl.studies.claims import Beats
from bridgerl.studies.jobs import LAW, Job, ToyJob
from bridgerl.truth.toy import draw_toy, join_toys


@dataclass(frozen=True)
class ToyStudy(Study):
    """Critics in the toy, a process per critic and seed."""

    critics: tuple[str, ...]

    measures: ClassVar[dict[str, Measure]] = {
        "w1_share": Measure("W1 / std", "distance to the exact law over its deviation, at last"),
        "valley": Measure("valley mass", "mass in the middle between two modes, at last"),
    }
    figure: ClassVar[Figure] = Figure(
        "Distance to the exact law", "backup", "W1 / std", "Mean over seeds."
    )

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

    def draw(self, jobs: list[Job], folder: Path) -> None:
        """The laws of all critics and seeds in one picture."""
        done = [store.read_bytes(job.folder / "toy.json") for job in jobs if job.done()]
        if done and can_plot():
            results = [store.parse_json(data, "toy.json") for data in done]
            draw_toy(join_toys(results), folder / "toy.png")


STUDY = ToyStudy(
    name="degradation",
    title="Gaussian degradation under repeated Bellman backups",
    tables=(paper.DEGRADATION,),
    critics=("flow", "dbc"),
    claims=(Beats("flow", "dbc", LAW, says="flow matching degrades more than DBC"),),
)
