"""One self-contained page: no network, every string escaped, equal bytes for equal runs."""

import base64
import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from bridgerl.report import tables
from bridgerl.report.curves import draw_curves
from bridgerl.report.load import Run, Source
from bridgerl.runs import store
from bridgerl.runs.search import walk

PICTURES = {
    "league.png": "League: distance to the true distribution",
    "distances.png": "League: distance to the true distribution",
    "cost.png": "League: distance against speed",
    "quantiles.png": "League: learned distributions over the true ones",
    "toy.png": "Degradation under Bellman backups",
    "bridge-error.png": "Endpoint error of Euler steps",
    "values.png": "Values that rules of the walk lead to",
    "gamble.png": "Learned actions, and the best one under each measure",
}
MAX_PICTURE_BYTES = 3 * 2**20
MOST_PICTURES = 24
PNG = b"\x89PNG\r\n\x1a\n"


def render(source: Source, results: dict[str, Any]) -> str:
    """The page of a source and its results."""
    settings = list(dict.fromkeys(p.setting for run in source.runs for p in run.parts))
    curves = draw_curves(results["title"], source.runs, settings)
    drawn = [curve for task in curves for curve in task["curves"]]
    data = {key: results[key] for key in ("figure", "overall")}
    data |= {"curves": curves, "settings": settings}
    loader = PackageLoader("bridgerl.report", "assets")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "zip": lambda left, right: list(zip(left, right, strict=True)),
        "capital": lambda text: text[:1].upper() + text[1:],
        "by_task": lambda rows: [(k, list(g)) for k, g in groupby(rows, lambda r: r["task"])],
        "by_env": _by_env,
        "duration": duration,
    }
    return environment.get_template("page.html.j2").render(
        results=results,
        tables=tables,
        curves=curves,
        timed=any(curve["hours"] for curve in drawn),
        shown=sorted({(curve["color"], curve["setting"]) for curve in drawn}),
        runs=source.runs,
        configs=_configs(source.runs),
        versions=_versions(source.runs),
        pictures=find_pictures(source.folder),
        data=embed_json(data),
        css=Markup(loader.get_source(environment, "page.css")[0]),
        js=Markup(loader.get_source(environment, "page.js")[0]),
        plotly=Markup(get_plotlyjs()),
    )


def embed_json(data: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(store.finite(data), allow_nan=False)  # Leaves nothing but ASCII.
    return Markup(text.translate({ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&"}))


def duration(seconds: float) -> str:
    """A wall time in the unit one would say it in."""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def find_pictures(folder: Path) -> list[dict[str, Any]]:
    """Known pictures below a folder, as data URIs; none that is too large to carry along."""
    pictures = []
    for path in (path / name for path, names in walk(folder) for name in PICTURES if name in names):
        with suppress(OSError):
            if not path.is_symlink() and path.stat().st_size <= MAX_PICTURE_BYTES:
                data, where = path.read_bytes(), path.relative_to(folder).as_posix()
                uri = "data:image/png;base64," + base64.b64encode(data).decode()
                known = {"title": PICTURES[path.name], "path": where, "uri": uri}
                pictures += [known] if data[:8] == PNG else []
    return pictures[:MOST_PICTURES]


def _configs(runs: list[Run]) -> list[dict[str, Any]]:
    """Every different config once, apart from its seed, with the runs that share it."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.config:
            plain = {k: v for k, v in run.config.items() if k != "seed"}
            groups.setdefault(json.dumps(plain, indent=1, sort_keys=True), []).append(run)
    return [
        {"text": text, "env": group[0].env, "setting": group[0].setting}
        | {"seeds": ", ".join(str(r.seed) for r in group)}
        for text, group in groups.items()
    ]


def _by_env(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Runs by task and setting, both in the order they first come in."""
    runs = list(runs)
    envs, settings = ([getattr(r, key) for r in runs] for key in ("env", "setting"))
    runs.sort(key=lambda r: (envs.index(r.env), settings.index(r.setting)))
    return [(env, list(group)) for env, group in groupby(runs, lambda r: r.env)]


def _versions(runs: list[Run]) -> list[tuple[str, str]]:
    """What the runs were made with; several versions of one package are all shown."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            found.setdefault(name, set()).add(version)
    return [(name, ", ".join(sorted(versions))) for name, versions in sorted(found.items())]
