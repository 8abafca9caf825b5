"""The meter of a critic's honesty: which returns it trusts, what it counts, what it prints."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bridgerl.cli.main import main
from bridgerl.config import EvalConfig, TrainConfig
from bridgerl.envs.task import Outcome
from bridgerl.errors import UserError
from bridgerl.truth.values import comparable, compare, describe, measure, soft_returns
from bridgerl.types import Bootstrap
from conftest import TINY, Run

Capture = pytest.CaptureFixture[str]

PENDULUM = (
    "train --env InvertedPendulum-v5 --actor sac --critic dbc --steps 300 --train.warmup 100 "
    "--train.batch-size 32 --train.buffer-size 1000 --actor.hidden 16 --critic.hidden 16 "
    "--eval.every 300 --eval.episodes 1 --save.every 300 --log.no-tensorboard --quiet"
).split()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on the pendulum, whose episodes end by falling."""
    out = tmp_path_factory.mktemp("values")
    assert main([*PENDULUM, "--out", str(out)]) == 0
    return out / "InvertedPendulum-v5" / "sac-dbc-lite" / "seed0"


def slow_return(reward: np.ndarray, cost: np.ndarray, discount: float, t: int, n: int) -> float:
    """The sum that the recursion stands for: rewards from t on, prices at t + n, t + 2 n, ..."""
    paid = sum(discount ** (k - t) * reward[k] for k in range(t, len(reward)))
    return paid - sum(discount ** (k - t) * cost[k] for k in range(t + n, len(reward), n))


@pytest.mark.parametrize("n_step", [1, 3, 50])
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99])
def test_soft_returns_are_discounted_sums_without_the_price_of_the_first_action(
    discount: float, n_step: int
) -> None:
    draws = np.random.default_rng(0)
    reward, cost = draws.normal(size=(2, 40))
    g = soft_returns(reward, cost, discount, n_step)
    assert g == pytest.approx([slow_return(reward, cost, discount, t, n_step) for t in range(40)])


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.99])
def test_every_step_counts_after_an_end_and_only_early_ones_before_a_time_limit(
    discount: float,
) -> None:
    assert comparable(500, discount, 1000, terminated=True).all()
    wanted = [discount ** (500 - t) <= 0.01 for t in range(500)]
    assert comparable(500, discount, 1000, terminated=False).tolist() == wanted


def test_steps_near_the_time_limit_count_neither_with_a_fall_nor_without() -> None:
    for terminated in (True, False):
        kept = comparable(990, 0.99, 1000, terminated=terminated)
        assert kept.sum() == (542 if terminated else 532)
        assert not kept[542:].any()


def test_an_exact_critic_of_a_walker_that_may_fall_shows_no_bias() -> None:
    discount, fall, limit = 0.99, 0.001, 1000
    value = 1 / (1 - discount * (1 - fall))
    draws, errors = np.random.default_rng(0), []
    for _ in range(3000):
        n = min(int(draws.geometric(fall)), limit)
        g = soft_returns(np.ones(n), np.zeros(n), discount)
        kept = comparable(n, discount, limit, terminated=n < limit)
        errors += [value - g[kept]]
    assert abs(np.concatenate(errors).mean()) < 0.01 * value


def test_a_short_episode_that_was_cut_off_has_nothing_to_compare() -> None:
    assert not comparable(458, 0.99, 10_000, terminated=False).any()
    assert comparable(459, 0.99, 10_000, terminated=False).sum() == 1


def test_figures_of_a_small_case_by_hand() -> None:
    q, g = np.array([1.0, 2.0, 3.0, 6.0]), np.array([0.0, 2.0, 4.0, 2.0])
    low, high = np.array([0.0, 2.5, 3.0, 0.0]), np.array([1.0, 3.0, 4.0, 1.0])
    figures = compare(q, g, low, high)
    assert figures == {
        "steps": 4,
        "q_mean": 3.0,
        "return_mean": 2.0,
        "q_bias": 1.0,
        "relative_q_bias": 0.5,
        "rmse": pytest.approx(math.sqrt(18 / 4)),
        "correlation": pytest.approx(4 / math.sqrt(14 * 8)),
        "coverage": 0.5,  # Bounds belong to the interval.
    }
    assert describe(figures) == (
        "values: Q 3.0 against discounted Monte-Carlo returns 2.0, value bias +1.0 (50.0 %), "
        "correlation 0.38, 80 % interval covers 50 % (4 steps)"
    )


