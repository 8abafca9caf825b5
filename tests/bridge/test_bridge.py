"""Bridge algebra against numerical integration, the paper's table, and exact identities."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bridgerl.bridge.schedule import (
    SCHEDULES,
    Constant,
    Cosine,
    Linear,
    Schedule,
    make_schedule,
    velocity,
    xi,
)
from bridgerl.bridge.walk import (
    Rule,
    Walk,
    endpoint_error,
    sample,
    step_weights,
    uniform_times,
)
from bridgerl.cli.main import main
from bridgerl.errors import UserError
from bridgerl.studies.paper import EULER
from bridgerl.truth.endpoint import biased_value, weight_sum

LEFT_ENDPOINTS = {1: (31.30, 89.88, 89.88), 2: (13.63, 27.28, 15.47), 5: (4.95, 8.28, 6.84)}
FIVE_STEPS = {
    "constant": (0.244295, 0.213965, 0.192223, 0.178196, 0.171320),
    "linear": (0.112755, 0.243502, 0.267239, 0.214766, 0.161738),
    "cosine": (0.050935, 0.195462, 0.309696, 0.266832, 0.177076),
}

rates = st.floats(0.01, 10.0)
partitions = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12).map(
    lambda steps: torch.tensor([0.0, *np.cumsum(steps) / np.sum(steps)], dtype=torch.float64)
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    low, high = sorted((draw(rates), draw(rates)))
    return draw(
        st.sampled_from(
            [
                Constant(low),
                Linear(low, high),
                Cosine(low, high),
            ]
        )
    )


def _integrate(schedule: Schedule, a: float, b: float) -> float:
    """Simpson's rule on theta, as an oracle that knows no closed form."""
    t = torch.linspace(a, b, 2001, dtype=torch.float64)
    theta = schedule.theta(t).numpy()
    weights = np.ones(2001)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return float((weights * theta).sum() * (b - a) / 2000 / 3)


@pytest.mark.parametrize("rule", ["right", "left"])
def test_endpoint_errors_are_the_papers(rule: Rule) -> None:
    table = EULER if rule == "right" else LEFT_ENDPOINTS
    for n_steps, cells in table.items():
        for schedule, cell in zip((Constant(), Linear(), Cosine()), cells, strict=True):
            assert 100 * endpoint_error(schedule, n_steps, rule) == pytest.approx(cell, abs=0.0051)


