"""Many environments: each as if it were alone, in processes too, with one learner for all."""

import dataclasses
import math
import os
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

from bridgerl import resolve, train
from bridgerl.cli.main import main
from bridgerl.config import RunConfig
from bridgerl.envs.task import Task
from bridgerl.errors import EnvFault, UserError
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare
from bridgerl.streams import derive_seed
from bridgerl.training.lanes import ProcessTask, open_tasks
from bridgerl.training.process import tuned_process
from bridgerl.training.state import RunState
from bridgerl.training.step import Episode, TrainStep
from conftest import TINY
from toy_envs import Point

N = 4
DISCOUNT = 0.9
BAD_SEED = derive_seed(0, "env-2", 0) % 2**32


class Fussy(Point):
    """Raises in the third step of one episode: the first of the environment with index 2."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps_left = 3 if seed == BAD_SEED else math.inf
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> Any:
        self._steps_left -= 1
        if self._steps_left == 0:
            raise RuntimeError("enough")
        return super().step(action)


# Known to this process alone, and to its forks.
gym.register("Fussy-v0", lambda **_: Fussy(), max_episode_steps=50)


def configured(env: str = "toy_envs:Point-v0", **train: Any) -> RunConfig:
    base = resolve(env, "td3", "cdq")
    values = {"warmup": 400, "batch_size": 8, "buffer_size": 1_000, "discount": DISCOUNT}
    return dataclasses.replace(
        base,
        steps=1_000,
        actor=dataclasses.replace(base.actor, hidden=(4,)),
        critic=dataclasses.replace(base.critic, hidden=(4,)),
        train=dataclasses.replace(base.train, **values | {"n_envs": N} | train),
    )


def make(env: str, purpose: str, timeout: float | None) -> Task:
    return Task(env, 0, purpose, timeout=timeout)


def stepped(config: RunConfig, steps: int) -> tuple[RunState, list[tuple[int, Episode]]]:
    """The state after so many steps without a folder, and the episodes that ended, by step."""
    with open_tasks(config, partial(make, config.env)) as tasks, tuned_process(1):
        state = RunState(config, *tasks)
        step = TrainStep(state, config.train, config.warmup)
        for lane in state.lanes:
            lane.start()
        told = ((number, step()) for number in range(1, steps + 1))
        return state, [(number, episode) for number, episode in told if episode is not None]


# What is stored.


def test_each_environment_goes_through_the_episodes_that_it_has_alone() -> None:
    state, ended = stepped(configured(warmup=200), 390)
    rows, begun = state.replay.latest(1_000), []
    for lane in range(N):
        with closing(Task("toy_envs:Point-v0", 0, f"env-{lane}" if lane else "env")) as task:
            obs, episode, total = task.reset(0), 0, 0.0
            begun.append(obs)
            for i in range(lane, 390, N):
                out = task.step(rows.action[i].numpy())
                total += out.reward
                assert np.array_equal(rows.obs[i].numpy(), obs)
                assert float(rows.reward[i]) == np.float32(out.reward)
                # Where an episode ends this is its last observation, not the next one's first.
                assert np.array_equal(rows.next_obs[i].numpy(), out.obs)
                left = 0.0 if out.terminated else np.float32(DISCOUNT)
                assert float(rows.discount[i]) == left
                obs = out.obs
                if out.terminated or out.truncated:
                    ended.remove((i + 1, Episode(total, len(task.actions), False, lane)))
                    episode, total = episode + 1, 0.0
                    obs = task.reset(episode)
    assert ended == []
    assert len({tuple(obs) for obs in begun}) == N


def test_n_step_rows_are_those_of_each_environment_alone() -> None:
    one, three = (stepped(configured(n_step=n), 398)[0] for n in (1, 3))
    plain, summed = one.replay.latest(1_000), three.replay.latest(1_000)
    wanted = {}
    for lane in range(N):
        mine = range(lane, 398, N)
        for at, t in enumerate(mine):
            last = at
            while last < min(at + 2, len(mine) - 1) and not np.isclose(
                plain.discount[mine[last]], 0
            ):
                follows = plain.next_obs[mine[last]].equal(plain.obs[mine[last + 1]])
                if not follows:
                    break
                last += 1
            powers = [DISCOUNT**k for k in range(last - at + 1)]
            total = sum(p * float(plain.reward[mine[at + k]]) for k, p in enumerate(powers))
            end = mine[last]
            left = powers[-1] * float(plain.discount[end])
            key = tuple(plain.obs[t].tolist())
            wanted[key] = (*plain.action[t].tolist(), total, left, *plain.next_obs[end].tolist())
    waiting = sum(len(lane.pending) for lane in three.lanes)
    assert 0 < waiting <= 2 * N
    assert len(summed.obs) == len(wanted) - waiting
    for i, obs in enumerate(summed.obs):
        row = (*summed.action[i], summed.reward[i], summed.discount[i], *summed.next_obs[i])
        assert list(map(float, row)) == pytest.approx(wanted[tuple(obs.tolist())], rel=1e-5)


def test_the_normaliser_counts_every_observation_once() -> None:
    state, ended = stepped(configured(normalize_obs=True, normalize_returns=True), 390)
    rows, moments = state.replay.latest(1_000), state.agent.normalizer.obs
    assert moments is not None
    # The first step of a lane's episode after one that ended shows its first observation.
    firsts = [*range(N), *(number - 1 + N for number, _ in ended if number - 1 + N < 390)]
    seen = np.concatenate([rows.next_obs.numpy(), rows.obs.numpy()[firsts]]).astype(np.float64)
    late = [n - 1 + N for n, _ in ended if 390 <= n - 1 + N < 392]  # Chosen, and not yet stepped.
    assert moments.get_extra_state()[0] == len(seen) + len(late)
    if not late:
        np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-9)
    scale = state.agent.normalizer.returns
    assert scale is not None
    ends, sums, squares = dict(ended), [0.0] * N, []
    for i, reward in enumerate(rows.reward.tolist()):
        sums[i % N] = DISCOUNT * sums[i % N] + reward
        squares.append(sums[i % N] ** 2)
        if i + 1 in ends and i + N < 392:  # The next episode has begun.
            sums[i % N] = 0.0
    found = scale.get_extra_state().tolist()
    assert found == pytest.approx([390, np.mean(squares), *sums], rel=1e-5)


# How much is learnt, and when.


@pytest.mark.parametrize("pace", [0.25, 1.0, 1.5])
def test_updates_per_environment_step_do_not_depend_on_how_many_there_are(pace: float) -> None:
    made = [
        stepped(configured(n_envs=n, warmup=101, updates_per_step=pace), 163)[0].agent.updates
        for n in (1, 4, 7)
    ]
    assert made == [math.floor(62 * pace)] * 3


def test_warmup_ends_at_its_step_in_the_middle_of_a_round() -> None:
    state, _ = stepped(configured(warmup=101), 104)
    uniform, _ = stepped(configured(n_envs=1, warmup=101), 104)
    ours, alone = state.replay.latest(104).action, uniform.replay.latest(104).action
    assert ours[:101].equal(alone[:101])  # As many random actions, from the same draws.
    assert not (ours[101:, None] == ours[None, :101]).any()


def test_logs_evaluations_and_checkpoints_come_at_their_steps_whatever_the_number(
    tmp_path: Path,
) -> None:
    words = [*TINY, "--quiet", "--out", str(tmp_path), "--train.n-envs", "4"]
    changed = {"600": "333", "200": "110", "150": "90"}
    assert main([changed.get(word, word) for word in words]) == 0
    run = RunFolder(next(tmp_path.glob("*/*/seed0")))
    steps = {k: [r["step"] for r in run.records() if r["kind"] == k] for k in ("train", "eval")}
    assert steps == {"train": [*range(50, 333, 50)], "eval": [110, 220, 330, 333]}
    assert [step for step, _ in run.checkpoints()] == [180, 270, 333]
    envs = {r["episode/env"] for r in run.records() if r["kind"] == "episode"}
    assert envs == {0, 1, 2, 3}
    assert "--train.n-envs 4" in run.command()


# Processes.


def test_processes_change_no_bit_and_may_come_and_go(tmp_path: Path) -> None:
    words = [*TINY, "--quiet", "--train.n-envs", "3"]
    a, b = ([*words, "--out", str(tmp_path / name)] for name in "ab")
    assert main(a) == 0
    assert main(["400" if word == "600" else word for word in b] + ["--env-processes"]) == 0
    assert main(b) == 0
    runs = [next((tmp_path / name).glob("*/*/seed0")) for name in "ab"]
    assert compare(*runs) is None
    assert forks() == []


def forks() -> list[psutil.Process]:
    """Processes of environments; a test's worker may have other programs beside it."""
    me = psutil.Process()
    return [child for child in me.children() if child.cmdline() == me.cmdline()]


