"""The league's errors in the tails, beside W1; cells of older versions still count."""

import json
from typing import Any

import numpy as np
import pytest

from bridgerl.presets import resolve
from bridgerl.truth.league import TAILS, compare, markdown, run_cell, summarise
from bridgerl.truth.settings import LeagueCell


def cell(entrant: str, **more: float) -> dict[str, Any]:
    plain = {"w1": 1.0, "w1_online": 1.0, "crps": 1.0, "mean_error": 0.5, "std": 10.0}
    figures = {**plain, "updates_per_second": 100.0, **more}
    return {"problem": "p", "entrant": entrant, "figures": figures, "curves": []}


NEW = {"cvar_5_error": 2.0, "cvar_10_error": 3.0, "upper_90_error": 4.0}


def test_tails_are_means_of_the_ends() -> None:
    z = np.arange(100.0)
    means = {key: tail(z) for key, tail in TAILS.items()}
    assert means == {"cvar_5_error": 2.0, "cvar_10_error": 4.5, "upper_90_error": 94.5}


def test_a_cell_has_the_errors_of_both_tails() -> None:
    critic = resolve("league", critic="cdq").critic
    figures = run_cell(LeagueCell("two-point", "cdq", critic, 0, 1))["figures"]
    value = figures["mean"]  # A point that is far from both ends.
    assert figures["cvar_5_error"] == pytest.approx(100 + value, abs=1e-3)
    assert figures["upper_90_error"] == pytest.approx(100 - value, abs=1e-3)


def test_tails_are_shown_in_per_cent_of_the_deviation() -> None:
    results = [cell("a", **NEW), cell("b", **NEW)]
    overview = compare(results)
    assert [row["cvar_10_error"] for row in overview] == [30.0, 30.0]
    text = markdown(summarise(results), overview)
    assert "CVaR 10 % off" in text
    assert "30.00 %" in text


def test_cells_without_tails_still_load() -> None:
    results = [cell("a", **NEW), cell("a"), cell("b", **NEW)]
    rows, overview = summarise(results), compare(results)
    assert "cvar_5_error" not in rows[0]
    assert rows[1]["cvar_5_error"] == 2.0
    assert all("cvar_5_error" not in row for row in overview)
    assert "diverged" not in markdown(rows, overview)
    json.dumps(overview)
