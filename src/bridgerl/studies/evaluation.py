"""Which critic knows a policy's returns best, on real tasks: policy evaluation against forks."""

from dataclasses import replace
from typing import ClassVar

from bridgerl.studies.base import Figure, Measure, Place, Setting, Study, dbc, slug_of
from bridgerl.studies.claims import BeatsOverall, beats
from bridgerl.studies.jobs import Job, evaluation_job
from bridgerl.truth.settings import INTERVALS, EvaluationCell, PolicyData, league_config

SCORES = ("w1", "crps_excess", "bias", "location", "scale", "shape", "width")
PLAIN = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
TASKS = (*PLAIN, *(f"Noisy/{task}" for task in PLAIN))
RIVALS = ("cdq", "cdq, one head", "dsac", "iqn", "iqn, minimum", "iqn, 6 levels", "tqc", "vf")
RIVALS += ("vdrl", "M = 1", "label", "path")
UNITS = tuple((task, 1.0) for task in TASKS)
"""Scores are shares of a deviation on every task already."""
POLYAK = 0.03
"""Values settle at the rate polyak (1 - discount): at 0.01, 6,000 updates leave 5 % undone."""
SMOKE = {"policy_steps": 300, "transitions": 300, "states": 2, "returns": 3}


class EvaluationStudy(Study):
    """Critics on the transitions of one frozen policy per task."""

    measures: ClassVar[dict[str, Measure]] = {
        "w1": Measure("W1", "distance to the played returns, over their deviation"),
        "crps_excess": Measure("CRPS", "what the learned distribution scores above the true one"),
        "location": Measure("location", "error of the mean, over the deviation"),
        "scale": Measure("scale", "error of the deviation, over the deviation"),
        "shape": Measure("shape", "what is left of the error, over the deviation"),
        "bias": Measure("bias", "mean of value less return, over the deviation", judges=False),
        "width": Measure("width", "learned deviation over the true one", judges=False),
        **{
            f"covers_{share:g}": Measure(
                f"{share:.0%} covers", "returns inside that central interval", judges=False
            )
            for share in INTERVALS
        },
    }
    paired, n_seeds = True, 10
    figure = Figure(
        "Where returns fall",
        "level of the played return",
        "share of the returns",
        "Flat at 0.05 if the critic is right. Mean over seeds.",
    )

    def chosen_tasks(self, scale: str) -> tuple[str, ...]:
        return self.tasks[-1:] if scale == "smoke" else self.tasks

    def job(self, setting: Setting, task: str, seed: int, place: Place) -> Job:
        """A cell, learnt as in the league without pessimism, with a quicker target."""
        base = league_config(setting.critic, setting.preset or "lite").critic
        critic = replace(base, polyak=POLYAK, **setting.changes)
        cell = EvaluationCell(PolicyData(task), setting.critic, critic, seed)
        if place.scale == "smoke":
            cell = replace(cell, data=PolicyData(task, **SMOKE), updates=5)
        folder = place.out / "evaluation" / slug_of(task) / slug_of(setting.key) / f"seed{seed}"
        return evaluation_job(setting.key, cell, folder)


STUDY = EvaluationStudy(
    name="evaluation",
    title="Policy evaluation with the answer known",
    settings=(
        dbc("dbc"),
        *(Setting(name, "", name) for name in ("cdq", "dsac", "iqn", "tqc", "vf", "vdrl")),
        Setting("cdq, one head", "", "cdq", {"n_heads": 1}),
        Setting("iqn, minimum", "", "iqn", {"heads": "min"}),
        # These two take about as long as DBC.
        Setting("iqn, 6 levels", "", "iqn", {"n_online": 6, "n_target": 6}),
        dbc("M = 1", bridge_steps=1, n_online=15, n_target=15),
        dbc("label", bridge_input="label"),
        dbc("path", bridge_input="path"),
    ),
    tasks=TASKS,
    # Distances: less is better, so a rival must have more.
    claims=tuple(
        claim
        for rival in RIVALS
        for claim in (BeatsOverall(rival, "dbc", UNITS), *beats(rival, ("dbc",), TASKS))
    ),
)
