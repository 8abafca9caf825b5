"""Known optima under measures of risk, to go and of the whole, and agents that find them."""

import json
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from bridgerl.cli.main import main
from bridgerl.envs.target_return import counted
from bridgerl.truth.gambles import (
    LOST,
    STAKE,
    WON,
    actions_of,
    best_action,
    best_action_after_a_loss,
    learn,
    pay,
    run_gamble,
    two_steps,
)
from bridgerl.truth.problems import Problem, Transition
from bridgerl.truth.settings import ADVISERS, GAMBLERS, GambleCell

OPTIMA = {"mean": 1, "cvar:0.5": 0.627, "cvar:0.25": 0.393, "cvar:0.1": 0.285}
OPTIMA |= {"wang:0.75": 0.667, "mean-std:0.75": 0.667, "entropic:0.5": 0.464}


def learnt(problem: Problem, critic: str, measure: str) -> list[float]:
    """The actions that TD3 learns in every state."""
    return actions_of(learn(problem, GambleCell.of("td3", critic, measure)), problem)


@pytest.mark.parametrize(("measure", "best"), OPTIMA.items())
def test_optima_are_those_of_the_formula(measure: str, best: float) -> None:
    assert best_action(measure) == pytest.approx(best, abs=0.003)


def test_after_a_loss_the_whole_return_asks_for_more_courage() -> None:
    # The worst quarter of all cases is the worse half of those after a loss.
    assert best_action_after_a_loss("cvar:0.25") == pytest.approx(0.627, abs=0.003)
    assert best_action_after_a_loss("cvar:0.5") > 0.95
    assert best_action("cvar:0.25") == pytest.approx(0.393, abs=0.003)


@pytest.mark.parametrize("measure", ["mean", "cvar:0.25"])
def test_an_agent_learns_the_optimum(measure: str) -> None:
    found = run_gamble(GambleCell.of("td3", "dsac", measure, updates=1_200))
    assert found["action"] == pytest.approx(best_action(measure), abs=0.05)
    assert found["miss"] == abs(found["action"] - found["best"])


@pytest.mark.slow
@pytest.mark.parametrize("critic", ADVISERS)
@pytest.mark.parametrize("actor", GAMBLERS)
@pytest.mark.parametrize("measure", ["cvar:0.1", "wang:0.75"])
def test_every_pair_learns_the_optimum(actor: str, critic: str, measure: str) -> None:
    assert run_gamble(GambleCell.of(actor, critic, measure))["miss"] < 0.05


def test_of_two_steps_an_agent_minds_the_return_to_go() -> None:
    actions = learnt(two_steps(), "dsac", "cvar:0.25")
    for state in (LOST, WON):
        assert actions[state] == pytest.approx(best_action("cvar:0.25"), abs=0.08)
    assert abs(actions[LOST] - best_action_after_a_loss("cvar:0.25")) > 0.1


def target_of(share: float) -> float:
    """The quantile at `share` of the whole return, when the action after a loss is the static one.

    The worst cases all lie after a loss: its own worst 2 * share are the worst share of all.
    """
    best, noise = best_action(f"cvar:{2 * share:g}"), NormalDist().inv_cdf(2 * share)
    return float(pay(np.array(best), np.array(noise))) - STAKE


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4])
def test_the_best_target_is_the_quantile_of_the_whole_return(share: float) -> None:
    noise = np.array([NormalDist().inv_cdf((i + 0.5) / 500) for i in range(500)])
    payoffs = pay(np.linspace(0, 1, 501)[:, None], noise)

    def worth(b: float) -> float:
        """B - E(b - G)+ / share, the action after either side of the coin being the best for it."""
        missing = (b + STAKE, b - STAKE)
        short = [np.maximum(m - payoffs, 0).mean(1).min() for m in missing]
        return b - float(np.mean(short)) / share

    tried = np.linspace(-30, 30, 121)
    best = tried[np.argmax([worth(float(b)) for b in tried])]
    assert best == pytest.approx(target_of(share), abs=0.3)


@pytest.mark.parametrize("critic", ["cdq", "dbc"])
def test_a_mean_that_counts_up_to_the_target_is_the_static_answer(critic: str) -> None:
    coin, target = two_steps(), target_of(0.25)
    after = (target - np.array([0.0, -STAKE, STAKE])) / (1.0, coin.discount, coin.discount)

    def step(state: Any, action: Any, rng: np.random.Generator) -> Transition:
        out = coin.step(state, action, rng)
        return out._replace(reward=counted(after[state], out.reward))

    actions = learnt(replace(coin, step=step), critic, "mean")
    assert actions[LOST] == pytest.approx(best_action_after_a_loss("cvar:0.25"), abs=0.05)


def test_the_verb_prints_a_table_and_refuses_critics_without_a_distribution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ["--actors", "td3", "--critics", "dsac", "--measures", "cvar:0.1", "--updates", "2"]
    assert main(["gamble", *small, "--seeds", "0"]) == 0
    shown = capsys.readouterr().out
    assert "optimum" in shown
    assert "0.285" in shown
    assert main(["gamble", *small, "--seeds", "0", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["measure"] == "cvar:0.1"
    assert len(row["learnt"]) == 2
    assert main(["gamble", "--critics", "cdq"]) == 2
    assert "knows no distribution; these do: dsac, iqn" in capsys.readouterr().err
