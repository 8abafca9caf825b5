"""Measures of risk: a certain return is worth itself, a shift shifts, Gaussians have formulas."""

import math
from collections.abc import Iterator
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bridgerl.errors import UserError
from bridgerl.ops.risk import (
    add_distortion,
    levels,
    mass,
    risk_at,
    risk_of,
    risk_of_gaussian,
    weights,
)
from bridgerl.settings.measures import KINDS, OWN, Measure, parse

NORMAL = NormalDist()
MONOTONE = {"mean", "cvar", "wang", "power", "cpw", "entropic"}
FIXED = [f"cvar:{a}" for a in (0.01, 0.1, 0.25, 1)] + [f"wang:{x}" for x in (-2, 0, 0.75, 1.5)]
FIXED += [f"cpw:{x}" for x in (0.5, 0.71, 1)] + [f"power:{x}" for x in (-3, 0, 0.5, 2, 20)]
FIXED += [f"mean-std:{x}" for x in (-1, 0.75)] + [f"entropic:{x}" for x in (-0.1, 0, 0.01, 1.5)]
for_measures = pytest.mark.parametrize("text", ["mean", *FIXED])
DISTORTIONS = ["mean", *(text for text in FIXED if not text.startswith(("mean-std", "entropic")))]
for_distortions = pytest.mark.parametrize("text", DISTORTIONS)


@st.composite
def measures(draw: st.DrawFn) -> Measure:
    """Any measure with any parameter of moderate size that it takes."""
    name = draw(st.sampled_from(["mean", *KINDS]))
    if name == "mean":
        return Measure("mean")
    low, high = max(KINDS[name].low, -20), min(KINDS[name].high, 20)
    value = draw(st.floats(low, high, exclude_min=KINDS[name].open_low, allow_subnormal=False))
    return Measure(name, value)


def midpoints(k: int) -> Tensor:
    return (torch.arange(k, dtype=torch.float64) + 0.5) / k


def returns(most: int = 40) -> st.SearchStrategy[Tensor]:
    numbers = st.floats(-1000, 1000, allow_subnormal=False)
    lists = st.lists(numbers, min_size=1, max_size=most)
    return lists.map(lambda values: torch.tensor(values, dtype=torch.float64))


@settings(deadline=None, max_examples=300)
@given(measures(), st.floats(-1e4, 1e4), st.integers(1, 200))
def test_a_certain_return_is_worth_itself(measure: Measure, sure: float, k: int) -> None:
    z = torch.full((k,), sure, dtype=torch.float64)
    assert float(risk_of(measure, z)) == pytest.approx(sure, rel=1e-12, abs=1e-9)
    assert float(risk_at(measure, z)) == pytest.approx(sure, rel=1e-12, abs=1e-9)
    assert float(risk_of(measure, z.float())) == pytest.approx(sure, rel=1e-6, abs=1e-6)


@settings(deadline=None, max_examples=300)
@given(measures(), returns(), st.floats(-1e4, 1e4))
def test_what_is_added_for_sure_is_added_to_the_worth(
    measure: Measure, z: Tensor, shift: float
) -> None:
    for form in (risk_of, risk_at):
        assert float(form(measure, z + shift) - form(measure, z)) == pytest.approx(shift, abs=1e-6)


@settings(deadline=None, max_examples=300)
@given(measures().filter(lambda m: m.name in MONOTONE), returns(), st.data())
def test_more_in_every_case_is_worth_no_less(
    measure: Measure, z: Tensor, data: st.DataObject
) -> None:
    more = data.draw(st.lists(st.floats(0, 100), min_size=len(z), max_size=len(z)))
    better = z.sort().values + torch.tensor(more, dtype=torch.float64)
    assert risk_of(measure, better) >= risk_of(measure, z) - 1e-9


def test_only_mean_minus_deviation_may_prefer_less() -> None:
    low, high = (torch.tensor([0.0, x]) for x in (1.0, 100.0))
    assert risk_of("mean-std:2", high) < risk_of("mean-std:2", low)
    assert all(risk_of(m, high) >= risk_of(m, low) for m in ("cvar:0.6", "wang:2", "power:2"))


