"""The inner step alone: the same numbers as a whole run, without a folder."""

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from bridgerl import resolve, train
from bridgerl.config import RunConfig
from bridgerl.errors import NumericFault
from bridgerl.runs import checkpoint
from bridgerl.runs.folder import RunFolder
from bridgerl.training.envs import Task
from bridgerl.training.process import tuned_process
from bridgerl.training.state import RunState
from bridgerl.training.step import Episode, TrainStep, check_streak


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    base = resolve("toy_envs:Point-v0", "td3", "cdq")
    return dataclasses.replace(
        base,
        out=tmp_path,
        steps=200,
        actor=dataclasses.replace(base.actor, hidden=(8,)),
        critic=dataclasses.replace(base.critic, hidden=(8,)),
        train=dataclasses.replace(base.train, warmup=100, batch_size=16, buffer_size=500),
        eval=dataclasses.replace(base.eval, every=200, episodes=1),
        log=dataclasses.replace(base.log, every=50, tensorboard=False),
    )


def take(config: RunConfig, steps: int) -> tuple[RunState, list[Episode]]:
    with closing(Task(config.env, config.seed)) as task, tuned_process(1):
        state = RunState(config, task)
        step = TrainStep(state, config.train)
        task.reset(0)
        return state, [e for e in (step() for _ in range(steps)) if e is not None]


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
        step = TrainStep(state, config.train)
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


def test_three_lost_updates_in_a_row_are_a_fault() -> None:
    check_streak(2.0, 7)
    with pytest.raises(NumericFault, match=r"3 updates in a row .* by step 7"):
        check_streak(3.0, 7)
