"""Running statistics: what they are, that units do not matter, and where nothing varies."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from bridgerl.nn.normalize import CLIP, Normalizer, ObsMoments, ReturnScale
from bridgerl.runs.tensors import pack, unpack
from bridgerl.types import Batch


@pytest.fixture
def draws() -> np.random.Generator:
    return np.random.default_rng(0)


def fed(observations: np.ndarray) -> ObsMoments:
    moments = ObsMoments(observations.shape[1])
    for row in observations:
        moments.add(row)
    return moments


def normalized(moments: ObsMoments, observations: np.ndarray) -> np.ndarray:
    return moments.normalize(torch.from_numpy(observations)).numpy()


def paid(rewards: list[list[float]], discount: float = 0.9, unit: float = 10.0) -> ReturnScale:
    """A scale that has seen whole episodes."""
    scale = ReturnScale(discount, unit)
    for episode in rewards:
        scale.begin_episode(0)
        for reward in episode:
            scale.add(reward, 0)
    return scale


def sums(rewards: list[list[float]], discount: float = 0.9) -> np.ndarray:
    """What the scale is about, slowly: discounted sums of the rewards before each step."""
    starts = [e[: t + 1] for e in rewards for t in range(len(e))]
    return np.array([sum(discount**k * r for k, r in enumerate(reversed(e))) for e in starts])


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_are_those_of_all_observations(offset: float, draws: np.random.Generator) -> None:
    seen = (offset + draws.normal(2.0, 3.0, (1000, 4))).astype(np.float32)
    moments, wide = fed(seen), seen.astype(np.float64)
    assert moments.mean == pytest.approx(wide.mean(0), rel=1e-12)
    assert moments.std == pytest.approx(wide.std(0), rel=1e-9)


def test_normalised_observations_have_mean_0_and_deviation_1_and_stay_in_bounds(
    draws: np.random.Generator,
) -> None:
    seen = draws.normal([5.0, -300.0], [0.1, 40.0], (2000, 2)).astype(np.float32)
    moments = fed(seen)
    out = normalized(moments, seen)
    assert out.dtype == np.float32
    assert out.mean(0) == pytest.approx(0, abs=1e-4)
    assert out.std(0) == pytest.approx(1, abs=1e-4)
    far = normalized(moments, np.array([[1e30, -1e30]], np.float32))
    assert far.tolist() == [[CLIP, -CLIP]]


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e-30, 12345.678, 3e38])
def test_a_constant_component_becomes_zero(value: float) -> None:
    seen = np.full((500, 1), value, np.float32)
    assert not normalized(fed(seen), seen).any()


def test_rounding_around_a_constant_is_not_blown_up(draws: np.random.Generator) -> None:
    """A last digit that flickers is no signal, a deviation of a thousandth of the mean is."""
    flicker = np.where(draws.random((500, 1)) < 0.5, 100.0, np.nextafter(np.float32(100), 101))
    small = draws.normal(100.0, 0.1, (500, 1))
    for seen, (least, most) in ((flicker, (0.0, 0.02)), (small, (0.9, 1.1))):
        seen = seen.astype(np.float32)
        assert least <= normalized(fed(seen), seen).std() <= most


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_units_of_observations_do_not_matter(factor: float, draws: np.random.Generator) -> None:
    seen = draws.normal(3.0, 2.0, (200, 3)).astype(np.float32)
    loud = (factor * seen).astype(np.float32)
    assert np.array_equal(normalized(fed(seen), seen), normalized(fed(loud), loud))


def test_what_was_never_observed_passes_within_bounds() -> None:
    assert normalized(ObsMoments(2), np.array([[0.0, 99.0]], np.float32)).tolist() == [[0.0, CLIP]]


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_returns_have_the_wanted_size_and_end_with_their_episode(
    discount: float, draws: np.random.Generator
) -> None:
    rewards = [draws.normal(1.0, 2.0, n).tolist() for n in (30, 1, 12)]
    scale = paid(rewards, discount, unit=7.0)
    size = np.sqrt(np.square(sums(rewards, discount)).mean())
    assert scale.gain == pytest.approx(7.0 / size, rel=1e-12)


@pytest.mark.parametrize("factor", [2.0**-40, 1024.0, -(2.0**40)])
def test_units_of_rewards_do_not_matter_to_the_bit(
    factor: float, draws: np.random.Generator
) -> None:
    rewards = [draws.normal(1.0, 2.0, 30).tolist(), [0.0, 0.0, 1.0]]
    loud = [[factor * r for r in episode] for episode in rewards]
    assert abs(factor) * paid(loud).gain == paid(rewards).gain


def test_a_constant_reward_has_a_gain_that_stays() -> None:
    """Its deviation would go to 0, and the gain to infinity, in an episode without an end."""
    assert paid([[2.0] * 100_000]).gain == pytest.approx(10.0 / 20.0, rel=1e-3)


def test_nothing_but_zeros_leaves_rewards_alone_and_the_first_reward_gives_the_size() -> None:
    zeros = [[0.0] * 1000]
    assert paid(zeros).gain == 1.0
    assert paid([*zeros, [0.0] * 50 + [4.0]]).gain == pytest.approx(10.0 / 4.0)


def test_adding_a_reward_tells_how_the_gain_changed() -> None:
    scale = ReturnScale(0.9, 10.0)
    # Before the first reward there was no size to compare with.
    assert [scale.add(reward, 0) for reward in (0.0, 0.0, 3.0)] == [1.0, 1.0, 1.0]
    for reward in (0.0, -8.0, 1e6):
        before = scale.gain
        assert scale.add(reward, 0) == pytest.approx(scale.gain / before)


def test_every_environment_has_episodes_of_its_own(draws: np.random.Generator) -> None:
    rewards = draws.normal(size=(2, 20)).tolist()
    scale = ReturnScale(0.9, 10.0, n_envs=2, resumes=False)
    for step in zip(*rewards, strict=True):
        for env, reward in enumerate(step):
            scale.add(reward, env)
    assert scale.gain == pytest.approx(paid(rewards).gain, rel=1e-12)


def _normalizer(**returns: bool) -> Normalizer:
    return Normalizer(ObsMoments(3), ReturnScale(0.9, 10.0, **returns))


def _feed(normalizer: Normalizer, n: int) -> Tensor:
    draws = np.random.default_rng(n)
    for _ in range(n):
        normalizer.add(draws.normal(size=3).astype(np.float32), float(draws.normal()), 0)
    x = torch.ones(2, 3)
    batch = Batch(x, x, x[:, 0], x[:, 0], x)
    obs, _, reward, *_ = normalizer.normalize_batch(batch)
    return torch.cat([obs.flatten(), reward])


def test_statistics_travel_in_the_state_and_go_on_the_same() -> None:
    ours, theirs = _normalizer(), _normalizer()
    _feed(ours, 40)
    state = unpack(pack(ours.state_dict()), "state")
    assert _feed(theirs, 7).shape == (8,)  # What it saw before is forgotten.
    theirs.load_state_dict(state)
    other = copy.deepcopy(ours)
    expected = _feed(ours, 5)
    assert torch.equal(expected, _feed(theirs, 5))
    assert torch.equal(expected, _feed(other, 5))


def test_where_episodes_do_not_go_on_after_a_load_their_sums_stay_behind() -> None:
    ours = _normalizer(resumes=False)
    ours.add(np.zeros(3, np.float32), 5.0, 0)
    theirs = Normalizer(ObsMoments(3), ReturnScale(0.9, 10.0, n_envs=4, resumes=False))
    theirs.load_state_dict(ours.state_dict())
    assert theirs.returns is not None
    assert theirs.returns.gain == 10.0 / 5.0
    theirs.add(np.zeros(3, np.float32), 5.0, 0)
    assert theirs.returns.gain == 10.0 / 5.0


def test_a_normaliser_that_is_off_changes_nothing_and_has_no_state() -> None:
    off, x = Normalizer(), torch.randn(4, 3)
    assert off.state_dict() == {}
    off.begin_episode(x[0].numpy(), 0)
    assert off.add(x[0].numpy(), 7.0, 0) == 1.0
    batch = Batch(x, x, x[:, 0], x[:, 0], x)
    assert all(a is b for a, b in zip(off.normalize_batch(batch), batch, strict=True))
    assert off.in_task_units(x) is x