def process_task(env: str, timeout: float | None = None) -> ProcessTask:
    task = ProcessTask(partial(make, env), 0, "env", timeout)
    task.wait_until_made()
    return task


def test_a_task_in_a_process_is_the_task() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (60, 2)).astype(np.float32)
    env = "toy_envs:Point-v0"
    with closing(Task(env, 0)) as here, closing(process_task(env)) as there:
        assert there.spec == here.spec
        here.reset(7)
        there.reset(7)
        assert np.array_equal(here.obs, there.obs)
        for action in actions[:20]:
            ours, theirs = here.step(action), there.step(action)
            assert np.array_equal(ours.obs, theirs.obs)
            assert ours[1:] == theirs[1:]
        assert there.replay((7,), actions[:20])
        assert (there.obs.tolist(), there.reward) == (here.obs.tolist(), here.reward)


def test_the_environments_step_while_the_learner_does_something_else() -> None:
    with closing(process_task("toy_envs:Slow-v0")) as task:
        task.reset(0)
        assert task.obs.shape == (3,)
        task.begin(np.zeros(2, np.float32))
        time.sleep(1.0)
        before = time.monotonic()
        task.step(np.zeros(2, np.float32))
        assert time.monotonic() - before < 0.2


def test_signals_to_all_of_the_group_leave_environments_to_the_learner() -> None:
    with closing(process_task("toy_envs:Point-v0")) as task:
        task.reset(0)
        assert task.obs.shape == (3,)
        (process,) = forks()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process.pid, number)
        assert task.step(np.zeros(2, np.float32)).obs.shape == (3,)
    assert not process.is_running()