@settings(deadline=None, max_examples=200)
@given(measures(), returns(), st.just(0.0) | st.floats(1e-6, 10))
def test_all_but_the_entropic_measure_grow_with_the_returns(
    measure: Measure, z: Tensor, gain: float
) -> None:
    grown = float(risk_of(measure.rescaled(gain) if gain else measure, gain * z))
    if gain or measure.name != "entropic":
        assert grown == pytest.approx(gain * float(risk_of(measure, z)), rel=1e-6, abs=1e-5)


@for_measures
def test_positive_parameters_are_averse_and_negative_ones_seek(text: str) -> None:
    z = torch.special.ndtri(midpoints(2_000))
    worth, parameter = float(risk_of(text, z)), parse(text).parameter or 0.0
    neutral = text in ("mean", "cvar:1", "cpw:1") or parameter == 0
    assert math.copysign(1, worth) == -math.copysign(1, parameter) or neutral
    assert (abs(worth) < 1e-9) == neutral


@for_distortions
def test_distortions_ascend_from_0_to_1_and_their_weights_sum_to_1(text: str) -> None:
    measure = parse(text)
    g = mass(measure, torch.linspace(0, 1, 999, dtype=torch.float64))
    assert (float(g[0]), float(g[-1])) == (0, 1)
    assert (g.diff() >= 0).all()
    for k in (1, 2, 7, 64, 1000):
        assert float(weights(measure, k).sum()) == pytest.approx(1, abs=1e-14)
        assert (weights(measure, k) >= 0).all()
    u = torch.linspace(0.001, 0.999, 997, dtype=torch.float64)
    torch.testing.assert_close(mass(measure, levels(measure, u)), u, rtol=0, atol=1e-7)


def gaussian(text: str) -> float:
    """What a standard Gaussian is worth."""
    measure = parse(text)
    value = measure.parameter or 0.0
    if measure.name == "cvar":
        return 0.0 if value == 1 else -NORMAL.pdf(NORMAL.inv_cdf(value)) / value
    return {"wang": -value, "mean-std": -value, "entropic": -value / 2}.get(measure.name, 0.0)


@pytest.mark.parametrize("text", [t for t in ["mean", *FIXED] if t[:3] not in ("cpw", "pow")])
def test_a_gaussian_is_worth_what_its_formula_says(text: str) -> None:
    u = midpoints(100_000)
    worth = gaussian(text)
    rel = 0.02 if abs(parse(text).parameter or 0) > 1 else 1e-3  # Far out, points are few.
    for level, form in ((u, risk_of), (levels(text, u), risk_at)):
        z = torch.special.ndtri(level)
        assert float(form(text, z)) == pytest.approx(worth, rel=rel, abs=1e-3)
        if not text.startswith("entropic"):
            assert float(form(text, 5 + 3 * z)) == pytest.approx(5 + 3 * worth, rel=rel, abs=1e-2)


@for_measures
def test_the_formula_of_a_gaussian_is_what_its_quantiles_are_worth(text: str) -> None:
    mean, std = torch.tensor([5.0, -7.0]).double(), torch.tensor([3.0, 0.5]).double()
    # Far levels by a substitution: u = ndtr(x), x on a wide and fine grid, weighed by its mass.
    x = torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    if text.startswith(("entropic", "mean-std")):
        p = torch.exp(-0.5 * x**2)
        p = p / p.sum()
        z = mean[:, None] + std[:, None] * x
        beta = parse(text).parameter or 0.0
        if text.startswith("mean-std"):
            want = mean - beta * std
        else:
            want = mean if beta == 0 else -torch.log((p * torch.exp(-beta * z)).sum(1)) / beta
    else:
        g = mass(text, torch.special.ndtr(x))
        want = mean + std * float((0.5 * (x[1:] + x[:-1]) * g.diff()).sum())
    torch.testing.assert_close(risk_of_gaussian(text, mean, std), want, rtol=1e-4, atol=1e-4)


