"""Reports of small run folders: what is read, what is written, and the page in a real browser."""

import json
import math
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from bridgerl import resolve, train
from bridgerl.cli.report import Report
from bridgerl.errors import UserError
from bridgerl.report import build as command
from bridgerl.report.build import build_report
from bridgerl.report.load import Run, load
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.result import RESULT, Result, ResultCell, read_result, write_result
from bridgerl.studies import STUDIES
from bridgerl.studies.jobs import Job, train_job
from bridgerl.studies.manifest import Manifest, write_manifest
from bridgerl.studies.run.work import run_job
from bridgerl.types import EnvSpec
from conftest import finished

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
EVIL = (
    "<script>alert(1)</script>",
    "</script>",
    '"><img src=x onerror=alert(2)>',
    "a & b <b>c</b>",
)
FILES = ("report.html", "results.md", "results.tex", "results.json")


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_run(out: Path, critic: str = "cdq", seed: int = 0, **options: Any) -> Path:
    """A run folder as `train` leaves it: ten evaluations that rise to `top`."""
    env, top, last = (
        options.get("env", "Hopper-v5"),
        options.get("top", 1000.0),
        options.get("last", 10),
    )
    base = resolve(env, "sac", critic)
    own = {"seed": seed, "out": out, "name": options.get("name")}
    config = base.changed(steps=10_000, train={"warmup": 1000}, **own)
    store.make_folder(config.folder)
    RunFolder(config.folder).write_config(config, EnvSpec(env, 3, 2))
    metrics, timing = [], []
    for k in range(1, last + 1):
        step, mean = 1000 * k, top * k / 10 + 10 * seed - 150
        values = {"critic/grad_norm": 0.5 + k, "critic/q_over_bound": 0.1 * k}
        metrics.append({"kind": "train", "step": step, **values})
        result = {"eval/return_mean": mean, "eval/returns": [mean], "eval/lengths": [9]}
        metrics.append({"kind": "eval", "step": step, **result})
        timing.append({"step": step, "seconds": 36.0 * k, "eval_seconds": 0.0})
    (config.folder / "metrics.jsonl").write_text(lines(metrics))
    (config.folder / "timing.jsonl").write_text(lines(timing))
    if last == 10:
        done = {"step": 10_000, "exact": True, "diverged_episodes": 0}
        (config.folder / "DONE").write_bytes(store.to_json(done))
    return config.folder


def write_study(root: Path, name: str, scale: str, jobs: dict[Path, Job]) -> Path:
    folder = root / scale / name
    folder.mkdir(parents=True)
    write_manifest(folder, Manifest(name, scale, None, 0.0, jobs))
    return folder


def job(folder: Path, setting: str) -> Job:
    """The job whose results lie in a folder."""
    return train_job(setting, RunFolder(folder).read_config())


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two critics on two tasks, two seeds, one run unfinished."""
    root = tmp_path / "runs"
    for seed in (0, 1):
        for env in ("Hopper-v5", "Walker2d-v5"):
            write_run(root, "cdq", seed, env=env)
        write_run(root, "dbc", seed, top=2000.0, last=10 if seed == 0 else 6)
    return root


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The main study with three seeds of three critics, where DBC is best on Hopper."""
    jobs: dict[Path, Job] = {}
    for critic, top in (("cdq", 1000.0), ("tqc", 1005.0), ("dbc", 2000.0)):
        for seed in range(3):
            folder = write_run(tmp_path / "cpu" / "runs", critic, seed, top=top)
            jobs[folder] = job(folder, f"sac+{critic}")
    later = resolve("Walker2d-v5", "sac", "dbc")
    jobs[tmp_path / "cpu" / "runs" / "none"] = train_job("sac+dbc", later)
    return write_study(tmp_path, "main", "cpu", jobs)


def only(folder: Path) -> Run:
    (run,) = load(folder).runs
    return run


def cell(results: dict[str, Any], task: str, setting: str) -> dict[str, Any]:
    (row,) = (r for r in results["cells"] if (r["task"], r["setting"]) == (task, setting))
    return row


# What is read.


