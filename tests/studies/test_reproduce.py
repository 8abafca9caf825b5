"""Studies as they run: skipped, stopped, killed, failed, on this machine and over Ray."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bridgerl.cli.main import main
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.lock import RunLock
from bridgerl.studies.jobs import Job
from bridgerl.studies.run.cost import StepCost, makespan
from bridgerl.studies.run.pool import Pool, Watcher
from bridgerl.studies.run.work import JobEnd, perform, run_job
from bridgerl.training.process import StopSignal
from conftest import finished, started
from studies.two_runs import (
    DEADLINE,
    TWO,
    arguments,
    assert_equal_runs,
    begun,
    children,
    jobs,
    words_of,
)

RUNNING = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    with RUNNING:
        yield


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bridgerl", *arguments(out, *more)]
    return RUNNING.enter_context(started(command, stderr=subprocess.PIPE))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two runs, trained one after the other in this process."""
    out = tmp_path_factory.mktemp("undisturbed")
    for job in jobs(out):
        run_job(job)
    return out


def wait_until(condition, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, "the study ended early"
        assert time.monotonic() < limit
        time.sleep(0.02)


def kill_three_times(
    study: subprocess.Popen[bytes], out: Path, workers: Callable[[], list[psutil.Process]]
) -> None:
    """Kill a worker once in the middle of a run and then twice as soon as one is there.

    A pause before the later kills would be a race: what is left of a run may be over before it.
    """
    wait_until(lambda: begun(out), study)
    killed = set[psutil.Process]()
    while len(killed) < 3:
        wait_until(lambda: bool(workers()), study)
        for worker in workers()[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
                killed.add(worker)
                worker.wait()


def test_the_second_time_nothing_is_left_to_do(
    tmp_path: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, "--json", "--workers", "2")) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["runs"], first["ran"], first["finished"]) == (2, 2, 2)
    assert_equal_runs(tmp_path, undisturbed)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("runs/**/*")}

    assert main(arguments(tmp_path, "--json")) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["ran"], second["finished"]) == (0, 2)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("runs/**/*")} == before


def test_killed_in_the_middle_it_ends_as_if_it_had_not_been(
    tmp_path: Path, undisturbed: Path
) -> None:
    study = start(tmp_path, "--workers", "2")
    wait_until(lambda: begun(tmp_path), study)
    runs = children(study)
    study.kill()
    study.communicate()
    # Runs of a dead study end by themselves, so that the next one finds their folders free.
    _, alive = psutil.wait_procs(runs, timeout=60)
    assert not alive
    assert main(arguments(tmp_path, "--workers", "2")) == 0
    assert_equal_runs(tmp_path, undisturbed)


def test_ctrl_c_ends_every_run_after_a_checkpoint(tmp_path: Path, undisturbed: Path) -> None:
    study = start(tmp_path, "--workers", "2")
    wait_until(lambda: begun(tmp_path), study)
    study.send_signal(signal.SIGINT)
    _, err = study.communicate(timeout=DEADLINE)
    assert study.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in err
    assert b"after a checkpoint" in err
    assert main(arguments(tmp_path)) == 0
    assert_equal_runs(tmp_path, undisturbed)


def test_ctrl_c_in_the_terminal_before_a_run_can_listen_is_no_failure(tmp_path: Path) -> None:
    study = start(tmp_path, "--workers", "2")
    wait_until(lambda: bool(children(study)), study)
    os.killpg(study.pid, signal.SIGINT)  # As a terminal does.
    _, err = study.communicate(timeout=DEADLINE)
    assert study.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in err
    assert b"failed" not in err
    assert b"stopped" in err


def test_a_study_waits_for_a_run_that_another_one_has_under_way(
    tmp_path: Path, undisturbed: Path
) -> None:
    study = start(tmp_path, "--workers", "2")
    wait_until(lambda: begun(tmp_path), study)
    assert main(arguments(tmp_path, "--workers", "2")) == 0
    assert study.wait(timeout=DEADLINE) == 0
    study.communicate()
    assert_equal_runs(tmp_path, undisturbed)


class Hearer(Watcher):
    """Keeps what it is told, and lets a folder go once a run waits for it."""

    def __init__(self, lock: RunLock) -> None:
        self.heard, self._lock = list[str](), lock

    def started(self, job: Job) -> None:
        self.heard.append("started")

    def waits(self, job: Job, reason: str) -> None:
        self.heard.append(f"waits: {reason}")
        self._lock.release()

    def ended(self, job: Job, end: JobEnd) -> None:
        self.heard.append(end.status)


def test_a_run_is_said_to_start_when_nobody_else_has_it_any_more(tmp_path: Path) -> None:
    job = jobs(tmp_path)[0]
    job.folder.mkdir(parents=True)
    hearer = Hearer(RunFolder(job.folder).lock())
    Pool(1, tmp_path, hearer).run([job], StopSignal())
    waits = f"waits: {job.folder} is being written by process {os.getpid()}"
    assert hearer.heard == [waits, "started", "done"]


def test_a_run_whose_process_is_killed_is_taken_up_again(tmp_path: Path, undisturbed: Path) -> None:
    study = start(tmp_path, "--workers", "1")
    kill_three_times(study, tmp_path, lambda: children(study))
    _, err = study.communicate(timeout=DEADLINE)
    assert study.returncode == 0, err.decode()
    assert err.count(b"signal 9") == 3
    assert_equal_runs(tmp_path, undisturbed)


