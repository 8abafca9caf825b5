"""Scores of learned distributions: what is wrong with one is told apart and measured."""

import numpy as np
import pytest
from scipy import stats

from bridgerl.truth import calibration, scores

K, N, P = 256, 400, 40
LEVELS = (np.arange(K) + 0.5) / K


@pytest.fixture(scope="module")
def truth() -> tuple[np.ndarray, np.ndarray]:
    """Centres (p, 1) and returns drawn around them with deviation 10: (p, n)."""
    rng = np.random.default_rng(0)
    centre = rng.uniform(-50, 50, (P, 1))
    return centre, centre + 10 * rng.standard_normal((P, N))


def normal(scale: float = 10.0) -> np.ndarray:
    return scale * stats.norm.ppf(LEVELS)[None]


def test_a_right_critic_is_called_right(truth: tuple[np.ndarray, np.ndarray]) -> None:
    centre, drawn = truth
    figures = scores.score(centre + normal(), drawn)
    assert figures["w1"] < 1.3 * figures["w1_chance"]
    assert abs(figures["crps_excess"]) < 2e-3
    assert max(figures[part] for part in ("location", "scale", "shape")) < 0.04
    assert figures["width"] == pytest.approx(1, abs=0.02)
    for share, covered in figures["coverage"].items():
        assert covered == pytest.approx(float(share), abs=0.015)
    assert max(abs(bin_ - 1 / scores.BINS) for bin_ in figures["pit"]) < 0.01


def test_a_shift_is_an_error_of_location(truth: tuple[np.ndarray, np.ndarray]) -> None:
    centre, drawn = truth
    figures = scores.score(centre + normal() + 5, drawn)
    assert figures["location"] == pytest.approx(0.5, abs=0.02)
    assert figures["bias"] == pytest.approx(0.5, abs=0.02)
    assert max(figures["scale"], figures["shape"]) < 0.04
    assert figures["w1"] == pytest.approx(0.5, abs=0.02)


def test_a_shrink_is_an_error_of_scale(truth: tuple[np.ndarray, np.ndarray]) -> None:
    centre, drawn = truth
    figures = scores.score(centre + normal(5.0), drawn)
    assert figures["scale"] == pytest.approx(0.5, abs=0.02)
    assert figures["width"] == pytest.approx(0.5, abs=0.02)
    assert max(figures["location"], figures["shape"]) < 0.04
    assert figures["coverage"]["0.8"] == pytest.approx(2 * stats.norm.cdf(0.6408) - 1, abs=0.02)


def test_two_peaks_of_the_same_moments_are_an_error_of_shape(
    truth: tuple[np.ndarray, np.ndarray],
) -> None:
    centre, drawn = truth
    peaks = np.where(LEVELS < 0.5, -10.0, 10.0)[None]
    figures = scores.score(centre + peaks, drawn)
    # Against a normal, r = E|N| = sqrt(2 / pi): the part is 2 (1 - r).
    assert figures["shape"] == pytest.approx(np.sqrt(2 - 2 * np.sqrt(2 / np.pi)), abs=0.03)
    assert max(figures["location"], figures["scale"]) < 0.06


def test_the_parts_sum_up_to_the_squared_distance(truth: tuple[np.ndarray, np.ndarray]) -> None:
    centre, drawn = truth
    learned = centre + 7 + stats.expon.ppf(LEVELS)[None] * 4
    whole = ((learned - scores.quantiles_of(drawn, K)) ** 2).mean(1)
    np.testing.assert_allclose(np.sum(scores.split_error(learned, drawn), 0), whole, rtol=1e-10)


def test_crps_is_that_of_the_distribution_functions() -> None:
    rng = np.random.default_rng(1)
    a, b = np.sort(rng.normal(size=(1, 50))), np.sort(rng.normal(1, 2, (1, 60)))
    z = np.sort(np.concatenate([a, b], 1)[0])
    gap = np.searchsorted(a[0], z, "right") / 50 - np.searchsorted(b[0], z, "right") / 60
    plain = (gap[:-1] ** 2 * np.diff(z)).sum()
    # Ours leaves pairs of a draw and itself out of the second sample.
    own = scores.mean_distance(b)[0] / 2 * (60 / 59 - 1)
    assert scores.crps_excess(a, b)[0] == pytest.approx(plain - own)


def test_mean_distance_is_that_of_all_pairs() -> None:
    x = np.random.default_rng(2).normal(size=(3, 7))
    plain = np.abs(x[:, :, None] - x[:, None]).mean((1, 2))
    np.testing.assert_allclose(scores.mean_distance(x), plain)


def test_shifts_make_fresh_returns_fall_where_they_should() -> None:
    rng = np.random.default_rng(3)
    centre = rng.uniform(-50, 50, (400, 1))
    drawn = centre + 10 * rng.standard_exponential((400, 20))
    learned = np.broadcast_to(centre - 30 + normal(2.0), (400, K))
    shifts = scores.conformal_shifts(learned[::2], drawn[::2])
    figures = scores.score(learned[1::2] + shifts, drawn[1::2])
    for share, covered in figures["coverage"].items():
        assert covered == pytest.approx(float(share), abs=0.03)


def test_a_point_value_covers_nothing(truth: tuple[np.ndarray, np.ndarray]) -> None:
    centre, drawn = truth
    figures = scores.score(np.broadcast_to(centre, (P, K)), drawn)
    assert figures["width"] < 1e-9
    assert max(figures["coverage"].values()) == 0


def test_returns_that_are_certain_are_measured_in_their_own_units() -> None:
    drawn = np.full((3, 8), 100.0)
    figures = scores.score(np.full((3, K), 90.0), drawn)
    assert figures["certain"]
    assert figures["w1"] == pytest.approx(10)
    assert figures["location"] == pytest.approx(10)
    assert (
        calibration.say(figures) == "values are 10% too low; the return of a state is certain here"
    )