def test_a_run_folder_gives_scores_time_health_and_its_command(tmp_path):
    run = only(write_run(tmp_path).parent)
    scores = {"best": 850, "final": 850, "average": 400, "hours": 10.0}
    assert run.scores == pytest.approx(scores | {"late": 400, "late_cvar_10": -50})
    assert (run.env, run.seed, run.pair, run.finished) == ("Hopper-v5", 0, ("sac", "cdq"), True)
    assert run.health["clipped"] == 1.0
    assert run.health["q_over_bound"] == pytest.approx(1.0)
    assert run.command.startswith("bridgerl train --env Hopper-v5 --actor sac --critic cdq")


def test_nulls_and_diverged_episodes_are_signs_of_ill_health(tmp_path):
    folder = write_run(tmp_path)
    with (folder / "metrics.jsonl").open("a") as file:
        train = {"kind": "train", "step": 10_000, "critic/loss": None, "critic/grad_norm": None}
        file.write(lines([train, {"kind": "episode", "step": 10_000, "episode/diverged": True}]))
    health = only(tmp_path).health
    assert (health["not_finite"], health["diverged"], health["clipped"]) == (2, 1, 1.0)


def test_a_value_bias_is_shown_with_its_weights_and_a_damaged_one_reported(tmp_path):
    folder = write_run(tmp_path)
    (folder / "ckpt" / "step-000000010000").mkdir(parents=True)
    assert only(tmp_path).health["values"] is None
    for bias, problems in ((-0.125, 0), (None, 0), ("<b>", 1)):
        RunFolder(folder).write_values("last", 10_000, {"relative_q_bias": bias})
        run = only(tmp_path)
        assert len(run.problems) == problems
        if not problems:
            values = run.health["values"]
            assert (values["relative_q_bias"], values["current"]) == (bias, True)
    (folder / "values.json").write_text('{"relative_q_bias": 0.5}')
    assert "no value bias of known weights" in only(tmp_path).problems[0]


def test_a_value_bias_of_weights_that_the_run_has_left_behind_is_not_shown_as_its_own(tmp_path):
    folder = write_run(tmp_path)
    (folder / "ckpt" / "step-000000010000").mkdir(parents=True)
    for step, shown, hidden in ((10_000, "last, step 10,000", "since"), (6_000, "since", "+50 %")):
        RunFolder(folder).write_values("last", step, {"relative_q_bias": 0.5})
        build_report(tmp_path)
        row = (tmp_path / "report.html").read_text().partition('id="health"')[2]
        row = row.partition("<tbody>")[2].partition("</table>")[0]
        assert shown in row
        assert hidden not in row


def test_a_real_run_is_read_and_repeated_by_its_command(tmp_path):
    base = resolve("InvertedPendulum-v5", "sac", "cdq")
    config = base.changed(
        steps=300,
        out=tmp_path / "runs",
        critic={"hidden": (16,)},
        train={"warmup": 100, "batch_size": 16},
        eval={"every": 100, "episodes": 1},
        log={"every": 50, "tensorboard": False},
    )
    train(config, quiet=True)
    run = only(tmp_path / "runs")
    assert run.finished
    assert run.evaluations.steps.tolist() == [100, 200, 300]
    assert run.scores["hours"] > 0
    assert run.health["exact"] is True
    assert "--critic.hidden 16" in run.command
    assert not run.problems


def test_a_resumed_run_counts_every_step_once_and_all_wall_time(tmp_path):
    folder = write_run(tmp_path, last=6)
    again = [{"step": 1000 * k, "seconds": 18.0 * (k - 4), "eval_seconds": 0} for k in range(5, 11)]
    with (folder / "timing.jsonl").open("a") as file:
        file.write(lines(again))
    clock = only(tmp_path).clock
    assert clock.steps.tolist() == [1000 * k for k in range(1, 11)]
    assert clock.seconds[[3, 4, 9]] == pytest.approx([144, 162, 252])
    assert clock.wall == 36 * 6 + 18 * 6