def test_a_hanging_process_is_a_fault_and_ends() -> None:
    with closing(process_task("faulty_envs:Stubborn-v0", 0.3)) as task:
        (process,) = forks()
        fault = "no answer within --env-timeout 0.3 seconds at step 5 of the episode seeded "
        with pytest.raises(EnvFault, match=fault):
            task.replay((0,), np.zeros((10, 2), np.float32))
    assert not process.is_running()


@pytest.mark.parametrize("processes", [[], ["--env-processes"]], ids=["here", "processes"])
def test_a_fault_names_the_environment_its_step_and_its_seed(
    tmp_path: Path, processes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["Fussy-v0" if word == "toy_envs:Point-v0" else word for word in TINY]
    code = main([*words, "--out", str(tmp_path), "--train.n-envs", "4", "--quiet", *processes])
    error = capsys.readouterr().err
    assert code == 3
    what = "Fussy-v0: step raised RuntimeError: enough at step 3 of the episode seeded"
    assert error == f"bridgerl: error: environment 2 (of 0 to 3): {what} {BAD_SEED}\n"
    assert forks() == []


def test_a_process_that_dies_is_a_fault_of_its_environment() -> None:
    config = dataclasses.replace(configured(), env_processes=True)
    with open_tasks(config, partial(make, config.env)) as tasks:
        state = RunState(config, *tasks)
        step = TrainStep(state, config.train, config.warmup)
        for lane in state.lanes:
            lane.start()
        for _ in range(8):
            step()
        forks()[1].kill()
        step()  # Of the first one, while the second should step too.
        fault = r"^environment 1 \(of 0 to 3\): toy_envs:Point-v0: its process died \(signal 9\) at"
        with pytest.raises(EnvFault, match=fault + " step 3 of the episode seeded "):
            step()


def test_an_environment_that_cannot_be_made_is_refused_as_ever(tmp_path: Path) -> None:
    config = dataclasses.replace(configured("Hoper-v5"), out=tmp_path, env_processes=True)
    with pytest.raises(UserError, match=r"unknown environment 'Hoper-v5'; did you mean Hopper-v5"):
        train(config, quiet=True)
    assert list(tmp_path.iterdir()) == []
    assert forks() == []
