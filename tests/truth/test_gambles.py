"""Known optima under measures of risk, to go and of the whole, and agents that find them."""

import json
from statistics import NormalDist

import numpy as np
import pytest

from bridgerl.cli.main import main
from bridgerl.truth.gambles import (
    ACTORS,
    CRITICS,
    LOST,
    STAKE,
    WON,
    best_action,
    best_action_after_a_loss,
    best_target,
    learn_actions,
    one_step,
    pay,
    two_steps,
    two_steps_to,
)

OPTIMA = {"mean": 1, "cvar:0.5": 0.627, "cvar:0.25": 0.393, "cvar:0.1": 0.285}
OPTIMA |= {"wang:0.75": 0.667, "mean-std:0.75": 0.667, "entropic:0.5": 0.464}


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
    (action,) = learn_actions(one_step(), ("td3", "dsac"), measure, updates=1_200)
    assert action == pytest.approx(best_action(measure), abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("actor", ACTORS)
@pytest.mark.parametrize("measure", ["cvar:0.1", "wang:0.75"])
def test_every_pair_learns_the_optimum(actor: str, critic: str, measure: str) -> None:
    (action,) = learn_actions(one_step(), (actor, critic), measure)
    assert action == pytest.approx(best_action(measure), abs=0.05)


def test_of_two_steps_an_agent_minds_the_return_to_go() -> None:
    actions = learn_actions(two_steps(), ("td3", "dsac"), "cvar:0.25", updates=2_000)
    for state in (LOST, WON):
        assert actions[state] == pytest.approx(best_action("cvar:0.25"), abs=0.08)
    assert abs(actions[LOST] - best_action_after_a_loss("cvar:0.25")) > 0.1


TARGETS = np.linspace(-30, 30, 121)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4])
def test_the_best_target_is_the_quantile_of_the_whole_return(share: float) -> None:
    target = best_target(share, TARGETS)
    # The worst cases lie after a loss: its own worst 2 * share are the worst share of all.
    best, noise = best_action(f"cvar:{2 * share:g}"), NormalDist().inv_cdf(2 * share)
    (edge,) = pay(np.array([best]), np.array([noise])) - STAKE
    assert target == pytest.approx(edge, abs=0.3)


@pytest.mark.parametrize("critic", ["cdq", "dbc"])
def test_a_mean_that_counts_up_to_the_target_is_the_static_answer(critic: str) -> None:
    problem = two_steps_to(best_target(0.25, TARGETS))
    actions = learn_actions(problem, ("td3", critic), "mean", updates=2_000)
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