def test_starts_and_stops_between_log_lines_lose_no_time(tmp_path):
    folder = write_run(tmp_path)
    rows = [
        {"step": 0, "seconds": 2.0, "start": 1.0},
        {"step": 1000, "seconds": 12.0},
        {"step": 1500, "seconds": 17.0},  # Stopped here,
        {"step": 1500, "seconds": 30.0, "start": 1.0},  # taken up by a start that loads for long,
        {"step": 2000, "seconds": 35.0},
        {"step": 3000, "seconds": 45.0},  # killed here, with a checkpoint at 2,500,
        {"step": 2500, "seconds": 4.0, "start": 1.0},
        {"step": 4000, "seconds": 19.0},  # and finished; then started once more.
        {"step": 4000, "seconds": 0.1, "start": 1.0},
        {"step": 4000, "seconds": 0.2},
    ]
    (folder / "timing.jsonl").write_text(lines(rows))
    clock = only(tmp_path).clock
    assert clock.steps.tolist() == [0, 1000, 1500, 2000, 2500, 4000]
    assert clock.seconds == pytest.approx([0, 10, 15, 20, 25, 40])
    assert clock.wall == pytest.approx(17 + 45 + 19 + 0.2)


def test_evaluation_is_no_training_time_and_warm_up_counts_once(tmp_path):
    folder = write_run(tmp_path)
    rows = [
        {"step": 1000 * k, "seconds": 10.0 + 46 * (k - 1), "eval_seconds": 10.0 * (k - 1)}
        for k in range(1, 11)
    ]
    (folder / "timing.jsonl").write_text(lines(rows))
    assert only(tmp_path).scores["hours"] == pytest.approx((10 + 999 * 36) / 3600)


def test_evaluations_of_other_people_are_runs(tmp_path):
    for seed in (1, 2):
        folder = tmp_path / "logs" / "ppo" / f"Ant-v4_{seed}"
        folder.mkdir(parents=True)
        results = np.arange(6.0).reshape(3, 2) * seed
        np.savez(
            folder / "evaluations.npz", timesteps=[10, 20, 30], results=results, ep_lengths=results
        )
    results = build_report(tmp_path)
    row = cell(results, "Ant-v4", "logs/ppo")
    assert (row["n"], row["scores"]["best"]["mean"]) == (2, 4.5 * 1.5)
    assert not results["problems"]


def test_a_config_of_another_version_without_a_command_is_shown_without_one(tmp_path):
    folder = write_run(tmp_path)
    data = store.open_sealed_json((folder / "config.json").read_bytes(), "config.json")
    data["config"]["train"]["not_yet_known"] = 1
    del data["command"]  # As in folders of older releases.
    (folder / "config.json").write_bytes(store.to_sealed_json(data))
    run = only(tmp_path)
    assert (run.command, run.scores["best"], run.problems) == ("", 850, ())


def damage(folder: Path, name: str) -> None:
    """Break a file in a way of its own."""
    path = folder / name
    if name == "evaluations.npz":
        (folder / "metrics.jsonl").unlink()
        path.write_bytes(b"PK\x03\x04 but no archive")
    elif name == "DONE":
        path.write_text("[]")
    else:
        path.write_bytes(path.read_bytes()[:50] + b"\x00\xff{\n" + path.read_bytes()[50:])


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "config.json", "timing.jsonl", "DONE", "evaluations.npz"]
)
def test_a_damaged_file_is_reported_and_spoils_no_other_run(runs, name):
    damage(runs / "Hopper-v5" / "sac-cdq-lite" / "seed0", name)
    results = build_report(runs)
    assert [p for p in results["problems"] if name in p and "seed0" in p]
    assert cell(results, "Walker2d-v5", "sac-cdq-lite")["n"] == 2
    assert "Problems" in (runs / "report.html").read_text()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"timesteps": [1, 2]}, "has no array"),
        ({"timesteps": [1, 2], "results": [[1.0]]}, "odd"),
        ({"timesteps": [1, 2], "results": [[1.0], [math.nan]]}, "odd"),
        ({"timesteps": [2, 1], "results": [[1.0], [1.0]]}, "odd"),
        ({"timesteps": [1], "results": np.array([{"a": 1}], dtype=object)}, "damaged"),
        ({"timesteps": ["x"], "results": [[1.0]]}, "must be numbers"),
        ({"timesteps": [1], "results": [[1.0 + 2.0j]]}, "must be numbers"),
        ({"timesteps": [1], "results": [[1e308, 1e308]]}, "odd"),
    ],
)
def test_odd_arrays_are_reported(tmp_path, arrays, says):
    np.savez(tmp_path / "evaluations.npz", **arrays)
    assert says in build_report(tmp_path)["problems"][0]


