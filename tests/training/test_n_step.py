"""N-step rows against slow sums: both kinds of ends, a reset of MuJoCo's own, a kill between."""

import dataclasses
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bridgerl import resolve
from bridgerl.config import RunConfig
from bridgerl.envs.task import Outcome, Task
from bridgerl.errors import StorageFault
from bridgerl.training.n_step import PendingRows
from bridgerl.training.replay import Replay
from bridgerl.training.state import RunState
from bridgerl.training.step import TrainStep
from bridgerl.types import EnvSpec

SPEC = EnvSpec("toy", 3, 2)
DISCOUNT = 0.9
ENDS: dict[str, dict[str, bool]] = {
    "terminated": {"terminated": True},
    "truncated": {"truncated": True},
    "both": {"terminated": True, "truncated": True},
    "diverged": {"truncated": True, "diverged": True},
    "diverged at its end": {"terminated": True, "truncated": True, "diverged": True},
}
GOING_ON = {"terminated": False, "truncated": False, "diverged": False}


class Step(NamedTuple):
    obs: np.ndarray
    action: np.ndarray
    out: Outcome


def episode(length: int, end: dict[str, bool], seed: int) -> list[Step]:
    draws = np.random.default_rng(seed)
    obs = draws.normal(size=(length + 1, 3)).astype(np.float32)
    action = draws.normal(size=(length, 2)).astype(np.float32)
    ends = [GOING_ON] * (length - 1) + [GOING_ON | end]
    outs = [Outcome(obs[t + 1], draws.normal(), **ends[t]) for t in range(length)]
    return [Step(*step) for step in zip(obs[:-1], action, outs, strict=True)]


def slow_rows(steps: list[Step], n_step: int) -> np.ndarray:
    """Every transition's row, each sum written out, from an episode that has ended."""
    terminated = steps[-1].out.terminated and not steps[-1].out.diverged
    if steps[-1].out.diverged:
        steps = steps[:-1]
    rows = []
    for t, step in enumerate(steps):
        last = min(t + n_step, len(steps))
        total = sum(DISCOUNT**k * s.out.reward for k, s in enumerate(steps[t:last]))
        discount = 0.0 if terminated and last == len(steps) else DISCOUNT ** (last - t)
        row = [*step.obs, *step.action, total, discount, *steps[last - 1].out.obs]
        rows.append(row)
    return np.array(rows, np.float32).reshape(len(rows), 10)


def rows_of(replay: Replay) -> np.ndarray:
    return replay.read(replay.live_rows()).numpy()


@pytest.mark.parametrize("n_step", [1, 2, 3, 7])
def test_rows_are_the_sums_of_their_own_episode_however_it_ends(n_step: int) -> None:
    replay = Replay(5_000, SPEC)
    pending = PendingRows(replay, n_step, DISCOUNT)
    draws, wanted = np.random.default_rng(n_step), []
    for seed in range(200):
        end = ENDS[draws.choice(list(ENDS))]
        steps = episode(int(draws.integers(1, 13)), end, seed)
        for step in steps:
            pending.add(*step)
            assert len(pending) < n_step
        assert len(pending) == 0
        wanted.append(slow_rows(steps, n_step))
    expected = np.concatenate(wanted)
    assert len(rows_of(replay)) == len(expected)
    np.testing.assert_allclose(rows_of(replay), expected, rtol=1e-5, atol=1e-6)
    exact = [0, 1, 2, 3, 4, 7, 8, 9]
    assert np.array_equal(rows_of(replay)[:, exact], expected[:, exact])


def test_one_step_rows_are_the_transitions_themselves_down_to_the_sign_of_zero() -> None:
    replay = Replay(10, SPEC)
    pending = PendingRows(replay, 1, DISCOUNT)
    (step,) = episode(1, {}, seed=0)
    pending.add(step.obs, step.action, step.out._replace(reward=-0.0))
    assert len(replay) == 1
    (row,) = rows_of(replay)
    assert np.signbit(row[5])
    assert row[6] == np.float32(DISCOUNT)


