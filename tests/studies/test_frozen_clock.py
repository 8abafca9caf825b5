"""A clock that stands still, as in a virtual machine that was stopped, divides nothing by zero."""

import math
import os
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from bridgerl.bench import peers
from bridgerl.bench.clock import PARTS, Setting
from bridgerl.bench.ours import gemm_peak, measure
from bridgerl.bench.table import Contender, run_bench, show
from bridgerl.cli.entrants import read_pair
from bridgerl.cli.main import main
from bridgerl.presets import resolve
from bridgerl.runs.folder import RunFolder
from bridgerl.studies import STUDIES
from bridgerl.studies.jobs import train_job
from bridgerl.studies.run.board import Board
from bridgerl.studies.run.cost import estimate, measure_costs, time_training
from runs.strangers import make_run


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    for clock in ("time", "monotonic", "perf_counter", "process_time"):
        now = getattr(time, clock)()
        monkeypatch.setattr(time, clock, lambda now=now: now)


def test_a_run_trains_and_is_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = (run / "timing.jsonl").read_text().splitlines()
    assert len(lines) == 6  # At its start, at every log line, at its end.
    assert not any("steps_per_second" in line for line in lines)
    assert RunFolder(run).progress() == 80
    assert main(["verify", str(run)]) == 0
    assert main(["report", str(tmp_path)]) == 0


def test_costs_are_estimated(tmp_path: Path) -> None:
    for study, pick in (("label-bias", 0), ("degradation", 0)):
        jobs = STUDIES[study].jobs("smoke", tmp_path)[pick : pick + 1]
        costs = measure_costs(jobs, 0.1, lambda: None)
        facts = estimate(jobs, jobs, costs, 1)
        assert facts["core_hours"] > 0
        assert facts["settings"][0]["steps_per_second"] > 0


def test_a_measurement_of_steps_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridgerl.studies.run.cost.ENOUGH", 8)
    config = resolve("toy_envs:Point-v0", "sac", "cdq")
    config = config.changed(train={"batch_size": 8, "buffer_size": 64})
    assert time_training(config, 1.0).learn > 0


def test_the_board_of_a_study_is_drawn(tmp_path: Path) -> None:
    job = train_job("sac+cdq", replace(resolve("Hopper-v5", "sac", "cdq"), out=tmp_path))
    board = Board([job], quiet=True)
    board.console.width = 100
    board.started(job)
    board._table()


def test_a_bench_measures_its_parts_and_shows_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Setting, "pin", lambda self: None)
    label, config = read_pair("td3+dbc --hidden 16 16", "toy_envs:Point-v0")
    ours = Contender(label, partial(measure, config))
    (row,) = run_bench([ours], [Setting(config.env, 32, 1, 4.0)], 1, lambda: None)
    assert all(math.isfinite(row[f"{part}_ms"]) for part in PARTS)
    assert all(math.isfinite(row[key]) for key in ("steps_per_second", "peak_share"))
    assert math.isfinite(gemm_peak(8))
    show([row])
    assert label in capsys.readouterr().out


def test_a_bench_measures_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    what = {"library": "stable-baselines3", "algorithm": "SAC", "hidden": [8]}
    setting = Setting("Pendulum-v1", 8, 1, 4.0)
    shared = {**asdict(setting), "cores": [0], "fill": 10, "round": 10}
    assert math.isfinite(peers.measure(what | shared)["steps_per_second"])
