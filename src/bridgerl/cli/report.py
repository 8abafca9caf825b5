"""The verb `report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bridgerl.report.build import build_report, outline


@dataclass(frozen=True)
class Report:
    """Write one page with tables, curves and verdicts of the runs in a folder.

    The page opens from disk; tables as .md, .tex and .json lie beside it.
    Example: bridgerl report runs
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """Folder of a study, of runs, or of other people's evaluations.npz."""
    out: Path | None = None
    """The page, NAME.html, with NAME.md, .tex, .json; by default DIR/report.html and results.*."""
    json: bool = False
    """Print the results as JSON."""

    def __call__(self) -> int:
        results = build_report(self.folder, self.out)
        if self.json:
            from bridgerl.report.tables import to_json

            print(to_json(results), end="")
            return 0
        if results["planned"]:
            print(f"{results['finished']} of {results['planned']} runs finished")
        if results["rest"]:
            print(f"to run the rest: {results['rest']}")
        print(*outline(results), sep="\n")
        return 0
