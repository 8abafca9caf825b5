"""Random problems: drawn from a seed alone, solved to a thousandth of the deviation."""

from pathlib import Path

import numpy as np
import pytest

from bridgerl.cli.main import main
from bridgerl.errors import UserError
from bridgerl.truth.league import compare, paired_interval, problem_of
from bridgerl.truth.random_problems import (
    LEVELS,
    SHAPES,
    Grid,
    Process,
    draw_process,
    inverse_cdf,
    moments,
    random_problem,
    solve,
)
from bridgerl.truth.settings import read_problems

SEEDS = tuple(range(1000, 1010))
TAU = (np.arange(10_000) + 0.5) / 10_000


def simulate(process: Process, side: int, n: int, seed: int) -> np.ndarray:
    """N returns from state 0 by playing, ascending: the truth by an independent way."""
    rng, (rewards, leads, discount) = np.random.default_rng(seed), process
    ahead, playing, weight = np.cumsum(leads, 1), np.arange(n), 1.0
    state, sides, total = np.zeros(n, np.int64), np.full(n, side), np.zeros(n)
    while len(playing) and weight > 1e-7:
        total[playing] += weight * rewards[state, sides, rng.integers(LEVELS, size=len(state))]
        then = (rng.random(len(state))[:, None] >= ahead[state]).sum(1)
        on = then < len(leads)
        playing, state = playing[on], then[on]
        sides, weight = rng.integers(2, size=len(state)), weight * discount
    return np.sort(total)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_truth_is_that_of_played_episodes(seed: int) -> None:
    process, n = draw_process(seed), 200_000
    grid, mass = solve(process)
    for side in (0, 1):
        truth = inverse_cdf(grid, mass[side])((np.arange(n) + 0.5) / n)
        # What so many episodes leave to chance; a grid ten times coarser is caught below.
        assert np.abs(simulate(process, side, n, seed) - truth).mean() < 0.007 * truth.std()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_truth_has_the_moments_of_the_linear_equations(seed: int) -> None:
    process = draw_process(seed)
    (grid, mass), (mean, std) = solve(process), moments(process)
    both = mass.mean(0)  # The policy takes either side equally often.
    found = grid.points @ both
    assert found == pytest.approx(mean[0], abs=1e-4 * std[0])
    assert np.sqrt((grid.points - found) ** 2 @ both) == pytest.approx(std[0], rel=1e-3)
    assert 39.9 < std[0] < 120.1


def test_returns_are_random_for_every_seed() -> None:
    """Some seeds, 50 and 1014 among them, draw a certain return first."""
    for seed in [*range(60), 1014]:
        std = moments(draw_process(seed))[1][0]
        assert 39.9 < std < 120.1, seed


def test_a_loop_of_fair_coins_returns_a_uniform_number() -> None:
    coin = np.repeat([0.0, 100.0], LEVELS // 2)
    grid, mass = solve(Process(np.tile(coin, (1, 2, 1)), np.ones((1, 1)), 0.5))
    assert np.abs(inverse_cdf(grid, mass[0])(TAU) - 200 * TAU).max() < 0.001 * 200 / 12**0.5


def test_mass_between_two_points_keeps_its_mean() -> None:
    grid = Grid(0.5, -4)
    mass = grid.deposit(np.array([0.2, 0.5]), 0.5)
    assert mass.sum() == pytest.approx(1)
    assert grid.points @ mass == pytest.approx(0.35)


# To six digits: libraries may round the last ones of a logarithm differently.
@pytest.mark.parametrize(
    ("seed", "quantiles"),
    [
        (0, [-13.3063, 46.26398, 65.59018]),
        (7, [104.9922, 164.0365, 213.4034]),
        (1000, [-0.03927294, 0.006013042, 96.81136]),
    ],
)
def test_a_seed_names_the_same_problem_everywhere(seed: int, quantiles: list[float]) -> None:
    found = random_problem(seed).queries[0].quantile(np.array([0.1, 0.5, 0.9]))
    assert found == pytest.approx(quantiles, rel=1e-6)


def test_problems_differ_in_kind_states_and_shape() -> None:
    processes = [draw_process(seed) for seed in range(40)]
    assert {len(p.leads) for p in processes} == {1, 2, 3, 4, 5}
    assert any(p.leads[0, 0] == 1 for p in processes)
    assert any(not p.leads.any() for p in processes)
    assert any(0 < p.leads.sum(1).min() < 1 for p in processes)
    jumps = [np.any(np.diff(p.rewards[-1, 0]) == 0) for p in processes]
    assert 5 < sum(jumps) < 35
    assert {bool(np.array_equal(p.rewards[0, 0], p.rewards[0, 1])) for p in processes} == {0, 1}
    for shape in SHAPES:
        assert np.all(np.diff(shape(TAU)) >= 0)


def test_transitions_follow_the_probabilities() -> None:
    seed = next(s for s in range(40) if 0 < draw_process(s).leads.sum(1).min() < 1)
    process, problem = draw_process(seed), random_problem(seed)
    batch, _ = problem.draw(100_000, np.random.default_rng(0))
    for state, leads in enumerate(process.leads):
        here = batch.obs[:, state] == 1
        goes_on = batch.discount[here] > 0
        assert goes_on.float().mean() == pytest.approx(leads.sum(), abs=0.02)
        then = (batch.next_obs[here] * goes_on[:, None]).mean(0)
        assert then.numpy() == pytest.approx(leads, abs=0.02)


def test_ranges_are_written_out() -> None:
    assert read_problems(["two-point", "random:8..10"]) == (
        "two-point",
        *(f"random:{i}" for i in (8, 9, 10)),
    )
    assert read_problems(["random:7", "random:7..8"]) == ("random:7", "random:8")
    assert problem_of("random:7").name == "random:7"


@pytest.mark.parametrize(
    "text", ["random:9..8", "random:", "random:x", "random:-1", "random:0..99999"]
)
def test_ranges_that_name_nothing_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="task"):
        read_problems([text])