@pytest.mark.parametrize("name", SCHEDULES)
def test_five_step_weights_are_the_tabulated_ones(name: str) -> None:
    weights = step_weights(SCHEDULES[name](), uniform_times(5))
    assert weights.tolist() == pytest.approx(FIVE_STEPS[name], abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(schedules(), partitions)
def test_xi_velocity_and_weights_follow_from_integrating_theta(
    schedule: Schedule, times: Tensor
) -> None:
    whole = _integrate(schedule, 0.0, 1.0)
    left = torch.tensor([_integrate(schedule, float(t), 1.0) for t in times])
    expected = torch.sinh(left.double()) / math.sinh(whole)
    torch.testing.assert_close(xi(schedule, times), expected, rtol=0, atol=1e-6)
    speed = schedule.theta(times) * torch.cosh(left.double()) / math.sinh(whole)
    torch.testing.assert_close(velocity(schedule, times), speed, rtol=1e-6, atol=1e-6)
    weights = step_weights(schedule, times)
    torch.testing.assert_close(weights, -expected.diff(), rtol=0, atol=1e-6)
    assert (weights >= 0).all()


@settings(max_examples=50, deadline=None)
@given(schedules(), st.floats(0.01, 0.99))
def test_velocity_is_minus_the_derivative_of_xi(schedule: Schedule, at: float) -> None:
    t = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    left = schedule.integral(torch.ones_like(t)) - schedule.integral(t)
    ratio = torch.sinh(left) / torch.sinh(schedule.integral(torch.ones_like(t)))
    (slope,) = torch.autograd.grad(ratio, t)
    torch.testing.assert_close(velocity(schedule, t.detach()), -slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", [Constant(), Linear(), Cosine()])
def test_quadrature_agrees_with_the_closed_forms(schedule: Schedule) -> None:
    t, (nodes, weights) = torch.linspace(0, 1, 101), np.polynomial.legendre.leggauss(40)
    for at, closed in zip(t.tolist(), schedule.integral(t.double()).tolist(), strict=True):
        theta = schedule.theta(torch.tensor(0.5 * at * (nodes + 1))).numpy()
        assert closed == pytest.approx(float(weights @ theta) * at / 2, rel=1e-12, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(schedules(), partitions, st.floats(-1e4, 1e4))
def test_a_constant_predictor_comes_back_unchanged(
    schedule: Schedule, times: Tensor, value: float
) -> None:
    start = torch.linspace(0, 1, 9, dtype=torch.float64)
    weights = step_weights(schedule, times).tolist()
    end = sample(lambda z, i: torch.full_like(z, value), start, weights)
    torch.testing.assert_close(end, torch.full_like(start, value), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_steps", [1, 2, 5, 10])
@pytest.mark.parametrize("schedule", [Constant(), Linear(), Cosine()])
def test_the_end_is_the_weighted_sum_of_the_predictions(schedule: Schedule, n_steps: int) -> None:
    times = uniform_times(n_steps)
    weights = step_weights(schedule, times)
    seen: list[Tensor] = []

    def predict(z: Tensor, i: int) -> Tensor:
        seen.append(torch.sin(3 * z + times[i]))
        return seen[-1]

    start = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    end = sample(predict, start, weights.tolist())
    expected = (torch.stack(seen, -1) * weights).sum(-1)
    torch.testing.assert_close(end, expected)
    if n_steps == 1:
        torch.testing.assert_close(end, torch.sin(3 * start))


def test_sampling_keeps_gradients_through_every_step() -> None:
    scale = torch.tensor(0.7, requires_grad=True)
    weights = step_weights(Constant(), uniform_times(5)).tolist()
    end = sample(lambda z, i: scale * z, torch.tensor(1.0), weights)
    (gradient,) = torch.autograd.grad(end, scale)
    step = 1e-6
    ends = [
        sample(lambda z, i, s=s: s * z, torch.tensor(1.0).double(), weights)
        for s in (0.7 - step, 0.7 + step)
    ]
    assert gradient.item() == pytest.approx(float(ends[1] - ends[0]) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("n_steps", [1, 2, 5, 10, 1000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_weights_sum_to_one_in_float32(name: str, n_steps: int) -> None:
    weights = step_weights(SCHEDULES[name](), uniform_times(n_steps)).float()
    assert weights.double().sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("rate", [1e-30, 1e-6, 50.0, 700.0])
def test_extreme_rates_stay_finite_and_keep_their_ends(rate: float) -> None:
    t = torch.linspace(0, 1, 11)
    values = xi(Constant(rate), t)
    assert torch.isfinite(values).all()
    assert values[0] == 1
    assert values[-1] == 0
    assert (values.diff() <= 0).all()


def test_schedules_refuse_rates_that_never_arrive() -> None:
    for make in (
        lambda: Constant(0.0),
        lambda: Constant(math.nan),
        lambda: Linear(-1.0, 2.0),
        lambda: Cosine(2.0, 1.0),
        lambda: make_schedule("linear", 1.0, -1.0, 2.0),
        lambda: make_schedule("quadratic", 1.0, 0.1, 5.0),
        lambda: uniform_times(0),
    ):
        with pytest.raises(UserError):
            make()


def test_the_command_prints_and_draws_the_papers_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bridge-error", "--json", "--out", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    found = {(r["rule"], r["schedule"]): r["percent"] for r in rows}
    for n_steps, cells in EULER.items():
        for name, cell in zip(("constant", "linear", "cosine"), cells, strict=True):
            assert round(found["right", name][str(n_steps)], 2) == cell
            assert found["exact", name][str(n_steps)] < 1e-10
    assert (tmp_path / "bridge-error.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_takes_any_rate_and_number_of_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = "bridge-error --schedules constant --theta 3 --steps 7 --no-plot --json".split()
    assert main([*args, "--out", str(tmp_path / "none")]) == 0
    right, left, _ = json.loads(capsys.readouterr().out)
    assert right["percent"]["7"] == pytest.approx(100 * endpoint_error(Constant(3.0), 7, "right"))
    assert left["percent"]["7"] == pytest.approx(100 * endpoint_error(Constant(3.0), 7, "left"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("n_steps", [1, 2, 5, 10])
@pytest.mark.parametrize("rule", ["exact", "left", "right"])
def test_a_walk_with_weights_that_miss_one_changes_the_discount(rule: Rule, n_steps: int) -> None:
    discount, tau = 0.5, torch.linspace(0.005, 0.995, 100)
    walk, z = Walk.of(Constant(), n_steps, rule), torch.zeros(100)
    for _ in range(200):  # Backups of reward 1 for ever, by a network that knows its own answer.
        z = 1 + discount * sample(lambda _, i, z=z: z, tau, walk.weights)
    total = weight_sum(rule, n_steps)
    assert sum(walk.weights) == pytest.approx(total)
    assert float(z.mean()) == pytest.approx(biased_value(discount, total), rel=1e-5)
    assert (total == pytest.approx(1)) == (rule == "exact")


def test_left_weights_diverge_at_the_usual_discount() -> None:
    assert 0.99 * weight_sum("left", 5) == pytest.approx(1.039, abs=5e-4)
    assert math.isinf(biased_value(0.99, weight_sum("left", 5)))
