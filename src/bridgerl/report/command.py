"""The verb `report`: tables, curves and verdicts of the runs in a folder."""

import importlib.util
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from bridgerl import store
from bridgerl.errors import UserError

EXTRAS = ("plotly", "scipy", "jinja2")


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
        """Read, judge, write, say where."""
        results = build_report(self.folder, self.out)
        if self.json:
            from bridgerl.report.tables import to_json

            print(to_json(results), end="")
            return 0
        counts = next(iter(results["counts"].values()), {})
        if counts:
            print("claims: " + ", ".join(f"{count} {word}" for word, count in counts.items()))
        if results["planned"]:
            print(f"{results['finished']} of {results['planned']} runs finished")
        if results["study"] and results["finished"] < results["planned"]:
            print(f"to run the rest: {self._rest(results)}")
        if results["problems"]:
            print(f"problems: {len(results['problems'])}, listed on the page")
        print(f"report: {results['page']}")
        return 0

    def _rest(self, results: dict[str, Any]) -> str:
        """The command that finishes the study; its folder is OUT/SCALE/STUDY."""
        out = os.path.relpath(self.folder.resolve().parents[1])
        words = ["bridgerl", "reproduce", results["study"], "--scale", results["scale"]]
        return shlex.join([*words, *(["--out", out] if out != "studies" else [])])


def build_report(folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Write the page and the tables of a folder; returns the results, and where the page is."""
    check_extras()
    page = folder / "report.html" if out is None else out
    _refuse(folder, page)
    # These need the extras, and `train` does not need these.
    from bridgerl.report.load import load
    from bridgerl.report.page import render
    from bridgerl.report.results import summarise_source
    from bridgerl.report.tables import to_json, to_latex, to_markdown

    source = load(folder)
    if not source.runs and source.study is None:
        reasons = "".join(f"; {problem}" for problem in source.problems)
        raise UserError(f"{folder} holds no runs and no evaluations.npz{reasons}")
    results = summarise_source(source)
    tables = page.with_name("results.md") if out is None else page
    texts = {
        page: render(source, results),
        tables.with_suffix(".md"): to_markdown(results),
        tables.with_suffix(".tex"): to_latex(results),
        tables.with_suffix(".json"): to_json(results),
    }
    try:
        for path, text in texts.items():
            store.publish_file(path, text.encode(errors="replace"))
    except OSError as error:
        raise UserError(f"{page} cannot be written: {error.strerror}; change --out") from None
    return results | {"page": str(page)}


def check_extras() -> None:
    """Refuse without the libraries of the extra."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"report needs {', '.join(missing)}: pip install 'bridgerl[report]'")


def _refuse(folder: Path, page: Path) -> None:
    """Refuse paths that cannot be read or written, before any work."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is not a folder")
    if os.path.isdir(page):
        raise UserError(f"--out {page} is a folder; name a file, e.g. {page / 'report.html'}")
    if page.suffix != ".html":
        raise UserError(f"--out {page} must end in .html")
    if not os.path.isdir(page.parent):
        raise UserError(f"--out {page}: there is no folder {page.parent}")
    if not os.access(page.parent, os.W_OK | os.X_OK):
        raise UserError(f"{page.parent} is not writable; change --out")