def test_a_study_file_that_is_not_ours_is_reported_and_the_folder_searched(runs):
    for text in ("{", '{"study": "nope"}', '{"study": "main", "scale": "cpu", "jobs": [{}]}'):
        (runs / "study.json").write_text(text)
        results = build_report(runs)
        assert "study.json" in results["problems"][0]
        assert results["planned"] == 6


# What is written.


def test_unfinished_runs_are_drawn_but_not_counted(runs):
    row = cell(build_report(runs), "Hopper-v5", "sac-dbc-lite")
    assert (row["n"], row["pending"]) == (1, 1)


def test_runs_of_different_lengths_are_not_averaged_in_silence(tmp_path):
    for seed, step in enumerate((10_000, 20_000)):
        folder = write_run(tmp_path, seed=seed)
        (folder / "DONE").write_text(json.dumps({"step": step}))
    (problem,) = build_report(tmp_path)["problems"]
    assert problem.endswith("runs of 10000 and 20000 steps in one mean")


def test_a_study_is_judged_claim_by_claim_beside_the_papers_numbers(study):
    results = build_report(study)
    claims = {c["text"]: c for c in results["claims"]}
    assert claims["sac+dbc > sac+cdq on Hopper-v5"]["verdicts"]["best"]["word"] == "holds"
    assert claims["sac+dbc > sac+cdq on Hopper-v5"]["paper"]["word"] == "undecided"
    assert claims["sac+dbc > sac+tqc on HalfCheetah-v5"]["paper"]["word"] == "does not hold"
    assert results["counts"]["best"] == {
        "holds": 2,
        "does not hold": 0,
        "undecided": 0,
        "not run": 34,
    }
    assert (results["finished"], results["planned"]) == (9, 10)
    printed = {"table": "tab:main:experiments", "mean": 3732.5, "std": 83.2}
    assert cell(results, "Hopper-v5", "sac+dbc")["paper"] == [printed]


def test_overall_scores_are_normalised_and_compared_with_cdq(study):
    rows = {r["setting"]: r for r in build_report(study)["overall"] if r["measure"] == "best"}
    assert rows["sac+cdq"]["iqm"] == pytest.approx(860 / 3630.5)
    assert rows["sac+dbc"]["improvement"] == 1.0
    assert rows["sac+cdq"]["improvement"] is None


def test_settings_of_different_tasks_are_not_compared_in_silence(runs):
    build_report(runs)
    assert "do not compare" in (runs / "results.md").read_text()
    shutil.rmtree(runs / "Walker2d-v5")
    build_report(runs)
    assert "do not compare" not in (runs / "results.md").read_text()


def test_a_slip_of_the_paper_is_shown_with_what_claims_use(study):
    data = json.loads((study / "study.json").read_text())
    data["jobs"][-1]["task"] = "HalfCheetah-v5"
    del data["sha256"]
    (study / "study.json").write_bytes(store.to_sealed_json(data))
    (printed,) = cell(build_report(study), "HalfCheetah-v5", "sac+dbc")["paper"]
    assert (printed["mean"], printed["claims_use"]["mean"]) == (13787.8, 13120.2)
    assert "claims use 13120.2" in (study / "results.md").read_text()


def test_time_is_judged_in_hours(tmp_path):
    jobs: dict[Path, Job] = {}
    for critic in ("cdq", "dbc"):
        for seed in range(2):
            folder = write_run(tmp_path / "cpu" / "runs", critic, seed)
            jobs[folder] = job(folder, f"sac+{critic}")
    results = build_report(write_study(tmp_path, "training-time", "cpu", jobs))
    (claim,) = (c for c in results["claims"] if "sac+cdq on Hopper" in c["text"])
    assert claim["verdicts"]["hours"]["value"] == pytest.approx(10 - 0.4 * 10, rel=0.02)
    assert claim["paper"]["word"] == "holds"


