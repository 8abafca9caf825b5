"""Results as Markdown, LaTeX and JSON, from the data of `results`."""

import json
import math
import re
from typing import Any

from bridgerl.report.stats import NOT_RUN
from bridgerl.runs import store

NORMALISED = (
    "Scores are divided by the mean that the paper prints for SAC+CDQ on the same task, and "
    "pooled over tasks; intervals are 95 %, by a bootstrap of seeds within tasks, and rough for "
    "few seeds."
)
VERDICTS = (
    "A claim holds, or does not, if the 95 % interval ({how}) of its contrast lies on one side of "
    "0, each on its own; exact numbers need none. The contrast is a difference of means, or of log "
    "ratios where gains or spreads are compared. The paper's own numbers are judged as three "
    "seeds. Beside an undecided one stands how many seeds would find a contrast of this size in "
    "four of five tries."
)
SEED_BY_SEED = "Student's, seed by seed; F for spreads"
APART = "Welch; F for spreads"
OVERALL = ["measure", "setting", "tasks", "IQM", "95 %", "P(better than)", "P", "95 % of P"]
COMPARISON = ["task", "setting", "against", "measure", "seeds", "difference", "95 %"]
COMPARISON += ["P(better)", "95 % of P"]
COMPARED = (
    "Setting minus baseline. Where both have two or more seeds in common, differences are taken "
    "seed by seed (Student's interval; the number of seeds stands beside it), else between means "
    "(Welch's). P is the chance that a run of the setting beats one of the baseline, with a "
    "bootstrap interval, rough for few seeds. Each interval stands alone: of twenty comparisons "
    "without any difference, one is expected to look like one."
)
COUNTED = "Mean +- standard deviation over n finished runs. "
EXACT = (
    "All numbers follow from formulas; beside a verdict stands by how much the claim is met or "
    "missed."
)


def notes(results: dict[str, Any]) -> dict[str, str]:
    """What stands above each table: how claims are judged, scores counted, tasks pooled."""
    exact = all(row["exact"] for row in results["cells"])
    mixed = len({row["tasks"] for row in results["overall"]}) > 1
    short = f" Runs of scale {results['scale']} are too short to decide any of them."
    measures = [f"{measure['head']}: {measure['says']}" for measure in results["measures"].values()]
    how = VERDICTS.format(how=SEED_BY_SEED if results["paired"] else APART)
    return {
        "Claims": EXACT if exact else how + ("" if results["decides"] else short),
        "Scores": ("" if exact else COUNTED) + "; ".join(measures) + ".",
        "Comparison": COMPARED,
        "Overall": NORMALISED + " Settings with different numbers of tasks do not compare." * mixed,
    }


def figure(value: float | None, like: float | None = None) -> str:
    """A number as tables print it, with the decimals that fit its size, or another's."""
    if value is None or not math.isfinite(value):
        return "-"
    size = abs(value if like is None else like)
    if 0 < size < 0.0005:
        return f"{value:.1e}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 1 else 3}f}"


def spread(score: dict[str, Any] | None) -> str:
    """Mean +- standard deviation; one score has none."""
    if not score:
        return "-"
    mean, std = score["mean"], score["std"]
    return figure(mean) if std is None else f"{figure(mean)} +- {figure(std, like=mean)}"


def interval(row: dict[str, Any], prefix: str = "") -> str:
    """Both ends of an interval as text, or nothing."""
    low, high = row[f"{prefix}low"], row[f"{prefix}high"]
    if low is None or high is None:
        return ""
    like = max(abs(low), abs(high))
    return f"[{figure(low, like)}, {figure(high, like)}]"