def results(**w1: list[float | None]) -> list[dict]:
    """Cells of entrants on problems whose deviation is 50."""
    return [
        {"entrant": e, "problem": f"random:{i}", "seed": 0}
        | {"figures": {"w1": w, "mean_error": 0.5, "std": 50.0, "updates_per_second": 100.0}}
        for e, values in w1.items()
        for i, w in enumerate(values)
    ]


def test_the_overview_compares_problem_by_problem() -> None:
    best, worst = compare(results(ours=[3.0, 2.0, 1.0], theirs=[2.0, 1.0, 0.5]))
    assert (best["entrant"], best["against"], best["best_on"]) == ("theirs", "ours", 3)
    assert best["w1"] == pytest.approx(100 * 3.5 / 3 / 50)
    mean, low, high = best["gap"]
    assert mean == pytest.approx(best["w1"] - worst["w1"])
    assert low < mean < high < 0
    assert worst["gap"] is None
    assert best["mean_error"] == pytest.approx(1)
    assert best["ms_per_update"] == pytest.approx(10)


def test_an_entrant_that_diverged_comes_last_without_a_gap() -> None:
    first, last = compare(results(ours=[3.0, None], theirs=[2.0, 1.0]))
    assert (first["entrant"], last["entrant"]) == ("theirs", "ours")
    assert (first["gap"], last["w1"]) == (None, None)


@pytest.mark.parametrize("n_problems", [2, 6, 40])
def test_the_interval_covers_as_often_as_it_says(n_problems: int) -> None:
    rng, hits = np.random.default_rng(0), 0
    for _ in range(1000):
        interval = paired_interval(rng.normal(1, 2, n_problems))
        assert interval is not None
        _, low, high = interval
        hits += low < 1 < high
    assert 929 <= hits <= 971  # Three standard errors.


def test_one_problem_has_no_interval() -> None:
    assert paired_interval(np.array([1.2])) is None


def test_nobody_is_best_where_all_diverged() -> None:
    rows = compare(results(ours=[None, 2.0], theirs=[None, 1.0]))
    assert {row["entrant"]: row["best_on"] for row in rows} == {"ours": 0, "theirs": 1}


@pytest.mark.parametrize("seed", [1014, 1161, 2354])
def test_all_but_certain_returns_are_drawn_again(seed: int) -> None:
    process = draw_process(seed)
    assert Grid.over(process).step < 2e-3 * moments(process)[1][0]


def test_the_league_plays_random_problems(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--critics", "dbc", "cdq", "--tasks", "random:1000..1008", "--seeds", "0"]
    words += ["--updates", "2", "--batch", "8", "--out", str(tmp_path)]
    assert main(["league", *words]) == 0
    out = capsys.readouterr().out
    assert "9 problems" in out
    assert "more than dbc" in out
    assert "random:1000" in (tmp_path / "league.md").read_text()
    assert (tmp_path / "distances.png").read_bytes()[:4] == b"\x89PNG"