def write_toys(root: Path, *, point: bool = False) -> dict[Path, Job]:
    """Results of the toy where flow matching ends five times as far off, or all at a point."""
    jobs = {job.folder: job for job in STUDIES["degradation"].jobs("smoke", root, (0, 1))}
    for folder, toy in jobs.items():
        assert toy.seed is not None
        folder.mkdir(parents=True)
        far = {"flow": 0.5, "vdrl": 0.4, "dbc": 0.1}[toy.setting] + toy.seed / 99
        shape = dict.fromkeys(("valley", "drift_kurtosis", "drift_bimodality"), far)
        scores = {"w1_share": far} | (dict.fromkeys(shape) if point else shape)
        curve = [[0, 0.0], [1, 0.0], [2, 0.0], [3, far]]
        cells = [ResultCell(toy.setting, toy.task, toy.seed, scores, curve)]
        write_result(folder / RESULT, Result(toy.identity, cells, {}, {"torch": "2"}))
    return jobs


def test_the_toy_is_judged_by_its_last_backup(tmp_path):
    jobs = write_toys(tmp_path)
    for scale, word in (("smoke", "undecided"), ("cpu", "holds")):
        folder = write_study(tmp_path, "degradation", scale, jobs)
        results = build_report(folder)
        words = {key: v["word"] for key, v in results["claims"][0]["verdicts"].items()}
        assert words == dict.fromkeys(STUDIES["degradation"].measures, word)
        assert load(folder).runs[0].parts[0].curve.means.tolist() == [0, 0, 0, 0.5]
        assert (results["finished"], results["problems"]) == (6, [])


def test_a_distribution_that_is_a_point_is_told(tmp_path):
    results = build_report(
        write_study(tmp_path, "degradation", "cpu", write_toys(tmp_path, point=True))
    )
    assert sum("valley has no value" in problem for problem in results["problems"]) == 6


def test_results_of_another_configuration_are_shown_but_do_not_count(study, tmp_path):
    for folder in (tmp_path / "cpu" / "runs" / "Hopper-v5" / "sac-dbc-lite").iterdir():
        run = RunFolder(folder)
        config = run.read_config()
        slower = config.changed(critic={"lr": 1e-5})
        run.write_config(slower, EnvSpec("Hopper-v5", 3, 2))
    results = build_report(study)
    assert results["finished"] == 6
    assert cell(results, "Hopper-v5", "sac+dbc")["n"] == 0
    assert sum("another configuration" in problem for problem in results["problems"]) == 3


def test_a_result_of_another_job_or_a_damaged_one_does_not_count(tmp_path):
    jobs = write_toys(tmp_path)
    first, second, *_ = jobs
    result = read_result(first / RESULT)
    write_result(first / RESULT, result._replace(job={"kind": "toy"}))
    (second / RESULT).write_text("{}")
    results = build_report(write_study(tmp_path, "degradation", "cpu", jobs))
    assert results["finished"] == 4
    assert "another configuration" in results["problems"][0]
    assert RESULT in results["problems"][1]


def write_endpoints(root: Path) -> Path:
    jobs = STUDIES["endpoint-bias"].jobs("paper", root)
    for endpoint in jobs:
        run_job(endpoint)
    return write_study(root, "endpoint-bias", "paper", {j.folder: j for j in jobs})


def test_what_follows_from_formulas_is_exact(tmp_path):
    results = build_report(write_endpoints(tmp_path))
    assert results["counts"]["percent"]["holds"] == 29
    assert results["counts"]["percent"]["does not hold"] == 4
    ours = cell(results, "M = 5", "Euler, right endpoint, cosine")
    assert ours["scores"]["percent"]["mean"] == pytest.approx(ours["paper"][0]["mean"], abs=0.005)
    assert "| M = 5 | Euler, right endpoint, cosine | exact | 6.85 | 6.85 (tab:bias" in (
        tmp_path / "paper" / "endpoint-bias" / "results.md"
    ).read_text().replace("\\_", "_")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_report_before_its_first_run(tmp_path, name):
    jobs = {j.folder: j for j in STUDIES[name].jobs("smoke", tmp_path)}
    results = build_report(write_study(tmp_path, name, "smoke", jobs))
    assert (results["finished"], results["planned"]) == (0, len(jobs))
    assert not results["problems"]