def test_a_failed_run_is_reported_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cdq, dbc = jobs(tmp_path)
    cdq.folder.mkdir(parents=True)
    (cdq.folder / "config.json").write_text("{}")
    assert main(arguments(tmp_path, "--json", "--workers", "2")) == 1
    summary = json.loads(capsys.readouterr().out)
    assert list(summary["failed"]) == [cdq.name]
    assert "config.json" in summary["failed"][cdq.name]
    assert dbc.done()
    assert not cdq.done()


def test_a_fault_in_a_run_is_a_reason_and_not_a_traceback(tmp_path: Path) -> None:
    job = jobs(tmp_path)[0]
    data = job.to_json()
    data["work"]["env"] = "NoSuch-v0"
    status, reason = perform(json.dumps(data))
    assert status == "failed"
    assert "NoSuch" in reason


def test_a_dry_run_lists_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "new", "--dry-run")) == 0
    out = capsys.readouterr().out
    assert "not begun    Hopper-v5/sac+dbc/seed0" in out
    assert "bridgerl train --env Hopper-v5" in out
    assert "2 runs, 0 finished" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["reproduce", "mian"], "did you mean main?"),
        (["reproduce", "main", "--only", "nothing"], "fits no run"),
        (["reproduce", "main", "--only", "sac+cdq", "zzz"], "--only zzz fits no run"),
        (["reproduce", "main", "--only"], "--only needs at least one"),
        (["reproduce", "main", "--seeds"], "--seeds needs at least one"),
        (["reproduce", "main", "--gpus", "1"], "--gpus 1 needs CUDA"),
        (["reproduce", "main", "--scale", "huge"], "--scale"),
        (["reproduce", "main", "--workers", "0"], "--workers"),
        (["reproduce", "main", "--seeds", "1", "1"], "--seeds"),
        (["reproduce", "main", "--seeds", "-1"], "--seeds"),
        (["reproduce", "main", "--ray", "a", "b"], "--ray"),
        (["reproduce", "main", "--gpus", "-1"], "--gpus"),
        (["plan", "main", "--workers", "0"], "--workers"),
        (["plan", "main", "--seconds", "0"], "--seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path / "new")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_cluster_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bridgerl", *arguments(tmp_path, "--ray", "127.0.0.1:1")]
    done = finished(command, timeout=DEADLINE)
    assert done.returncode == 3
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in done.stderr


@pytest.fixture
def cluster() -> Iterator[str]:
    """A Ray head and two workers with a CPU each: processes of their own, on this machine."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield str(made.address)
    finally:
        made.shutdown()


def test_over_ray_with_workers_killed_three_times_the_bytes_are_the_same(
    tmp_path: Path, undisturbed: Path, cluster: str
) -> None:
    study = start(tmp_path, "--ray", cluster)
    kill_three_times(study, tmp_path, ray_workers)
    _, err = study.communicate(timeout=DEADLINE)
    assert study.returncode == 0, err.decode()
    assert_equal_runs(tmp_path, undisturbed)


def ray_workers() -> list[psutil.Process]:
    """Ray's processes that train one of our runs."""
    found = [p for p in psutil.process_iter() if "ray::Hopper-v5/" in " ".join(words_of(p))]
    return [p for p in found if p.pid != os.getpid()]


def test_a_plan_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "main", "--out", str(tmp_path), "--only", *TWO, "--seconds", "2", "--json"]
    assert main([*words, "--workers", "3"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["runs"], facts["finished"], facts["steps"]) == (4, 0, 1600)
    assert list(facts["hours_by_workers"]) == ["1", "3", "8"]
    total = sum(row["runs"] * row["hours_per_run"] for row in facts["settings"])
    assert facts["core_hours"] == pytest.approx(total)
    assert facts["hours_by_workers"]["1"] == pytest.approx(total)
    assert facts["hours_by_workers"]["8"] == max(r["hours_per_run"] for r in facts["settings"])
    assert list(tmp_path.iterdir()) == []


def test_the_price_of_the_toy_knows_that_backups_of_a_flow_are_dear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "degradation", "--scale", "cpu", "--seeds", "0", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    hours = {row["setting"]: row["hours_per_run"] for row in facts["settings"]}
    assert hours["flow"] > 1.5 * hours["dbc"]
    assert facts["core_hours"] == pytest.approx(sum(hours.values()))


def test_what_follows_from_formulas_costs_next_to_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "endpoint-bias", "--out", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["runs"], facts["finished"]) == (1, 0)
    assert facts["core_hours"] < 1 / 3600


def test_short_jobs_run_over_the_same_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--scale", "smoke", "--out", str(tmp_path), "--no-report", "--json", "--workers", "2"]
    only = ["--only", "two-point/M*seed0", "two-point/lite/seed0"]
    for study, more, n in (("dbc-ablation", only, 4), ("endpoint-bias", [], 1)):
        for ran in (n, 0):
            assert main(["reproduce", study, *words, *more]) == 0
            summary = json.loads(capsys.readouterr().out)
            assert (summary["runs"], summary["ran"], summary["finished"]) == (n, ran, n)


def test_a_run_costs_its_warmup_its_updates_and_its_evaluations(tmp_path: Path) -> None:
    job = jobs(tmp_path)[0]
    cost = StepCost(warmup=1.0, learn=10.0, evaluate=0.5)
    # 300 random steps, 100 with an update, 4 evaluations of one episode of 1,000 steps.
    assert cost.of(job) == pytest.approx(5 + 300 + 1000 + 2000)


def test_workers_take_the_next_run_when_they_are_free() -> None:
    assert makespan([3, 3, 2, 2, 2], 2) == 7
    assert makespan([1, 1, 5], 2) == 6
    assert makespan([5, 1, 1], 8) == 5
    assert makespan([], 3) == 0
