"""The inner step alone: the same numbers as a whole run, without a folder."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from bridgerl import resolve, train
from bridgerl.agent import Agent
from bridgerl.config import RunConfig
from bridgerl.envs.task import Task
from bridgerl.errors import NumericFault
from bridgerl.runs import checkpoint
from bridgerl.runs.folder import RunFolder
from bridgerl.training.process import tuned_process
from bridgerl.training.state import RunState
from bridgerl.training.step import Episode, TrainStep, check_streak
from bridgerl.types import Batch


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    base = resolve("toy_envs:Point-v0", "td3", "cdq")
    return base.changed(
        out=tmp_path,
        steps=200,
        actor={"hidden": (8,)},
        critic={"hidden": (8,)},
        train={"warmup": 100, "batch_size": 16, "buffer_size": 500},
        eval={"every": 200, "episodes": 1},
        log={"every": 50, "tensorboard": False},
    )


def take(
    config: RunConfig, steps: int, *, diagnostics: bool = False
) -> tuple[RunState, list[Episode]]:
    with closing(Task(config.env, config.seed)) as task, tuned_process(1):
        state = RunState(config, task)
        step = TrainStep(state, config.train, config.warmup)
        task.reset(0)
        ends = (step(diagnostics=diagnostics) for _ in range(steps))
        return state, [episode for episode in ends if episode is not None]


def test_numbers_of_any_type_that_an_agent_logs_can_be_saved(config: RunConfig) -> None:
    state, _ = take(config, 101)
    state.metrics["critic/of_a_plugin"] = torch.tensor(3, dtype=torch.float64)
    state.metrics["critic/count"] = torch.tensor(7)
    saved = state.snapshot({}).tensors
    wanted = {"metric.critic/of_a_plugin": 3.0, "metric.critic/count": 7.0}
    for name, value in wanted.items():
        assert torch.equal(saved[name], torch.tensor(value))
    state.restore(state.snapshot({}), {})


def test_steps_without_a_folder_learn_the_very_weights_of_a_run(config: RunConfig) -> None:
    state, episodes = take(config, config.steps)
    assert not config.folder.exists()
    run = RunFolder(train(config, quiet=True))
    snap, _ = checkpoint.load(run, run.last_weights())
    ours = state.snapshot({}).tensors
    assert {k for k in ours if k[:6] != "metric"} == {k for k in snap.tensors if k[:6] != "metric"}
    assert all(torch.equal(ours[k], v) for k, v in snap.tensors.items() if k[:6] != "metric")
    logged = [r for r in run.records() if r["kind"] == "episode"]
    assert [(e.total, e.length) for e in episodes] == [
        (r["episode/return"], r["episode/length"]) for r in logged
    ]


def test_its_parts_can_be_timed_by_wrapping_their_methods(config: RunConfig) -> None:
    calls: list[str] = []

    def watch(owner: Any, name: str) -> None:
        call = getattr(owner, name)
        setattr(owner, name, lambda *a, **k: calls.append(name) or call(*a, **k))

    with closing(Task(config.env, config.seed)) as task:
        state = RunState(config, task)
        step = TrainStep(state, config.train, config.warmup)
        watch(task, "step")
        watch(state.agent, "act")
        watch(state.agent, "update")
        watch(state.replay, "add")
        watch(state.replay, "sample")
        task.reset(0)
        for _ in range(100):
            step()
        assert set(calls) == {"step", "add"}
        calls.clear()
        step()
    assert calls == ["act", "step", "add", "sample", "update"]


PACES = [
    (1.0, [1, 2, 3, 4, 5, 6]),
    (2.0, [2, 4, 6, 8, 10, 12]),
    (1.5, [1, 3, 4, 6, 7, 9]),
    (0.25, [0, 0, 0, 1, 1, 1, 1, 2]),
    # As floats these are a little less than they read.
    (0.3, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]),
    (0.7, [0, 1, 2, 2, 3, 4, 4, 5, 6, 7]),
]


@pytest.mark.parametrize(("pace", "wanted"), PACES)
def test_updates_after_warmup_keep_the_wanted_pace(
    config: RunConfig, pace: float, wanted: list[int]
) -> None:
    config = config.changed(train={"updates_per_step": pace})
    with closing(Task(config.env, config.seed)) as task:
        state = RunState(config, task)
        step = TrainStep(state, config.train, config.warmup)
        task.reset(0)
        for _ in range(100):
            step()
        made = [(step(), state.agent.updates)[1] for _ in wanted]
    assert made == wanted


SEVEN_OF_TEN = [0, 1, 1, 0, 1, 1, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("pace", "learnt", "wanted"),
    [
        (0.7, 10**6, SEVEN_OF_TEN),
        (0.7, 10**11, SEVEN_OF_TEN),
        (0.29, 98, [0, 1]),  # As floats, 100 * 0.29 is less than 29.
    ],
)
def test_the_pace_does_not_drift_in_long_runs(
    config: RunConfig, pace: float, learnt: int, wanted: list[int]
) -> None:
    with closing(Task(config.env, config.seed)) as task:
        state = RunState(config, task)
        step = TrainStep(state, config.changed(train={"updates_per_step": pace}).train, 100)
        due = []
        for n in range(learnt + 1, learnt + 1 + len(wanted)):
            state.counters.step = 100 + n
            due.append(step.updates_due())
    assert due == wanted


def test_every_update_of_a_step_draws_its_own_batch(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Batch] = []
    monkeypatch.setattr(Agent, "update", lambda _, batch: seen.append(batch) or {})
    take(config.changed(train={"updates_per_step": 3.0}), 101)
    assert len(seen) == 3
    assert len({tuple(batch.obs[:, 0].tolist()) for batch in seen}) == 3


def test_diagnostics_come_without_an_update_too_and_disturb_none(config: RunConfig) -> None:
    config = config.changed(train={"updates_per_step": 0.25})
    plain, _ = take(config, 110)
    shown, _ = take(config, 110, diagnostics=True)
    assert plain.diagnostics == {}
    first, _ = take(config, 101, diagnostics=True)
    assert first.agent.updates == 0
    assert "critic/loss" in first.diagnostics
    ours, theirs = shown.snapshot({}).tensors, plain.snapshot({}).tensors
    kept = {k for k in theirs if k[:6] != "metric"}
    assert kept == {k for k in ours if k[:6] != "metric"}
    assert all(torch.equal(ours[k], theirs[k]) for k in kept)
    assert shown.agent.updates == 2


def test_three_lost_updates_in_a_row_are_a_fault() -> None:
    check_streak(2.0, 7)
    with pytest.raises(NumericFault, match=r"3 updates in a row .* by step 7"):
        check_streak(3.0, 7)