def test_lost_lines_cost_a_run_its_scores_but_not_in_silence(tmp_path):
    folder = write_run(tmp_path)
    said = {"best_return": 850.0, "final_return": 850.0, "average_return": 400.0}
    (folder / "DONE").write_bytes(store.to_json({"step": 10_000, **said}))
    assert build_report(tmp_path)["problems"] == []
    metrics = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    for kept in (metrics[:-1], metrics[:4], []):
        (folder / "metrics.jsonl").write_text("".join(kept))
        results = build_report(tmp_path)
        assert "lost lines" in results["problems"][0]
        assert (results["finished"], results["cells"][0]["n"]) == (1, 0)
    (folder / "metrics.jsonl").unlink()
    np.savez(folder / "evaluations.npz", timesteps=[1], results=[[1.0]])
    assert "metrics.jsonl" in build_report(tmp_path)["problems"][0]


def test_unread_configs_are_no_other_configurations(tmp_path):
    write_run(tmp_path, seed=0)
    (write_run(tmp_path, seed=1) / "config.json").write_text("garbage")
    (problem,) = build_report(tmp_path)["problems"]
    assert "config.json" in problem


def test_runs_too_short_to_decide_say_so(tmp_path):
    folder = write_study(tmp_path, "degradation", "smoke", write_toys(tmp_path))
    build_report(folder)
    for name in ("report.html", "results.md"):
        assert "scale smoke are too short to decide" in (folder / name).read_text()


def test_the_same_runs_give_the_same_bytes(study):
    build_report(study)
    first = [(study / name).read_bytes() for name in FILES]
    build_report(study)
    assert [(study / name).read_bytes() for name in FILES] == first


def test_tables_escape_what_markdown_and_latex_would_read(tmp_path):
    write_run(tmp_path, name="a_b")
    (tmp_path / "Hopper-v5" / "a_b").rename(tmp_path / "Hopper-v5" / "a_b|50%&<i>")
    build_report(tmp_path)
    assert r"a\_b\|50%&amp;&lt;i>" in (tmp_path / "results.md").read_text()
    assert r"a\_b|50\%\&\textless{}i\textgreater{}" in (tmp_path / "results.tex").read_text()
    assert (
        json.loads((tmp_path / "results.json").read_text())["cells"][0]["setting"] == "a_b|50%&<i>"
    )


def test_the_verb_writes_where_it_is_told(runs, tmp_path, capsys):
    page = tmp_path / "elsewhere" / "page.html"
    page.parent.mkdir()
    assert Report(runs, out=page)() == 0
    assert capsys.readouterr().out.endswith(f"report: {page}\n")
    assert {p.name for p in page.parent.iterdir()} == {
        f"page.{e}" for e in ("html", "md", "tex", "json")
    }
    assert not (runs / "report.html").exists()
    assert Report(runs, json=True)() == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["planned"], printed["page"]) == (6, str(runs / "report.html"))


