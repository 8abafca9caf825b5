"""Callbacks of `train`: what they are told, how they stop a run, what becomes of their errors."""

import dataclasses
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bridgerl import Callback, Stopped, resolve, train
from bridgerl.cli.train import Train
from bridgerl.config import RunConfig
from bridgerl.errors import EnvFault, UserError
from bridgerl.presets import command_of
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare
from bridgerl.training.callbacks import Callbacks, Progress


def configured(out: Path, env: str = "toy_envs:Point-v0") -> RunConfig:
    base = resolve(env, "sac", "cdq")
    return base.changed(
        out=out,
        steps=130,
        actor={"hidden": (8,)},
        critic={"hidden": (8,)},
        train={"warmup": 100, "batch_size": 16, "buffer_size": 500},
        eval={"every": 60, "episodes": 1},
        log={"every": 40, "tensorboard": False},
        save={"every": 50},
    )


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(configured(tmp_path_factory.mktemp("unwatched")), quiet=True)


class Listener(Callback):
    """Takes note of everything, and does something at one event of one step."""

    def __init__(self, event: str = "", step: int = 0, act: Any = None) -> None:
        self.told: list[tuple[str, int, Any]] = []
        self.episodes: list[Any] = []
        self._at, self._act = (event, step), act

    def _note(self, event: str, run: Progress, value: Any = None) -> None:
        self.told.append((event, run.step, value))
        if (event, run.step) == self._at:
            self._act(run)

    def on_step(self, run: Progress) -> None:
        self.episodes += [] if run.episode is None else [(run.step, run.episode.total)]
        self._note("step", run)

    def on_log(self, run: Progress, values: dict[str, Any]) -> None:
        self._note("log", run, values)

    def on_evaluation(self, run: Progress, values: dict[str, Any]) -> None:
        self._note("evaluation", run, values)

    def on_stop(self, run: Progress, reason: str) -> None:
        self._note("stop", run, reason)

    def steps_of(self, event: str) -> list[int]:
        return [step for name, step, _ in self.told if name == event]

    @property
    def reasons(self) -> list[str]:
        return [value for name, _, value in self.told if name == "stop"]


def raising(error: Exception) -> Any:
    def act(run: Progress) -> None:
        raise error

    return act


def test_they_are_told_of_steps_logs_evaluations_and_the_end_and_change_no_bit(
    tmp_path: Path, unwatched: Path
) -> None:
    listener = Listener()
    run = train(configured(tmp_path), quiet=True, callbacks=[Callback(), listener])
    assert compare(run, unwatched) is None
    assert listener.steps_of("step") == [*range(1, 131)]
    assert listener.steps_of("log") == [40, 80, 120]
    assert listener.steps_of("evaluation") == [60, 120, 130]
    assert listener.told[-1] == ("stop", 130, "finished")
    records = RunFolder(run).records()
    logged = [r for r in records if r["kind"] in ("train", "eval")]
    values = [value for name, _, value in listener.told if name in ("log", "evaluation")]
    named = [{k: v for k, v in r.items() if k not in ("kind", "step")} for r in logged]
    assert values == named
    ended = [r for r in records if r["kind"] == "episode"]
    assert listener.episodes == [(r["step"], r["episode/return"]) for r in ended]


def test_they_are_told_of_every_step_of_every_environment(tmp_path: Path) -> None:
    config, listener = configured(tmp_path), Listener()
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, n_envs=3))
    train(config, quiet=True, callbacks=[listener])
    assert listener.steps_of("step") == [*range(1, 131)]


@pytest.mark.parametrize("event", ["step", "log", "evaluation"])
def test_one_that_stops_the_run_leaves_a_checkpoint_that_goes_on(
    tmp_path: Path, unwatched: Path, event: str
) -> None:
    step = {"step": 73, "log": 80, "evaluation": 60}[event]
    listener = Listener(event, step, Progress.stop)
    run = RunFolder(train(configured(tmp_path), quiet=True, callbacks=[listener]))
    assert listener.told[-1] == ("stop", step, "callback")
    assert not run.done_file.exists()
    assert run.checkpoints()[-1][0] == step
    again = Listener()
    train(configured(tmp_path), quiet=True, callbacks=[again])
    assert again.steps_of("step") == [*range(step + 1, 131)]
    assert compare(run.path, unwatched) is None


