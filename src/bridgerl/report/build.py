"""A report of the runs in a folder: one page with tables, curves and verdicts, and tables."""

import importlib.util
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridgerl.errors import UserError, install
from bridgerl.runs import store

if TYPE_CHECKING:
    from bridgerl.studies import Study
    from bridgerl.studies.manifest import Manifest

EXTRAS = ("plotly", "jinja2")


def build_report(
    folder: Path,
    out: Path | None = None,
    *,
    baseline: str | None = None,
    study: "Study | None" = None,
) -> dict[str, Any]:
    """Write the page and the tables of a folder; returns results, page, what to type.

    `baseline` is the setting that others are compared with; `study` whose claims are judged, if it
    is none of ours.
    """
    check_extras()
    page = folder / "report.html" if out is None else out
    _refuse(folder, page)
    # These need the extras, and `train` does not need these.
    from bridgerl.report.load import load
    from bridgerl.report.page import render
    from bridgerl.report.results import summarise_source
    from bridgerl.report.tables import to_json, to_latex, to_markdown

    tables = page.with_name("results.md") if out is None else page
    formats = {".md": to_markdown, ".tex": to_latex, ".json": to_json}
    for path in (tables.with_suffix(end) for end in formats):
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder where the report has a file; change --out")
    source = load(folder, study)
    if not source.runs and source.manifest is None:
        reasons = "".join(f"; {problem}" for problem in source.problems)
        raise UserError(f"{folder} holds no runs and no evaluations{reasons}")
    results = summarise_source(source, baseline)
    texts = {tables.with_suffix(end): write(results) for end, write in formats.items()}
    texts[page] = render(source, results)
    try:
        for path, text in texts.items():
            store.publish_file(path, text.encode(errors="replace"))
    except OSError as error:
        raise UserError(f"{page} cannot be written: {error.strerror}; change --out") from None
    done = all(run.finished for run in source.runs)
    rest = None if done else _rest(source.folder, source.manifest)
    return results | {"page": str(page), "rest": rest}


def _rest(folder: Path, made: "Manifest | None") -> str | None:
    """The command that goes on with a study, whose folder is OUT/SCALE/STUDY unless moved."""
    folder = folder.resolve()
    if made is not None and made.command:
        return made.command
    if made is None or folder.parts[-2:] != (made.scale, made.study):
        return None
    out = os.path.relpath(folder.parents[1])
    words = ["bridgerl", "reproduce", made.study, "--scale", made.scale]
    words += ["--seeds", *map(str, made.seeds)] if made.seeds is not None else []
    words += ["--gpus", f"{made.gpus:g}"] if made.gpus else []
    words += ["--out", out] if out != "studies" else []
    return shlex.join(words)


def check_extras() -> None:
    """Refuse without the libraries of the extra."""
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"report needs {', '.join(missing)}: {install('report')}")


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
