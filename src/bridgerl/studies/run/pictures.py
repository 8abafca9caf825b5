"""Pictures of a study's jobs that are done, besides the curves of its report."""

from pathlib import Path

from bridgerl.plots import can_plot
from bridgerl.runs.result import RESULT, read_result
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.league import cell_result
from bridgerl.truth.league_plots import draw_distances, draw_price
from bridgerl.truth.toy import draw_toy, join_toys


def draw(jobs: list[Job], folder: Path) -> None:
    """All toys in one picture, all critics of a league in two; nothing without matplotlib."""
    if not can_plot():
        return
    done = [job for job in jobs if not job.trains and job.done()]
    found = {job: read_result(job.folder / RESULT).data for job in done}
    if toys := [data for job, data in found.items() if job.kind == "toy"]:
        draw_toy(join_toys(toys), folder / "toy.png")
    if cells := [cell_result(job, data) for job, data in found.items() if job.kind == "league"]:
        draw_distances(cells, folder / "distances.png")
        draw_price(cells, folder / "price.png")