def test_a_calibrated_law_covers_four_fifths() -> None:
    g = np.random.default_rng(0).normal(5.0, 2.0, 20_000)
    bound = 2.0 * 1.2815515655  # The normal quantile at 0.9.
    figures = compare(np.full(g.shape, 5.0), g, 5.0 - bound + 0 * g, 5.0 + bound + 0 * g)
    assert figures["coverage"] == pytest.approx(0.8, abs=0.01)
    assert figures["q_bias"] == pytest.approx(0.0, abs=0.05)
    assert figures["rmse"] == pytest.approx(2.0, abs=0.05)


def test_figures_without_a_meaning_are_left_out() -> None:
    q, zero = np.full(3, 0.1), np.zeros(3)
    figures = compare(q, zero, q, q)
    assert [figures[k] for k in ("relative_q_bias", "correlation", "coverage")] == [None] * 3
    said = "values: Q 0.1 against discounted Monte-Carlo returns 0.0, value bias +0.1 (3 steps)"
    assert describe(figures) == said


def test_a_law_whose_quantiles_cross_covers_nothing_rather_than_being_no_law() -> None:
    g = np.arange(3.0)
    assert compare(g, g, g + 1, g - 1)["coverage"] == 0.0


class Corridor:
    """Ten steps of reward 1, then an end, a time limit or a fault of MuJoCo; obs says the step."""

    def __init__(self, **last: bool) -> None:
        ending = {"terminated": False, "truncated": False, "diverged": False, **last}
        self._last = Outcome(np.zeros(1, np.float32), 1.0, **ending)
        self.time_limit = None
        self.actions: list[np.ndarray] = []

    def reset(self, *key: int) -> np.ndarray:
        self.actions = []
        return np.zeros(1, np.float32)

    def step(self, action: np.ndarray) -> Outcome:
        self.actions.append(action)
        n = len(self.actions)
        here = np.full(1, n, np.float32)
        return self._last if n == 10 else Outcome(here, 1.0, False, False, False)


class Priced:
    """An agent whose every action costs the same, and whose values know what follows."""

    device = torch.device("cpu")

    def __init__(self, discount: float, cost: float, too_high: float = 0.0) -> None:
        self._discount, self._cost, self._too_high = discount, cost, too_high

    def bootstrap(self, obs: Tensor) -> Bootstrap:
        return Bootstrap(obs, torch.full((1,), self._cost))

    def q(self, obs: Tensor, action: Tensor) -> Tensor:
        steps, powers = 10 - obs[:, 0], self._discount
        paid = (1 - powers**steps) / (1 - powers)
        return paid - self._cost * (paid - 1) + self._too_high

    def quantiles(self, obs: Tensor, action: Tensor, tau: Tensor) -> Tensor:
        return self.q(obs, action)[:, None] + 10 * (tau - 0.5)


def figures_of(agent: Priced, task: Corridor, discount: float) -> dict[str, Any]:
    few, train = EvalConfig(episodes=2), TrainConfig(discount=discount)
    stand_ins: list[Any] = [agent, task, SimpleNamespace(eval=few, train=train)]
    return measure(*stand_ins)


@pytest.mark.parametrize("cost", [0.0, 0.3])
def test_a_critic_that_knows_the_soft_value_has_no_bias(cost: float) -> None:
    figures = figures_of(Priced(0.9, cost), Corridor(terminated=True), 0.9)
    assert (figures["episodes"], figures["steps"]) == (2, 20)
    assert figures["q_bias"] == pytest.approx(0.0, abs=1e-5)
    assert figures["correlation"] == pytest.approx(1.0)
    assert figures["coverage"] == 1.0


