"""Pictures of a study's jobs that are done, besides the curves of its report."""

from pathlib import Path
from typing import Any

from bridgerl.plots import can_plot
from bridgerl.runs.result import RESULT, read_result
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.league import cell_result
from bridgerl.truth.endpoint import biased_value, draw_values, weight_sum
from bridgerl.truth.gamble_plots import draw_learnt
from bridgerl.truth.league_plots import draw_cost, draw_distances
from bridgerl.truth.settings import SURE
from bridgerl.truth.toy import draw_toy, join_toys


def draw(jobs: list[Job], folder: Path) -> None:
    """A picture or two of what was run, by its kind; nothing without matplotlib."""
    if not can_plot():
        return
    done = [job for job in jobs if not job.trains and job.done()]
    found = {job: read_result(job.folder / RESULT).data for job in done}
    if toys := [data for job, data in found.items() if job.kind == "toy"]:
        draw_toy(join_toys(toys), folder / "toy.png")
    known = {j: data for j, data in found.items() if j.kind == "league" and SURE not in j.task}
    if cells := [cell_result(job, data) for job, data in known.items()]:
        draw_distances(cells, folder / "distances.png")
        draw_cost(cells, folder / "cost.png")
    if learnt := {job: data for job, data in found.items() if job.kind == "gamble"}:
        actions: dict[tuple[str, str], list[float]] = {}
        for job, data in learnt.items():
            learned = actions.setdefault((job.setting, job.task), [])
            learned += [] if data["action"] is None else [data["action"]]
        draw_learnt(actions, folder / "gamble.png")
    if points := [p for job, data in found.items() for p in value_points(job, data)]:
        draw_values(points, folder / "values.png")


def value_points(job: Job, data: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Predicted and learned value of a sure loop, under the rule of its walk."""
    if job.kind != "league" or not job.task.startswith(SURE) or data["figures"]["mean"] is None:
        return []
    critic, discount = job.work["critic"], float(job.task.removeprefix(SURE))
    total = weight_sum(critic["rule"], critic["bridge_steps"])
    return [(critic["rule"], biased_value(discount, total), data["figures"]["mean"])]
