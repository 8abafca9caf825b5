"""From runs to results as plain data: cells beside the paper's, overall scores, verdicts."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from bridgerl.config import ENVIRONMENT
from bridgerl.errors import printable
from bridgerl.report import stats
from bridgerl.report.alarms import alarms
from bridgerl.report.comparison import compare_settings, pick_baseline
from bridgerl.report.load import Run, Source
from bridgerl.studies import SCALES, Study, paper
from bridgerl.studies.claims import Cell, Cells, Claim

BASELINE = "sac+cdq"
Samples = dict[tuple[str, str], list[float]]
"""Scores by setting and task."""


def summarise_source(source: Source, baseline: str | None = None) -> dict[str, Any]:
    """Everything that tables and the page show of runs together."""
    made, runs, study = source.manifest, source.runs, source.study
    scale = SCALES.get(made.scale) if made else None
    decides = scale is None or scale.decides
    rival = pick_baseline(baseline, runs)
    samples = {key: _samples(runs, key) for key in study.measures}
    judged = [key for key, measure in study.measures.items() if measure.judges]
    by_seed = {key: _seeds(runs, key) for key in study.measures}
    seeds = by_seed if study.paired else {}
    exact = {(part.setting, part.task) for run in runs for part in run.parts if part.exact}
    cells = {key: _cells(found, exact) for key, found in samples.items()}
    own = {key: (cells[key], seeds.get(key)) for key in judged}
    claims = [_claim(claim, own, study.paper_cells(), decides) for claim in study.claims]
    # What was not run says least, so it comes last.
    claims.sort(key=lambda c: next(iter(c["verdicts"].values()))["word"] == stats.NOT_RUN)
    counts: dict[str, dict[str, int]] = {}
    for key in judged if claims else ():
        words = Counter(claim["verdicts"][key]["word"] for claim in claims)
        counts[key] = {word: words[word] for word in stats.WORDS}
    own_problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    return {
        "title": study.title,
        "study": printable(made.study) if made else None,
        "scale": printable(made.scale) if made else None,
        "preset": scale.preset if scale else None,
        "tables": list(study.tables),
        "measures": {key: measure._asdict() for key, measure in study.measures.items()},
        "figure": study.figure._asdict(),
        "planned": len(runs),
        "finished": sum(r.finished for r in runs),
        "counts": counts,
        "claims": claims,
        "decides": decides,
        "paired": study.paired,
        "cells": _rows(cells, runs, study),
        "overall": _overall(samples, runs, baseline) if study.pools_tasks else [],
        "baseline": rival,
        "comparisons": [
            row
            for key in (study.measures if study.more_is_better else ())
            for row in compare_settings(key, samples[key], by_seed[key], rival)
        ],
        "problems": [*source.problems, *own_problems, *_mixtures(runs)],
        "warnings": alarms(runs),
    }


UNSET = (None, [], 1)
"""Settings of an environment that change nothing: nothing given, no wrapper, no frame skipped."""


def _mixtures(runs: list[Run]) -> list[str]:
    """Cells whose runs differ in length or in settings, so that their mean says little."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.finished:
            groups.setdefault(f"{run.setting} on {run.env}", []).append(run)
    notes = []
    for cell, group in groups.items():
        lengths = sorted({run.reached for run in group})
        different: list[list[Any]] = []
        for config in (run.config for run in group if run.config):
            learning = [config.get(key) for key in ("actor", "critic", "train")]
            # A run from before these settings has none of them, which is their default.
            learning.append({k: v for k in ENVIRONMENT if (v := config.get(k)) not in UNSET})
            different += [learning] if learning not in different else []
        if len(lengths) > 1:
            notes.append(f"{cell}: runs of {' and '.join(map(str, lengths))} steps in one mean")
        if len(different) > 1:
            notes.append(f"{cell}: {len(different)} different configurations in one mean")
    return notes


def _samples(runs: Iterable[Run], measure: str) -> Samples:
    """Scores of finished runs by setting and task: the rest is not comparable yet."""
    found: Samples = {}
    for run in runs:
        for part in run.parts if run.finished else ():
            if measure in part.scores:
                found.setdefault((part.setting, part.task), []).append(part.scores[measure])
    return found


def _seeds(runs: Iterable[Run], measure: str) -> stats.Seeds:
    """The scores of finished runs by setting, task and seed."""
    found: dict[tuple[str, str], dict[Any, float]] = {}
    for run in runs:
        for part in run.parts if run.finished else ():
            if measure in part.scores:
                cell = found.setdefault((part.setting, part.task), {})
                cell[run.seed] = part.scores[measure]
    return found


