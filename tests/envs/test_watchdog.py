"""Environments that hang: ended in time, with the step and the seed, by a study too."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from bridgerl.cli.main import main
from bridgerl.config import RunConfig
from bridgerl.envs.task import Task
from bridgerl.errors import EnvFault
from bridgerl.presets import resolve
from bridgerl.runs.folder import RunFolder
from bridgerl.studies.jobs import train_job
from bridgerl.studies.run import pool
from bridgerl.studies.run.pool import Pool, Watcher
from bridgerl.training.process import StopSignal
from conftest import TINY, environment, finished, started

STILL = np.zeros((10, 2), np.float32)
FAULT = "no answer within --env-timeout 0.2 seconds at step {} of the episode seeded "


@pytest.mark.parametrize(("name", "step"), [("Hangs", 5), ("HangsInReset", 0), ("Late", 5)])
def test_a_call_that_does_not_return_is_a_fault_with_step_and_seed(name: str, step: int) -> None:
    task = Task(f"faulty_envs:{name}-v0", 0, timeout=0.2)
    began = time.monotonic()
    with pytest.raises(EnvFault, match=FAULT.format(step)):
        task.replay((0,), STILL)
    assert 0.2 < time.monotonic() - began < 10


def test_check_env_ends_a_call_that_does_not_return(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "faulty_envs:HangsInReset-v0", "--env-timeout", "0.2"]) == 3
    assert FAULT.format(0) in capsys.readouterr().err


def test_a_call_that_returns_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    task = Task("faulty_envs:Healthy-v0", 0, timeout=5.0)
    task.replay((0,), STILL)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
    task.close()


def test_without_a_timeout_an_environment_is_not_wrapped() -> None:
    env = Task("faulty_envs:Healthy-v0", 0).env
    assert type(env).__module__.startswith("gymnasium")


def test_what_lets_no_exception_out_is_ended_with_the_process(tmp_path: Path) -> None:
    code = (
        "import sys; from bridgerl.envs import watchdog; watchdog.GRACE = 0.2; "
        "from bridgerl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    flags = "--env faulty_envs:Stubborn-v0 --critic cdq --actor.hidden 8 --critic.hidden 8".split()
    flags += ["--env-timeout", "0.2", "--out", str(tmp_path), "--quiet"]
    ended = finished([sys.executable, "-c", code, "train", *flags], env=environment())
    assert ended.returncode == 3
    assert FAULT.format(5) in ended.stderr
    assert ended.stderr.startswith("bridgerl: error: faulty_envs:Stubborn-v0: ")
    assert ended.stderr.count("\n") == 1


def test_a_run_may_get_a_timeout_later_and_its_bits_stay_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = ([*TINY, "--quiet", "--out", str(tmp_path / name)] for name in "ab")
    assert main(a) == 0
    assert main(["400" if word == "600" else word for word in b]) == 0
    assert main([*b, "--env-timeout", "60"]) == 0
    runs = [str(next((tmp_path / name).glob("*/*/seed0"))) for name in "ab"]
    assert main(["compare", *runs]) == 0
    assert capsys.readouterr().err == ""
    assert RunFolder(Path(runs[1])).read_config().env_timeout == 60


# Studies


def _hanging(out: Path, name: str) -> RunConfig:
    config = resolve(f"faulty_envs:{name}-v0", "sac", "cdq", "lite")
    small = {"hidden": (8,)}
    how = {"train": {"buffer_size": 1000}, "log": {"tensorboard": False}}
    return config.changed(out=out, actor=small, critic=small, **how)


def test_a_study_that_is_stopped_ends_a_run_whose_environment_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GRACE", 0.5)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    job = train_job("sac+cdq", _hanging(tmp_path, "Hangs"))
    stop = StopSignal()

    def stop_it() -> None:
        while not RunFolder(job.folder).timing_file.exists():
            time.sleep(0.05)
        time.sleep(0.5)  # Five steps later it hangs.
        stop.number = signal.SIGTERM

    threading.Thread(target=stop_it, daemon=True).start()
    (end,) = Pool(1, tmp_path, Watcher()).run([job], stop).values()
    assert end == ("stopped", "killed, as it did not stop within 0.5 seconds")
    assert psutil.Process().children() == [] or all(
        "resource_tracker" in " ".join(child.cmdline()) for child in psutil.Process().children()
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Hangs", "no answer within --env-timeout 0.2"), ("Stubborn", "its environment hung; the lo")],
)
def test_a_study_does_not_take_up_again_what_its_watchdog_ended(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    job = train_job("sac+cdq", replace(_hanging(tmp_path, name), env_timeout=0.2))
    (end,) = Pool(1, tmp_path, Watcher()).run([job], StopSignal()).values()
    assert end.status == "failed"
    assert reason in end.reason
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert logs.count("no answer within --env-timeout 0.2 seconds at step 5") == 1


ORPHAN = """
import multiprocessing, os, signal, threading, time
from bridgerl.studies.run.work import _stop_with_parent

def hang():
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=_stop_with_parent, args=(0.2,), daemon=True).start()
    print(os.getpid(), flush=True)
    while True:
        time.sleep(0.01)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=hang)
    child.start()
    child.join()
"""


def test_a_hanging_run_does_not_outlive_its_study(tmp_path: Path) -> None:
    (tmp_path / "orphan.py").write_text(ORPHAN)
    command = [sys.executable, str(tmp_path / "orphan.py")]
    with started(command, stdout=-1, text=True, env=environment()) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs([child], timeout=30)
        assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