def test_a_stop_at_the_very_end_comes_too_late(tmp_path: Path) -> None:
    listener = Listener("evaluation", 130, Progress.stop)
    run = train(configured(tmp_path), quiet=True, callbacks=[listener])
    assert (run / "DONE").exists()
    assert listener.reasons == ["finished"]


@pytest.mark.parametrize("event", ["step", "log", "evaluation"])
@pytest.mark.parametrize("error", [ValueError("mine"), ConnectionError("no network")], ids=repr)
def test_what_one_raises_comes_out_and_no_step_is_lost(
    tmp_path: Path, unwatched: Path, event: str, error: Exception
) -> None:
    step = {"step": 73, "log": 80, "evaluation": 120}[event]
    listener = Listener(event, step, raising(error))
    with pytest.raises(type(error)) as raised:
        train(configured(tmp_path), quiet=True, callbacks=[listener])
    assert raised.value is error
    assert listener.reasons == ["error"]
    run = RunFolder(configured(tmp_path).folder)
    assert run.checkpoints()[-1][0] == step
    assert f"{type(error).__name__}: {error}" in run.failures_file.read_text()
    train(configured(tmp_path), quiet=True)
    assert compare(run.path, unwatched) is None


def test_an_error_at_the_end_of_a_finished_run_comes_out_too(tmp_path: Path) -> None:
    error = OSError("no network")
    with pytest.raises(OSError, match="no network") as raised:
        train(configured(tmp_path), quiet=True, callbacks=[Listener("stop", 130, raising(error))])
    assert raised.value is error
    assert (configured(tmp_path).folder / "DONE").exists()


def test_an_error_at_the_end_does_not_hide_why_the_run_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, "faulty_envs:NanObservation-v0")
    listener = Listener("stop", 4, raising(ValueError("and mine")))
    with pytest.raises(EnvFault, match="observation"):
        train(config, quiet=True, callbacks=[listener])
    assert listener.reasons == ["error"]
    assert capsys.readouterr().err == "bridgerl: warning: on_stop raised ValueError: and mine\n"


def test_a_signal_is_told_as_such(tmp_path: Path) -> None:
    listener = Listener("step", 20, lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Stopped):
        train(configured(tmp_path), quiet=True, callbacks=[listener])
    assert listener.told[-1] == ("stop", 20, "signal")


def test_what_is_no_callback_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    odd: Any = print
    with pytest.raises(UserError, match=r"must be instances of subclasses of bridgerl\.Callback"):
        train(configured(tmp_path), quiet=True, callbacks=[odd])
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_asked_at_a_step_that_nobody_wants_to_know_of(tmp_path: Path) -> None:
    class Late(Callback):
        def on_evaluation(self, run: Progress, values: dict[str, Any]) -> None: ...

    run: Any = object()
    assert not Callbacks([], run).each_step
    assert not Callbacks([Callback(), Late()], run).each_step
    assert Callbacks([Late(), Listener()], run).each_step


# Beside callbacks: TensorBoard.


def test_missing_tensorboard_is_said_in_one_line_to_who_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = configured(tmp_path)
    train(config.changed(log={"tensorboard": None}), quiet=True)
    assert capsys.readouterr().err == ""
    run = train(config.changed(name="asked", log={"tensorboard": True}), quiet=True)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("bridgerl: warning: no TensorBoard events: ")
    assert "pip install -c constraints.txt -e '.[tb]' in the folder of bridgerl's" in error
    assert "or pass --log.no-tensorboard" in error
    assert not RunFolder(run).tensorboard.exists()


SWITCHES = {
    "": None,
    "--log.tensorboard": True,
    "--log.tensorboard --quiet": True,
    "--log.tensorboard True": True,
    "--log.no-tensorboard": False,
    "--log.no_tensorboard": False,
    "--log.tensorboard None": None,
}


@pytest.mark.parametrize("typed", SWITCHES)
def test_tensorboard_is_asked_for_or_turned_off_or_left_open(typed: str) -> None:
    config = Train.read(["--env", "InvertedPendulum-v5", *typed.split()]).config
    assert config.log.tensorboard is SWITCHES[typed]
    again = shlex.split(command_of(config))[2:]
    assert Train.read(again).config == config
