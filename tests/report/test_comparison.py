"""Any two settings on any task: paired differences, chances, baselines, names and alarms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bridgerl.cli.main import main
from bridgerl.report.alarms import alarms
from bridgerl.report.build import build_report
from bridgerl.report.load import Run
from bridgerl.report.naming import label, read_name

SCORES = {
    "plain": {"Own-v0": [-200.0, -150.0, -180.0], "Swim-v0": [10.0, 12.0, 11.0]},
    "new": {"Own-v0": [-150.0, -110.0, -135.0], "Swim-v0": [13.0, 14.0, 12.5]},
    "other": {"Own-v0": [-210.0, -140.0, -190.0]},
}


def write(folder: Path, score: float) -> None:
    folder.mkdir(parents=True)
    results = np.array([[score - 5.0], [score]])
    np.savez(folder / "evaluations.npz", timesteps=[100, 200], results=results, ep_lengths=results)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Settings of another library on tasks that no paper knows, partly below zero."""
    for setting, tasks in SCORES.items():
        for task, scores in tasks.items():
            for seed, score in enumerate(scores):
                write(tmp_path / task / setting / f"seed{seed}", score)
    return tmp_path


def row(results: dict[str, Any], *place: str, measure: str = "final") -> dict[str, Any]:
    found = [
        r
        for r in results["comparisons"]
        if (r["setting"], r["baseline"], r["task"], r["measure"]) == (*place, measure)
    ]
    assert len(found) == 1, place
    return found[0]


def test_differences_are_taken_seed_by_seed_with_students_interval(runs: Path) -> None:
    found = row(build_report(runs), "new", "plain", "Own-v0")
    gaps = np.subtract(SCORES["new"]["Own-v0"], SCORES["plain"]["Own-v0"])
    test = scipy_stats.ttest_1samp(gaps, 0.0).confidence_interval(0.95)
    assert (found["pairs"], found["difference"]) == (3, pytest.approx(gaps.mean()))
    assert (found["low"], found["high"]) == pytest.approx((test.low, test.high))
    # 8 of 9 pairs of runs are won: -150 ties with -150.
    assert found["improvement"] == pytest.approx((9 - 0.5) / 9)


def test_every_setting_can_be_the_baseline_and_the_sides_agree(runs: Path) -> None:
    results = build_report(runs)
    one, other = row(results, "new", "other", "Own-v0"), row(results, "other", "new", "Own-v0")
    assert one["difference"] == -other["difference"]
    assert (one["low"], one["high"]) == (-other["high"], -other["low"])
    assert one["improvement"] == pytest.approx(1 - other["improvement"])
    one, other = (row(results, *pair, "all tasks") for pair in (("new", "plain"), ("plain", "new")))
    assert one["improvement_low"] == pytest.approx(1 - other["improvement_high"])


def test_three_seeds_have_no_interval_of_the_chance_to_win(runs: Path) -> None:
    found = row(build_report(runs), "new", "plain", "Own-v0")
    assert found["improvement_low"] is found["improvement_high"] is None


def test_few_common_seeds_do_not_leave_the_others_out(tmp_path: Path) -> None:
    for setting, first in (("a", 0), ("b", 4)):
        for i in range(6):
            write(tmp_path / "Own-v0" / setting / f"seed{first + i}", 10.0 * i + first)
    found = row(build_report(tmp_path), "b", "a", "Own-v0")
    assert (found["pairs"], found["difference"]) == (0, pytest.approx(4))


def test_over_all_tasks_stands_the_chance_alone_because_returns_have_no_common_unit(
    runs: Path,
) -> None:
    found = row(build_report(runs), "new", "plain", "all tasks")
    assert found["difference"] is None
    assert found["improvement"] == pytest.approx(((9 - 0.5) / 9 + 1) / 2)
    assert 0.5 < found["improvement_low"] < found["improvement_high"] <= 1


def test_different_seeds_are_compared_by_their_means(tmp_path: Path) -> None:
    for setting, first in (("a", 0), ("b", 5)):
        for i, score in enumerate(SCORES["plain"]["Own-v0"]):
            write(tmp_path / "Own-v0" / setting / f"seed{first + i}", score + 10 * first)
    found = row(build_report(tmp_path), "b", "a", "Own-v0")
    welch = scipy_stats.ttest_ind(
        *([s + d for s in SCORES["plain"]["Own-v0"]] for d in (50, 0)), equal_var=False
    ).confidence_interval(0.95)
    assert (found["pairs"], found["difference"]) == (0, pytest.approx(50))
    assert (found["low"], found["high"]) == pytest.approx((welch.low, welch.high))


