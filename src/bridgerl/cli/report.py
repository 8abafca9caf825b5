"""The verb `report`."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import tyro

from bridgerl.errors import printable
from bridgerl.report.build import build_report
from bridgerl.runs.archive import unpack
from bridgerl.studies.own import read_study


@dataclass(frozen=True)
class Report:
    """Write one page with tables, curves and verdicts of the runs in a folder or an archive.

    The page opens from disk; tables as .md, .tex and .json lie beside it.
    Example: bridgerl report runs
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """Folder of a study, of runs, or of other people's evaluations.npz; or what `pack` wrote."""
    out: Path | None = None
    """The page, NAME.html, with NAME.md, .tex, .json; by default DIR/report.html and results.*, or
    FILE.html beside FILE.zip."""
    baseline: str | None = None
    """The setting that all others are compared with, as the page names it."""
    study_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A study of your own, my_study.py, whose claims are judged; the file is run."""
    json: bool = False
    """Print the results as JSON."""

    def __call__(self) -> int:
        results = self._build()
        if self.json:
            from bridgerl.report.tables import to_json

            print(to_json(results), end="")
            return 0
        if results["planned"]:
            print(f"{results['finished']} of {results['planned']} runs finished")
        if results["rest"]:
            print(f"to run the rest: {printable(results['rest'])}")
        print(*outline(results), sep="\n")
        return 0

    def _build(self) -> dict[str, Any]:
        study = None if self.study_file is None else read_study(self.study_file)
        build = partial(build_report, baseline=self.baseline, study=study)
        if not os.path.isfile(self.folder):
            return build(self.folder, self.out)
        with TemporaryDirectory() as place:
            folder = Path(place) / self.folder.stem  # The page's title.
            folder.mkdir()
            unpack(self.folder, folder)
            page = self.out or self.folder.with_suffix(".html")
            return build(folder, page) | {"rest": None}  # The folder will be gone.


def outline(results: dict[str, Any]) -> list[str]:
    """What a terminal shows of a report: verdicts counted, problems, where the page is."""
    lines = []
    for key, words in results["counts"].items():
        said = ", ".join(f"{count} {word}" for word, count in words.items())
        lines.append(f"claims by {results['measures'][key]['head']}: {said}")
    if count := len(results["problems"]) + len(results["warnings"]):
        lines.append(f"problems: {count}, listed on the page")
    return [*lines, f"report: {printable(results['page'])}"]
