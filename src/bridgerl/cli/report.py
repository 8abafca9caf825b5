"""The verb `report`."""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import tyro

from bridgerl.errors import printable
from bridgerl.report.build import build_report
from bridgerl.runs.archive import unpack


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
        if not os.path.isfile(self.folder):
            return build_report(self.folder, self.out)
        with TemporaryDirectory() as place:
            folder = Path(place) / self.folder.stem  # The page's title.
            folder.mkdir()
            unpack(self.folder, folder)
            return build_report(folder, self.out or self.folder.with_suffix(".html"))


def outline(results: dict[str, Any]) -> list[str]:
    """What a terminal shows of a report: verdicts counted, problems, where the page is."""
    lines = []
    for key, words in results["counts"].items():
        said = ", ".join(f"{count} {word}" for word, count in words.items())
        lines.append(f"claims by {results['measures'][key]['head']}: {said}")
    if results["problems"]:
        lines.append(f"problems: {len(results['problems'])}, listed on the page")
    return [*lines, f"report: {printable(results['page'])}"]