def test_a_baseline_is_chosen_by_name_and_a_wrong_one_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(runs), "--baseline", "new"]) == 0
    table = (runs / "results.md").read_text().partition("## Comparison")[2].partition("##")[0]
    assert "| Own-v0 | plain | new | final | 3 | -45.00 |" in table
    assert "| new | plain |" not in table
    page = (runs / "report.html").read_text()
    assert "<option selected>new</option>" in page
    capsys.readouterr()
    assert main(["report", str(runs), "--baseline", "nwe"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "did you mean new?" in err


def test_one_seed_has_a_difference_and_no_interval(tmp_path: Path) -> None:
    for setting, score in (("a", 1.0), ("b", 3.0)):
        write(tmp_path / "Own-v0" / setting / "seed0", score)
    found = row(build_report(tmp_path), "b", "a", "Own-v0")
    assert (found["difference"], found["low"], found["improvement_low"]) == (2.0, None, None)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("Ant-v4_1", ("Ant-v4", 1, "")),
        ("seed3", (None, 3, "")),
        ("sac_Ant-v4_seed3", ("Ant-v4", 3, "sac")),
        ("Ant-v4-tqc-big", ("Ant-v4", None, "tqc-big")),
        ("Ant-v4__sac_continuous__7__1700000000", ("Ant-v4", 7, "sac_continuous")),
        ("SAC_1", (None, None, "SAC_1")),
        ("sac-v2beta", (None, None, "sac-v2beta")),
    ],
)
def test_folders_of_other_libraries_get_names(part: str, words: tuple[Any, ...]) -> None:
    assert read_name(part) == words


@pytest.mark.parametrize("text", ['#{"t_start": 1.0, "env_id": "Own-v0"}\nr,l,t\n', "", "#{", "#3"])
def test_a_monitor_beside_the_evaluations_names_their_task(tmp_path: Path, text: str) -> None:
    (tmp_path / "SAC_1").mkdir()
    (tmp_path / "monitor.csv").write_text(text)
    found = label(tmp_path, tmp_path / "SAC_1", {})
    assert found["env"] == ("Own-v0" if "Own" in text else "unnamed task")
    assert found["setting"] == "SAC_1"


def test_a_setting_of_ours_keeps_its_name_though_it_holds_a_task(tmp_path: Path) -> None:
    config = {"env": "Hopper-v5", "seed": 2}
    found = label(tmp_path, tmp_path / "Hopper-v5" / "like-Ant-v4" / "seed2", config)
    assert (found["env"], found["setting"], found["seed"]) == ("Hopper-v5", "like-Ant-v4", 2)


def run(seed: int, **health: Any) -> Run:
    return Run(f"r{seed}", "Own-v0", "plain", seed, health=health)


def test_an_alarm_is_raised_once_for_all_seeds_with_its_worst() -> None:
    biased = {"relative_q_bias": -0.91, "current": True}
    found = alarms(
        [
            run(0, q_over_bound=2.0),
            run(1, q_over_bound=3.0, values=biased),
            run(2, q_over_bound=0.2),
        ]
    )
    assert len(found) == 2
    assert found[0].startswith("plain on Own-v0: values reach 3 times the largest return")
    assert found[0].endswith("(seed 0, seed 1)")
    assert "Q bias -91%" in found[1]


@pytest.mark.parametrize(
    "health",
    [
        {},
        {"clipped": None, "q_over_bound": None, "values": None, "not_finite": 0, "diverged": 0},
        {"clipped": 0.5, "q_over_bound": 0.99},
        {"clipped": 1.0},  # The default clip is 1, the returns of most tasks are larger.
        {"values": {"relative_q_bias": 5.0, "current": False}},
        {"values": {"relative_q_bias": None, "current": True}},
        {"values": {"relative_q_bias": 0.3, "current": True}},
    ],
)
def test_healthy_runs_raise_nothing(health: dict[str, Any]) -> None:
    assert alarms([run(0, **health)]) == []


def test_alarms_stand_under_problems_on_every_page(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bridgerl.report.results.alarms", lambda _: ["values <100 %>"])
    assert main(["report", str(runs)]) == 0
    assert "problems: 1, listed on the page" in capsys.readouterr().out
    assert "values &lt;100 %>" in (runs / "results.md").read_text().partition("## Problems")[2]
    page = (runs / "report.html").read_text()
    assert "<li>values &lt;100 %&gt;</li>" in page.partition('id="problems"')[2]
    assert json.loads((runs / "results.json").read_text())["warnings"] == ["values <100 %>"]