@for_distortions
def test_few_warped_levels_give_the_measure_without_bias(text: str) -> None:
    g = torch.Generator().manual_seed(0)
    u = (torch.arange(4) + torch.rand((20_000, 4), generator=g, dtype=torch.float64)) / 4
    few = risk_at(text, torch.special.ndtri(levels(text, u))).mean()
    many = risk_of(text, torch.special.ndtri(midpoints(100_000)))
    assert float(few) == pytest.approx(float(many), rel=0.02, abs=0.01)


def test_power_is_the_mean_of_the_worst_of_more_draws() -> None:
    z = torch.arange(1, 7, dtype=torch.float64)  # A die: of 3 draws the least is 2.04 on average.
    least = sum((7 - i) ** 3 - (6 - i) ** 3 for i in range(1, 7))
    expected = sum(i * ((7 - i) ** 3 - (6 - i) ** 3) for i in range(1, 7)) / least
    assert float(risk_of("power:2", z)) == pytest.approx(expected, abs=1e-12)


def test_cvar_is_the_mean_of_the_worst_share_also_of_part_of_a_return() -> None:
    z = torch.tensor([4.0, 1.0, 3.0, 2.0], dtype=torch.float64)
    assert float(risk_of("cvar:0.5", z)) == pytest.approx(1.5)
    assert float(risk_of("cvar:0.375", z)) == pytest.approx((1 + 0.5 * 2) / 1.5)
    assert float(risk_of("cvar:0.1", torch.full((8,), 100.0))) == 100.0


@for_measures
def test_slopes_are_finite_and_sum_to_1_also_where_nothing_varies(text: str) -> None:
    for z in (torch.zeros(8), torch.arange(8.0), torch.tensor([5.0, -300, 2, 900])):
        z = z.double().requires_grad_()
        (slope,) = torch.autograd.grad(risk_of(text, z), z)
        assert torch.isfinite(slope).all()
        assert float(slope.sum()) == pytest.approx(1, abs=1e-9)


@pytest.fixture
def _own() -> Iterator[None]:
    yield
    OWN.clear()


@pytest.mark.usefixtures("_own")
def test_a_distortion_of_ones_own_is_a_measure_like_any_other() -> None:
    with pytest.raises(UserError, match="unknown risk measure 'half'"):
        parse("half")
    add_distortion("half", lambda tau: (2 * tau).clamp(max=1))
    z = torch.tensor([[1.0, 9.0, 3.0, 5.0]])
    assert risk_of("half", z).tolist() == [2.0]
    u = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    torch.testing.assert_close(levels("half", u), u / 2, rtol=0, atol=1e-9)
    assert risk_of(Measure("unnamed", mass=lambda tau: tau), z).tolist() == [4.5]


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("name", "g", "says"),
    [
        ("cvar", lambda tau: tau, "not one of ours"),
        ("No Name", lambda tau: tau, "small letters"),
        ("down", lambda tau: 1 - tau, "must ascend"),
        ("half", lambda tau: tau / 2, "must ascend"),
        ("wave", lambda tau: tau + torch.sin(6.2831853 * tau), "must ascend"),
    ],
)
def test_what_is_no_distortion_is_refused(name: str, g: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        add_distortion(name, g)  # pyright: ignore[reportArgumentType]
    assert OWN == {}


@for_measures
def test_text_and_measure_are_the_same_thing(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)
    assert parse(parse(text)) == parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cvra:0.1", "unknown risk measure 'cvra'; did you mean cvar?"),
        ("", "unknown risk measure ''"),
        ("mean:1", "takes no parameter; write mean"),
        ("cvar", "needs a parameter above 0 to 1, e.g. cvar:0.1"),
        ("cvar:0", "needs a parameter above 0 to 1, e.g. cvar:0.1"),
        ("cvar:1.1", "needs a parameter above 0 to 1, e.g. cvar:0.1"),
        ("cvar:-0.1", "needs a parameter above 0 to 1"),
        ("cvar:nan", "needs a parameter above 0 to 1"),
        ("wang:inf", "needs a parameter from -5 to 5"),
        ("cpw:0.1", "needs a parameter from 0.5 to 1"),
        ("cvar:0.1:2", "needs a parameter above 0 to 1"),
        ("power:2 ", "needs a parameter"),
    ],
)
def test_other_texts_are_refused_in_a_line(text: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