def _cells(samples: Samples, exact: set[tuple[str, str]]) -> Cells:
    """Means and deviations; what follows from formulas has none."""
    return {
        cell: Cell(scores[0], 0.0, 1, exact=True) if cell in exact else stats.summarise(scores)
        for cell, scores in samples.items()
    }


def _printed(study: Study, setting: str, task: str) -> list[dict[str, Any]]:
    """The paper's number for a cell, under each of the study's tables that prints one."""
    usual, rows = study.paper_cells().get((setting, task)), []
    for table in study.tables:
        score = study.printed(table, setting, task)
        if score and usual:
            std = None if usual.exact else score.std
            row: dict[str, Any] = {"table": table, "mean": score.mean, "std": std}
            # A slip of the paper's: this table shows another setting's score.
            slip = score.mean != usual.mean
            rows.append(row | {"claims_use": _score(usual)} if slip else row)
    return rows


def _claim(
    claim: Claim,
    found: dict[str, tuple[Cells, stats.Seeds | None]],
    printed: Cells,
    decides: bool,
) -> dict[str, Any]:
    known = all(cell in printed for cell in claim.cells())
    ours = {
        key: stats.judge(claim, cells, decides=decides, seeds=seeds)
        for key, (cells, seeds) in found.items()
    }
    return {
        "text": claim.text,
        "verdicts": {key: _verdict(verdict) for key, verdict in ours.items()},
        "paper": _verdict(stats.judge(claim, printed)) if known else None,
    }


def _verdict(verdict: stats.Verdict) -> dict[str, Any]:
    said = {key: getattr(verdict, key) for key in ("word", "value", "reason", "seeds")}
    return said | _ends("", verdict.interval)


def _rows(cells: dict[str, Cells], runs: list[Run], study: Study) -> list[dict[str, Any]]:
    """A row per task and setting that has runs."""
    places = [((part.setting, part.task), run) for run in runs for part in run.parts]
    pending = Counter(cell for cell, run in places if not run.finished)
    known = list(dict.fromkeys(cell for cell, _ in places))
    tasks = list(dict.fromkeys(task for _, task in known))
    rows = []
    for setting, task in sorted(known, key=lambda cell: tasks.index(cell[1])):
        found = {key: own[setting, task] for key, own in cells.items() if (setting, task) in own}
        rows.append(
            {
                "task": task,
                "setting": setting,
                "n": max((c.n for c in found.values()), default=0),
                "exact": any(c.exact for c in found.values()),
                "pending": pending[setting, task],
                "scores": {key: _score(c) for key, c in found.items()},
                "paper": _printed(study, setting, task),
            }
        )
    return rows


def _score(cell: Cell) -> dict[str, float | None]:
    return {"mean": cell.mean, "std": cell.std if cell.n > 1 else None}


def _overall(
    samples: dict[str, Samples], runs: list[Run], baseline: str | None
) -> list[dict[str, Any]]:
    """IQM over the paper's tasks, and the chance to beat a baseline or the same actor's CDQ."""
    pairs = {r.setting: r.pair for r in runs if r.pair}
    rows = []
    for measure, own in samples.items():
        scaled: dict[str, list[Any]] = {r.setting: [] for r in runs}
        for (setting, task), scores in own.items():
            if (printed := paper.RETURNS[BASELINE].on(task)) is not None:
                scaled[setting].append(np.array(scores) / printed.mean)
        rows += [
            {"measure": measure, "setting": setting, "tasks": len(tasks), "iqm": stats.iqm(tasks)}
            | _ends("", stats.iqm_interval(tasks, np.random.default_rng(0)))
            | _improvement(setting, baseline or _same_actor(setting, pairs), own)
            for setting, tasks in scaled.items()
            if tasks
        ]
    return rows


def _ends(prefix: str, interval: stats.Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{prefix}low": low, f"{prefix}high": high}


def _same_actor(setting: str, pairs: dict[str, Any]) -> str | None:
    """The setting that trains the same actor with CDQ."""
    actor, critic = pairs.get(setting) or (None, None)
    rivals = [s for s, pair in pairs.items() if pair == (actor, "cdq") and critic != "cdq"]
    return rivals[0] if rivals else None


def _improvement(setting: str, baseline: str | None, samples: Samples) -> dict[str, Any]:
    """Against a baseline, over the tasks that both have."""
    baseline = None if baseline == setting else baseline
    value, interval = None, None
    tasks = [t for s, t in samples if s == setting and (baseline, t) in samples]
    if baseline is not None and tasks:
        ours, theirs = ([np.array(samples[s, t]) for t in tasks] for s in (setting, baseline))
        value = stats.improvement(ours, theirs)
        interval = stats.improvement_interval(ours, theirs, np.random.default_rng(0))
    return {"baseline": baseline, "improvement": value} | _ends("improvement_", interval)
