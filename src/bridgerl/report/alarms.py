"""Signs of ill health that a reader should know of before believing any score."""

from collections.abc import Callable
from typing import Any

from bridgerl.report.load import Run

Q_BIAS = 0.5
"""Share of the returns' size that values may miss them by."""
Health = dict[str, Any]


def _q_bias(health: Health) -> float | None:
    values = health.get("values") or {}
    share = values.get("relative_q_bias") if values.get("current") else None
    return share if isinstance(share, float) and abs(share) >= Q_BIAS else None


def _over_bound(health: Health) -> float | None:
    ratio = health.get("q_over_bound")
    return ratio if isinstance(ratio, int | float) and ratio > 1 else None


def _counted(key: str) -> Callable[[Health], float | None]:
    return lambda health: health.get(key) or None


ALARMS: dict[str, tuple[Callable[[Health], float | None], str]] = {
    "q_bias": (
        _q_bias,
        "Q bias {:+.0%}: values are that far from the returns that followed, over their size",
    ),
    "q_over_bound": (
        _over_bound,
        "values reach {:.2g} times the largest return that the rewards allow",
    ),
    "not_finite": (_counted("not_finite"), "{:.0f} logged numbers are not finite"),
    "diverged": (_counted("diverged"), "MuJoCo gave up in {:.0f} episodes"),
}


def alarms(runs: list[Run]) -> list[str]:
    """One line per kind of alarm and setting on a task: the worst of its seeds, and which."""
    worst: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for run in runs:
        for kind, (look, _) in ALARMS.items():
            if (value := look(run.health)) is not None:
                seed = run.name if run.seed is None else f"seed {run.seed}"
                worst.setdefault((run.setting, run.env, kind), []).append((value, seed))
    lines = []
    for (setting, env, kind), found in worst.items():
        value = max((value for value, _ in found), key=abs)
        seeds = ", ".join(seed for _, seed in found)
        lines.append(f"{setting} on {env}: {ALARMS[kind][1].format(value)} ({seeds})")
    return lines
