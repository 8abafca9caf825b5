"""Replay rows: what goes in comes out, the ring wraps, draws depend on their generator alone."""

import numpy as np
import psutil
import pytest
import torch

from bridgerl.errors import UserError
from bridgerl.training.replay import Replay, check_memory
from bridgerl.types import EnvSpec

SPEC = EnvSpec("x", 3, 2)


def _filled(capacity: int, rows: int) -> Replay:
    """Row i holds obs i, action -i, reward 10 i, discount i % 2, next_obs i + 1."""
    replay = Replay(capacity, SPEC)
    for i in range(rows):
        obs = np.full(3, i, np.float32)
        replay.add(obs, np.full(2, -i, np.float32), 10.0 * i, float(i % 2), obs + 1)
    return replay


def test_a_batch_keeps_the_parts_of_each_transition_together() -> None:
    batch = _filled(100, 60).sample(500, torch.Generator().manual_seed(0))
    i = batch.obs[:, 0]
    assert batch.obs.shape == (500, 3)
    assert batch.action.shape == (500, 2)
    assert batch.reward.shape == batch.discount.shape == (500,)
    assert torch.equal(batch.action, -i[:, None].expand(-1, 2))
    assert torch.equal(batch.reward, 10 * i)
    assert torch.equal(batch.discount, i % 2)
    assert torch.equal(batch.next_obs, i[:, None].expand(-1, 3) + 1)


def test_draws_cover_the_filled_rows_only_and_all_of_them() -> None:
    drawn = _filled(1000, 20).sample(2000, torch.Generator().manual_seed(0)).obs[:, 0]
    assert sorted(set(drawn.tolist())) == list(range(20))


def test_the_ring_overwrites_the_oldest_rows() -> None:
    replay = _filled(8, 21)
    assert len(replay) == 8
    assert replay.live_rows() == range(13, 21)
    assert replay.read(replay.live_rows())[:, 0].tolist() == list(range(13, 21))
    drawn = replay.sample(500, torch.Generator().manual_seed(0)).obs[:, 0]
    assert sorted(set(drawn.tolist())) == list(range(13, 21))


def test_equal_generators_draw_equal_batches() -> None:
    replay = _filled(100, 60)
    a, b = (replay.sample(64, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(a.obs, b.obs)
    other = replay.sample(64, torch.Generator().manual_seed(6))
    assert not torch.equal(a.obs, other.obs)


def test_memory_is_counted_before_it_is_taken() -> None:
    humanoid = EnvSpec("Humanoid-v5", 348, 17)
    assert check_memory(humanoid, 1_000) == 1_000 * (348 * 2 + 17 + 2) * 4
    too_many = 2 * psutil.virtual_memory().total // (715 * 4)
    with pytest.raises(UserError, match=r"needs .* GB.*--train.buffer-size"):
        check_memory(humanoid, too_many)