def paper_lines(printed: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What the paper prints and in which tables; one number if they agree."""
    numbers: dict[str, list[str]] = {}
    for cell in printed:
        misprint = cell.get("claims_use")
        note = f", where claims use {spread(misprint)}" if misprint else ""
        numbers.setdefault(spread(cell), []).append(cell["table"] + note)
    return [(number, ", ".join(labels)) for number, labels in numbers.items()]


def verdict_text(verdict: dict[str, Any] | None) -> str:
    """The word, the contrast and its interval."""
    if verdict is None:
        return "not printed"
    if verdict["word"] == NOT_RUN:  # What is missing stands in the JSON.
        return NOT_RUN
    return ": ".join(filter(None, (verdict["word"], contrast_text(verdict))))


def contrast_text(verdict: dict[str, Any]) -> str:
    """The contrast, its interval and how many seeds it wants, or why there is none."""
    if verdict["value"] is None:
        return verdict["reason"]
    ends = "" if verdict["low"] == verdict["high"] else interval(verdict)
    more = f"({verdict['seeds']} seeds)" if verdict["seeds"] else ""
    return " ".join(filter(None, (figure(verdict["value"]), ends, more)))


def parts(results: dict[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, head and rows of every table that has rows."""
    measures = results["measures"]
    heads = [measure["head"] for measure in measures.values()]
    judged = [measure["head"] for measure in measures.values() if measure["judges"]]
    printed = any(row["paper"] for row in results["cells"])
    claims = [
        [claim["text"], *map(verdict_text, [*claim["verdicts"].values(), claim["paper"]])]
        for claim in results["claims"]
    ]
    cells = []
    for row in results["cells"]:
        scores = [spread(row["scores"].get(key)) for key in measures]
        paper = "; ".join(f"{number} ({labels})" for number, labels in paper_lines(row["paper"]))
        n = "exact" if row["exact"] else str(row["n"])
        cells.append([row["task"], row["setting"], n, *scores, *[paper or "-"] * printed])
    overall = []
    for row in results["overall"]:
        own = [measures[row["measure"]]["head"], row["setting"], str(row["tasks"])]
        pooled = [figure(row["iqm"]), interval(row) or "-"]
        rival = [row["baseline"] or "-", figure(row["improvement"])]
        overall.append([*own, *pooled, *rival, interval(row, "improvement_") or "-"])
    against = results["baseline"]
    compared = [
        [
            *(row[key] for key in ("task", "setting", "baseline")),
            measures[row["measure"]]["head"],
            *comparison_cells(row),
        ]
        for row in results["comparisons"]
        if row["baseline"] == against
    ]
    found = [
        ("Claims", ["claim", *judged, "the paper's numbers"], claims),
        ("Scores", ["task", "setting", "n", *heads, *["paper"] * printed], cells),
        ("Comparison", COMPARISON, compared),
        ("Overall", OVERALL, overall),
    ]
    return [part for part in found if part[2]]


def comparison_cells(row: dict[str, Any]) -> list[str]:
    """Seeds in pairs, difference, its interval, the chance to be better, and its interval."""
    pairs = str(row["pairs"]) if row["pairs"] else "-"
    chance = [figure(row["improvement"]), interval(row, "improvement_") or "-"]
    return [pairs, figure(row["difference"]), interval(row) or "-", *chance]


def facts(results: dict[str, Any]) -> str:
    """Study, scale with its preset, and how much of it is there."""
    study, scale = results["study"] or "", results["scale"]
    if scale:
        preset = f" (preset {results['preset']})" if results["preset"] else ""
        study = f"study {study}, scale {scale}{preset}, "
    elif study:
        study = f"sweep {study}, "
    return f"{study}{results['finished']} of {results['planned']} runs finished"


def to_markdown(results: dict[str, Any]) -> str:
    """results.md."""
    lines = [f"# {_markdown(results['title'])}", "", facts(results)]
    for title, head, rows in parts(results):
        table = [head, ["---"] * len(head), *([_markdown(cell) for cell in row] for row in rows)]
        lines += ["", f"## {title}", "", notes(results)[title], ""]
        lines += [f"| {' | '.join(row)} |" for row in table]
    if problems := [*results["problems"], *results["warnings"]]:
        lines += ["", "## Problems", "", *(f"- {_markdown(p)}" for p in problems)]
    return "\n".join(lines) + "\n"


def to_latex(results: dict[str, Any]) -> str:
    """results.tex: booktabs tables."""
    lines = [f"% {_one_line(results['title'])}: {_one_line(facts(results))}"]
    for title, head, rows in parts(results):
        columns = "".join("r" if _NUMBER.match(cell) else "l" for cell in rows[0])
        names, *cells = (" & ".join(map(_latex, row)) + r" \\" for row in (head, *rows))
        caption = rf"\caption{{{title}. {_latex(notes(results)[title])}}}"
        lines += ["", r"\begin{table}", r"\centering", caption]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", names, r"\midrule", *cells]
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


_NUMBER = re.compile(r"[-.]*\d[-.\d]*( |$)")
# What a renderer would take for markup.
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\|*_`[]"} | {"&": "&amp;", "<": "&lt;"})
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
)


def _markdown(text: str) -> str:
    return _one_line(text).translate(_MARKDOWN)


def _latex(text: str) -> str:
    """Text in a cell; a leading [ would be read as the argument of the line end before it."""
    text = _one_line(text).translate(_LATEX).replace("+-", r"$\pm$")
    return "{[}" + text[1:] if text.startswith("[") else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def to_json(results: dict[str, Any]) -> str:
    """results.json; what is not finite is null."""
    return json.dumps(store.finite(results), indent=1, allow_nan=False) + "\n"