def test_a_critic_that_promises_too_much_is_found_out() -> None:
    figures = figures_of(Priced(0.9, 0.3, too_high=5.0), Corridor(terminated=True), 0.9)
    assert figures["q_bias"] == pytest.approx(5.0, abs=1e-5)
    assert figures["rmse"] == pytest.approx(5.0, abs=1e-5)
    assert figures["coverage"] == 0.0


@pytest.mark.parametrize(
    "last", [{"truncated": True}, {"terminated": True, "truncated": True, "diverged": True}]
)
def test_a_time_limit_and_a_fault_of_mujoco_leave_the_tail_unknown(last: dict[str, bool]) -> None:
    figures = figures_of(Priced(0.5, 0.0), Corridor(**last), 0.5)
    assert figures["steps"] == 2 * 4  # 0.5 ** 7 is the first power below 0.01.


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """A command in this process leaves torch's threads alone."""
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads


def test_evaluate_says_in_words_how_honest_the_values_are(run: Path, capsys: Capture) -> None:
    assert main(["evaluate", str(run), "--episodes", "3"]) == 0
    plain = capsys.readouterr().out
    assert main(["evaluate", str(run), "--episodes", "3", "--values"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(plain)  # The episodes without noise are the same ones.
    (line,) = out.removeprefix(plain).splitlines()
    assert line.startswith("values: Q ")
    assert "80 % interval covers" in line
    left = json.loads((run / "values.json").read_text())
    assert f"value bias {left['q_bias']:+.1f}" in line
    assert left["weights"] == "best"


def test_values_are_finite_and_repeat_in_another_process(
    run: Path, cli: Run, capsys: Capture
) -> None:
    command = ["evaluate", str(run), "--episodes", "3", "--values", "--json"]
    assert main(command) == 0
    here = capsys.readouterr().out
    assert cli(*command).stdout == here
    values = json.loads(here)["values"]
    assert values["episodes"] == 3
    assert 0 <= values["coverage"] <= 1
    assert all(math.isfinite(value) for value in values.values())
    assert main([*command, "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["values"] != values


def short_run(env: str, out: Path, *more: str) -> str:
    words = [env if word == "toy_envs:Point-v0" else word for word in TINY]
    assert main([*words, *more, "--quiet", "--out", str(out)]) == 0
    return str(out / env.replace(":", "_") / "sac-cdq-lite" / "seed0")


def test_a_task_shorter_than_the_horizon_is_played_on_past_its_limit(
    tmp_path: Path, capsys: Capture
) -> None:
    run = short_run("toy_envs:Coin-v0", tmp_path)  # Never ends by itself, cut off after 20 steps.
    capsys.readouterr()
    assert main(["evaluate", run, "--episodes", "2", "--values", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    values = result["values"]
    assert result["lengths"] == [20, 20]
    assert (values["steps"], values["past_limit"], values["entropy"]) == (2 * 20, True, True)
    assert main(["evaluate", run, "--episodes", "2", "--values"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "against discounted Monte-Carlo returns with entropy" in line
    assert line.endswith("(40 steps, played on past the time limit)")


def test_where_no_return_is_known_the_plain_line_stays_and_one_line_says_why(
    tmp_path: Path, capsys: Capture
) -> None:
    run = short_run("toy_envs:Cutting-v0", tmp_path)
    capsys.readouterr()
    assert main(["evaluate", run, "--episodes", "1"]) == 0
    plain = capsys.readouterr().out
    assert main(["evaluate", run, "--episodes", "1", "--values"]) == 2
    out, err = capsys.readouterr()
    assert out == plain
    assert err.startswith("bridgerl: error: no values to compare: ")
    assert err.count("\n") == 1


def test_an_episode_without_a_comparable_step_is_passed_over() -> None:
    short = Corridor(truncated=True)
    with pytest.raises(UserError, match="no values to compare"):
        figures_of(Priced(0.99, 0.0), short, 0.99)
