"""Results as Markdown, LaTeX and JSON, from the data of `results`."""

import json
import math
from collections.abc import Sequence
from typing import Any

from bridgerl.report.stats import NOT_RUN
from bridgerl.runs import store

NORMALISED = (
    "Scores are divided by the mean that the paper prints for SAC+CDQ on the same task, and "
    "pooled over tasks; intervals are 95 %, by a bootstrap of seeds within tasks, and rough for "
    "few seeds."
)
VERDICTS = (
    "A claim holds, or does not, if the 95 % interval (Welch; F for spreads) of its contrast lies "
    "on one side of 0, each on its own; exact numbers need none. The contrast is a difference of "
    "means, or of log ratios where gains or spreads are compared. The paper's own numbers are "
    "judged as three seeds."
)
COUNTED = "Mean +- standard deviation over n finished runs."
EXACT = (
    "All numbers follow from formulas; beside a verdict stands by how much the claim is met or "
    "missed."
)


def claims_note(results: dict[str, Any]) -> str:
    """How claims are judged here."""
    if all(row["exact"] for row in results["cells"]):
        return EXACT
    short = f" Runs of scale {results['scale']} are too short to decide any of them."
    return VERDICTS + ("" if results["decides"] else short)


def overall_note(results: dict[str, Any]) -> str:
    """How scores are pooled, and whether all settings have the same tasks."""
    mixed = len({row["tasks"] for row in results["overall"]}) > 1
    return NORMALISED + (" Settings with different numbers of tasks do not compare." * mixed)


def scores_note(results: dict[str, Any]) -> str:
    """What the figures of the table of scores are."""
    exact = all(row["exact"] for row in results["cells"])
    return " ".join([*([] if exact else [COUNTED]), measures_text(results)])


def has_paper(results: dict[str, Any]) -> bool:
    """Whether the paper prints any of the scores."""
    return any(row["paper"] for row in results["cells"])


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


def interval(low: float | None, high: float | None) -> str:
    """Both ends, or nothing."""
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


def paper_text(printed: list[dict[str, Any]]) -> str:
    """The same on one line."""
    return "; ".join(f"{number} ({labels})" for number, labels in paper_lines(printed))


def verdict_text(verdict: dict[str, Any] | None) -> str:
    """The word, the contrast and its interval."""
    if verdict is None:
        return "not printed"
    if verdict["word"] == NOT_RUN:  # What is missing stands in the JSON.
        return NOT_RUN
    return ": ".join(filter(None, (verdict["word"], contrast_text(verdict))))


def contrast_text(verdict: dict[str, Any]) -> str:
    """The contrast and its interval, or why there is none."""
    if verdict["value"] is None:
        return verdict["reason"]
    exact = verdict["low"] == verdict["high"]
    ends = "" if exact else interval(verdict["low"], verdict["high"])
    return " ".join(filter(None, (figure(verdict["value"]), ends)))


def cell_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of scores."""
    measures = list(results["measures"])
    printed = ["paper"] if has_paper(results) else []
    head = ["task", "setting", "n", *heads(results), *printed]
    rows = [
        [row["task"], row["setting"], "exact" if row["exact"] else str(row["n"])]
        + [spread(row["scores"].get(key)) for key in measures]
        + [paper_text(row["paper"]) or "-" for _ in printed]
        for row in results["cells"]
    ]
    return head, rows


def overall_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the overall scores."""
    head = ["measure", "setting", "tasks", "IQM", "95 %", "P(better than)", "P", "95 % of P"]
    rows = [
        [
            results["measures"][row["measure"]]["head"],
            row["setting"],
            str(row["tasks"]),
            figure(row["iqm"]),
            interval(row["low"], row["high"]) or "-",
            row["baseline"] or "-",
            figure(row["improvement"]),
            interval(row["improvement_low"], row["improvement_high"]) or "-",
        ]
        for row in results["overall"]
    ]
    return head, rows


def claim_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the claims."""
    head = ["claim", *heads(results), "the paper's numbers"]
    rows = [
        [claim["text"]]
        + [verdict_text(verdict) for verdict in claim["verdicts"].values()]
        + [verdict_text(claim["paper"])]
        for claim in results["claims"]
    ]
    return head, rows


def parts(results: dict[str, Any]) -> list[tuple[str, str, tuple[list[str], list[list[str]]]]]:
    """Title, note and table of every part that has rows."""
    found = [
        ("Claims", claims_note(results), claim_table(results)),
        ("Scores", scores_note(results), cell_table(results)),
        ("Overall", overall_note(results), overall_table(results)),
    ]
    return [part for part in found if part[2][1]]


def measures_text(results: dict[str, Any]) -> str:
    """What each measure is."""
    texts = (f"{measure['head']}: {measure['says']}" for measure in results["measures"].values())
    return "; ".join(texts) + "."


def heads(results: dict[str, Any]) -> list[str]:
    """Columns of the measures."""
    return [measure["head"] for measure in results["measures"].values()]


def facts(results: dict[str, Any]) -> str:
    """Study, scale with its preset, and how much of it is there."""
    study = ""
    if results["study"]:
        study = f"study {results['study']}, scale {results['scale']} (preset {results['preset']}), "
    return f"{study}{results['finished']} of {results['planned']} runs finished"


def to_markdown(results: dict[str, Any]) -> str:
    """results.md."""
    lines = [f"# {_markdown(results['title'])}", "", facts(results)]
    for title, note, (head, rows) in parts(results):
        lines += ["", f"## {title}", "", note, "", _pipes(head), _pipes(["---"] * len(head))]
        lines += [_pipes([_markdown(cell) for cell in row]) for row in rows]
    if results["problems"]:
        lines += ["", "## Problems", "", *(f"- {_markdown(p)}" for p in results["problems"])]
    return "\n".join(lines) + "\n"


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    """Text that no renderer takes for markup, on one line."""
    text = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    for mark in "|*_`[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def to_latex(results: dict[str, Any]) -> str:
    """results.tex: booktabs tables."""
    lines = [f"% {_one_line(results['title'])}: {_one_line(facts(results))}"]
    for title, note, (head, rows) in parts(results):
        columns = "".join("r" if _is_number(cell) else "l" for cell in rows[0])
        lines += ["", r"\begin{table}", r"\centering", rf"\caption{{{title}. {_latex(note)}}}"]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, head)) + r" \\", r"\midrule"]
        lines += [" & ".join(map(_latex, row)) + r" \\" for row in rows]
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _is_number(text: str) -> bool:
    return text.split(" ")[0].replace(".", "").replace("-", "").isdigit()


_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
)


def _latex(text: str) -> str:
    """Text in a cell; a leading [ would be read as the argument of the line end before it."""
    text = _one_line(text).translate(_LATEX).replace("+-", r"$\pm$")
    return "{[}" + text[1:] if text.startswith("[") else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def to_json(results: dict[str, Any]) -> str:
    """results.json; what is not finite is null."""
    return json.dumps(store.finite(results), indent=1, allow_nan=False) + "\n"