@pytest.mark.parametrize("after", [1, 2, 6])
def test_what_waits_can_be_put_away_and_taken_up_again_to_the_bit(after: int) -> None:
    steps = episode(9, ENDS["truncated"], seed=4)
    whole, broken = Replay(100, SPEC), Replay(100, SPEC)
    plain = PendingRows(whole, 4, DISCOUNT)
    for step in steps:
        plain.add(*step)
    first, second = (PendingRows(broken, 4, DISCOUNT) for _ in range(2))
    for step in steps[:after]:
        first.add(*step)
    assert len(first) == min(after, 3)
    second.load(first.state())
    for step in steps[after:]:
        second.add(*step)
    assert rows_of(broken).tobytes() == rows_of(whole).tobytes()


def test_nothing_that_waits_is_an_empty_state() -> None:
    pending = PendingRows(Replay(10, SPEC), 3, DISCOUNT)
    assert pending.state().shape == (0, 6)


def test_as_many_saved_rows_as_steps_are_refused() -> None:
    pending = PendingRows(Replay(10, SPEC), 3, DISCOUNT)
    with pytest.raises(StorageFault, match="3 rows wait"):
        pending.load(torch.zeros(3, 6, dtype=torch.float64))


def _config(env: str, **train: Any) -> RunConfig:
    base = resolve(env, "td3", "cdq")
    values = {"warmup": 400, "batch_size": 4, "buffer_size": 1_000, "discount": DISCOUNT} | train
    return dataclasses.replace(
        base,
        actor=dataclasses.replace(base.actor, hidden=(4,)),
        critic=dataclasses.replace(base.critic, hidden=(4,)),
        train=dataclasses.replace(base.train, **values),
    )


def after_random_steps(config: RunConfig, steps: int) -> RunState:
    """The state after steps in warm-up, whose actions depend on the seed alone."""
    with closing(Task(config.env, 0)) as task:
        state = RunState(config, task)
        step = TrainStep(state, config.train, config.warmup)
        task.reset(0)
        for _ in range(steps):
            step()
        return state


@pytest.mark.parametrize("env", ["toy_envs:Point-v0", "toy_envs:Exploding-v0"])
def test_a_run_stores_the_n_step_sums_of_its_one_step_rows(env: str) -> None:
    one, three = (after_random_steps(_config(env, n_step=n), 395) for n in (1, 3))
    assert (len(one.lanes[0].pending), len(three.lanes[0].pending)) == (0, 2)
    n_rows = len(three.replay)
    assert n_rows == len(one.replay) - 2
    plain, summed = one.replay.latest(1_000), three.replay.latest(1_000)
    chained = (plain.next_obs[:-1] == plain.obs[1:]).all(1) & (plain.discount[:-1] > 0)
    assert int((~chained).sum()) > 5  # So many episodes ended.
    for t in range(n_rows):
        last = t
        while last < t + 2 and chained[last]:
            last += 1
        powers = DISCOUNT ** torch.arange(last - t + 1)
        reward = powers @ plain.reward[t : last + 1]
        assert float(summed.reward[t]) == pytest.approx(float(reward), rel=1e-5, abs=1e-6)
        discount = powers[-1] * plain.discount[last]
        assert float(summed.discount[t]) == pytest.approx(float(discount))
        assert torch.equal(summed.next_obs[t], plain.next_obs[last])
    assert torch.equal(summed.obs, plain.obs[:n_rows])
    assert torch.equal(summed.action, plain.action[:n_rows])


def test_an_episode_that_cannot_be_rebuilt_is_broken_off_with_its_rows_complete() -> None:
    config = _config("faulty_envs:Irreproducible-v0", n_step=3)
    snap = after_random_steps(config, 5).snapshot({})
    waiting, obs = snap.episode["pending"].float(), snap.episode["obs"]
    assert waiting[:, 4].tolist() == [1.0, 1.0]  # Every step pays 1.
    with closing(Task(config.env, 0)) as task:
        resumed = RunState(config, task)
        TrainStep(resumed, config.train, config.warmup)  # Gives the state its generators.
        task.reset(0)  # What comes after the first reset differs.
        (reason,) = resumed.restore(snap, {})
    assert "a new episode begins" in reason
    assert len(resumed.lanes[0].pending) == 0
    rows = resumed.replay.latest(10)
    assert torch.equal(torch.cat([rows.obs, rows.action], 1), waiting[:, :4])
    assert rows.reward.tolist() == pytest.approx([1 + DISCOUNT, 1])
    assert rows.discount.tolist() == pytest.approx([DISCOUNT**2, DISCOUNT])
    assert torch.equal(rows.next_obs, obs.expand(2, -1))
