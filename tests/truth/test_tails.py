"""Risk and quantiles of episode returns, with intervals that keep their promise."""

import json
from pathlib import Path

import numpy as np
import pytest

from bridgerl.cli.main import main
from bridgerl.truth.tails import describe_returns, quantile
from conftest import TINY


def test_figures_are_those_of_the_returns() -> None:
    returns = [float(n) for n in range(100, 0, -1)]
    found = describe_returns(returns, "cvar:0.1")
    assert found["value"] == pytest.approx(5.5)
    assert found["interval"][0] < 5.5 < found["interval"][1]
    values = {level: q["value"] for level, q in found["quantiles"].items()}
    assert values == {"0.05": 5, "0.5": 50, "0.95": 95}


def test_few_episodes_leave_intervals_open() -> None:
    assert describe_returns([3.0], "mean") == {
        "measure": "mean",
        "value": 3.0,
        "interval": None,
        "quantiles": {
            level: {"value": 3.0, "interval": [None, None]} for level in ("0.05", "0.5", "0.95")
        },
    }
    low = quantile(np.arange(10.0), 0.05)["interval"]
    assert low == [None, 2.0]


@pytest.mark.parametrize("level", [0.05, 0.5, 0.95])
def test_an_interval_of_order_statistics_covers_at_least_95_per_cent(level: float) -> None:
    rng, hits = np.random.default_rng(0), []
    for _ in range(2_000):
        low, high = quantile(rng.random(200), level)["interval"]
        hits.append((low is None or low <= level) and (high is None or level <= high))
    assert 0.945 <= np.mean(hits) <= 0.985


def test_evaluate_shows_risk_beside_the_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    short = ["150" if word == "600" else word for word in TINY]
    assert main([*short, "--quiet", "--out", str(tmp_path)]) == 0
    run = str(next(tmp_path.glob("*/*/seed0")))
    capsys.readouterr()
    assert main(["evaluate", run, "--episodes", "20", "--risk", "cvar:0.1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    worst = sorted(result["returns"])[:2]
    assert result["risk"]["value"] == pytest.approx(sum(worst) / 2)
    assert result["risk"] == describe_returns(result["returns"], "cvar:0.1")
    assert main(["evaluate", run, "--risk", "wang:0.75"]) == 0
    shown = capsys.readouterr().out
    for words in ("return ", "wang:0.75: ", "5% quantile: ", "95% quantile: ", "open"):
        assert words in shown
    assert main(["evaluate", run, "--risk", "cvr:0.1"]) == 2
    assert "did you mean cvar?" in capsys.readouterr().err