def test_an_unfinished_study_is_told_how_to_go_on(study, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Report(study)() == 0
    said = capsys.readouterr().out
    assert "9 of 10 runs finished" in said
    assert "to run the rest: bridgerl reproduce main --scale cpu --out .\n" in said


@pytest.mark.parametrize(
    ("folder", "out", "says"),
    [
        ("nope", None, "nope is not a folder"),
        ("empty", None, "holds no runs"),
        ("empty", "empty", "is a folder; name a file"),
        ("empty", "nope/page.html", "there is no folder"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused_in_one_line(tmp_path, folder, out, says):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=says) as refusal:
        build_report(tmp_path / folder, None if out is None else tmp_path / out)
    assert "\n" not in str(refusal.value)
    assert not any((tmp_path / "empty").iterdir())


def test_missing_extras_are_named_with_their_remedy(runs, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install .*-e '\.\[report\]'"):
        build_report(runs)


def test_the_verb_alone_loads_nothing_heavy():
    code = "import sys, bridgerl.report.build as _; print({*sys.modules} & {'plotly', 'scipy'})"
    done = finished([sys.executable, "-c", code])
    assert done.stdout == "set()\n"


def test_scale_and_preset_head_every_format(study):
    build_report(study)
    for name in ("report.html", "results.md", "results.tex"):
        text = (study / name).read_text()
        assert "study main, scale cpu (preset lite), 9 of 10 runs finished" in text


def test_a_report_is_made_without_torch(study):
    code = "import sys; from bridgerl.cli.main import main; main(['report', sys.argv[1]]); "
    code += "print({*sys.modules} & {'torch', 'bridgerl.training'})"
    command = [sys.executable, "-c", code, str(study)]
    done = finished(command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"


# The page.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails the test if it complains, asks something or wants the network."""
    context = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900})
    page, trouble = context.new_page(), []
    page.on("console", lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("requestfailed", lambda request: trouble.append(request.url))
    page.on(
        "request",
        lambda r: trouble.append(r.url) if r.url[:5] not in ("file:", "data:", "blob:") else None,
    )
    page.on("dialog", lambda dialog: trouble.append(dialog.message) or dialog.dismiss())
    yield page
    context.close()
    assert trouble == []


def show(page: Page, folder: Path) -> Page:
    build_report(folder)
    page.goto((folder / "report.html").as_uri())
    return page


def wait_until(page: Page, condition: str) -> None:
    """Poll from here: the page's own policy forbids what `wait_for_function` does after one try."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


def drawn(page: Page, task: int = 0) -> int:
    return page.locator(f".plot[data-task='{task}'] .scatterlayer .trace").count()


def test_the_page_draws_every_curve_and_switches_axes_and_settings(page, runs):
    show(page, runs)
    assert page.locator(".plot[data-task]").count() == 2
    both = drawn(page)
    assert both > drawn(page, 1) > 0
    toggle = page.get_by_role("button", name="sac-dbc-lite", exact=True)
    toggle.press("Enter")
    assert toggle.get_attribute("aria-pressed") == "false"
    assert drawn(page) < both
    toggle.click()
    assert drawn(page) == both
    axes = "[...document.querySelectorAll('.plot[data-task]')].map(p => p._fullLayout.yaxis.type)"
    page.get_by_role("button", name="log", exact=True).click()
    assert page.evaluate(axes) == ["log", "log"]
    page.get_by_role("button", name="hours", exact=True).click()
    assert "hours" in page.locator(".plot[data-task] .xtitle").first.text_content()
    assert drawn(page) == both


def test_curves_that_follow_from_formulas_are_drawn_over_logarithms(page, tmp_path):
    show(page, write_endpoints(tmp_path))
    assert page.locator("#legend button").count() == 6
    assert page.locator(".xtitle").text_content() == "steps M"
    axes = "(p => [p.xaxis.type, p.yaxis.type])(document.querySelector('.plot')._fullLayout)"
    assert page.evaluate(axes) == ["log", "log"]
    page.locator(".plot .nsewdrag").hover(position={"x": 300, "y": 100})
    page.locator(".hoverlayer .legendtext").first.wait_for()
    assert "seed" not in page.locator(".hoverlayer").text_content()
    page.get_by_role("button", name="linear", exact=True).click()
    assert page.evaluate(axes) == ["linear", "linear"]


def test_hovering_shows_exact_values(page, runs):
    show(page, runs)
    page.locator(".plot[data-task='1'] .nsewdrag").hover(position={"x": 300, "y": 100})
    page.locator(".plot[data-task='1'] .hoverlayer .legendtext").first.wait_for()
    assert "2 seeds" in page.locator(".plot[data-task='1'] .hoverlayer").text_content()


def test_a_log_axis_leaves_out_negative_means_and_tells_the_others_right(page, runs):
    show(page, runs)
    page.get_by_role("button", name="log", exact=True).click()
    texts = page.evaluate("document.querySelector('.plot[data-task=\"1\"]').data[4].text")
    # Means of seeds 0 and 1 are -45, 55, 155, ...: the first has no logarithm.
    assert texts[:2] == ["55 (50 to 60, 2 seeds)", "155 (150 to 160, 2 seeds)"]
    assert len(texts) == 9


def test_a_log_axis_does_not_blank_curves_that_are_negative_throughout(page, runs):
    write_run(runs, "tqc", top=100.0)
    show(page, runs)
    page.get_by_role("button", name="log", exact=True).click()
    axes = "[...document.querySelectorAll('.plot[data-task]')].map(p => p._fullLayout.yaxis.type)"
    assert page.evaluate(axes) == ["linear", "log"]
    assert page.locator(".plots .note:visible").count() == 1
    page.get_by_role("button", name="sac-tqc-lite", exact=True).click()
    assert page.evaluate(axes) == ["log", "log"]
    assert page.locator(".plots .note:visible").count() == 0


def test_settings_are_compared_with_the_one_that_is_chosen(page, runs):
    show(page, runs)
    rows = page.locator("#comparison tbody tr:visible")
    assert [r.locator("th").text_content() for r in rows.all()] == ["sac-dbc-lite"]
    page.locator("#against").select_option("sac-dbc-lite")
    assert [r.locator("th").text_content() for r in rows.all()] == ["sac-cdq-lite"]


def test_the_theme_follows_the_system_and_a_button(page, runs):
    show(page, runs)
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('.plot')._fullLayout.font.color"
    light = page.evaluate(f"[{ground}, {ink}]")
    page.locator("#theme").click()
    dark = page.evaluate(f"[{ground}, {ink}]")
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page.locator("#theme").click()
    assert page.evaluate(f"[{ground}, {ink}]") == light
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"{ink} === {json.dumps(dark[1])}")


def test_a_phone_shows_the_page_without_scrolling_sideways(page, study):
    page.set_viewport_size({"width": 360, "height": 740})
    show(page, study)
    page.locator(".plot .main-svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_claims_are_filtered_by_verdict_and_by_text(page, study):
    show(page, study)
    rows = page.locator("#claims tbody tr:visible")
    assert rows.count() == 36
    page.locator("[data-choice=verdict]").get_by_role("button", name="2 holds", exact=True).click()
    assert rows.count() == 2
    page.locator("#filter").fill("tqc hopper")
    assert rows.count() == 1
    page.locator("#filter").fill("nothing of the kind")
    assert page.locator("#none").is_visible()


def test_a_command_can_be_copied(page, study):
    show(page, study)
    page.locator("#commands summary").first.click()
    button = page.locator(".copy").first
    button.click()
    wait_until(page, "document.querySelector('.copy').textContent !== 'Copy'")
    assert button.text_content() in ("Copied", "Selected")
    assert page.evaluate("getSelection().toString()").startswith("bridgerl train --env Hopper-v5")


def test_names_that_look_like_markup_stay_text(page, tmp_path):
    jobs: dict[Path, Job] = {}
    for seed, name in enumerate(EVIL):
        folder = write_run(tmp_path / "cpu" / "runs", "cdq", seed)
        jobs[folder] = train_job(name, replace(RunFolder(folder).read_config(), env=name))
    folder = write_study(tmp_path, "main", "cpu", jobs)
    (folder / "league.png").write_bytes(b"no picture")
    show(page, folder)
    legend = [b.text_content().strip() for b in page.locator("#legend button").all()]
    assert legend == list(EVIL)
    commands = page.locator(".commands code").all_text_contents()
    assert [shlex.split(command)[3] for command in commands] == list(EVIL)
    assert page.locator("figcaption").all_text_contents() == list(EVIL)
    assert page.locator("img").count() == 0
    page.locator(".plot[data-task='0'] .nsewdrag").hover(position={"x": 300, "y": 100})
    page.locator(".hoverlayer .legendtext").first.wait_for()
    assert EVIL[0] in page.locator(".plot[data-task='0'] .hoverlayer").text_content()


def test_folders_and_metrics_that_look_like_markup_stay_text(page, tmp_path):
    folder = write_run(tmp_path, name="x")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(lines([{"kind": EVIL[0], "step": 1, EVIL[0]: None}]) + EVIL[1] + "\n")
    (tmp_path / "Hopper-v5" / "x").rename(tmp_path / "Hopper-v5" / EVIL[2])
    show(page, tmp_path)
    assert page.locator("#health tbody tr:not(.group) th").text_content().startswith(EVIL[2])
    assert "metrics.jsonl" in page.locator("#problems li").text_content()
    assert page.locator("img").count() == 0


def test_pictures_beside_the_runs_are_carried_along(page, runs):
    shutil.copy(Path(__file__).parents[2] / "docs" / "pictures" / "toy-light.png", runs / "toy.png")
    show(page, runs)
    assert (
        page.locator("#pictures img").evaluate(
            "image => image.decode().then(() => image.naturalWidth)"
        )
        > 100
    )
