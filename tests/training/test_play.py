"""What a run left is used from Python: on a device, and for episodes as the command plays them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import bridgerl
from bridgerl import evaluate, load_agent, load_policy
from bridgerl.cli.main import main
from bridgerl.errors import UserError
from bridgerl.runs.folder import RunFolder
from runs.strangers import copy_run, make_run


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("point"))


@pytest.mark.parametrize("weights", ["best", "last"])
def test_episodes_from_python_are_those_of_the_command(
    point: Path, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--weights", weights, "--episodes", "3", "--seed", "5", "--json"]
    assert main(["evaluate", str(point), *words]) == 0
    typed = json.loads(capsys.readouterr().out)
    result = evaluate(str(point), "best" if weights == "best" else "last", episodes=3, seed=5)
    assert (result.returns, result.lengths) == (typed["returns"], typed["lengths"])
    assert (result.mean, result.std) == (typed["mean"], typed["std"])
    assert len(result.returns) == 3


REFUSED = {
    "no episodes": ({"episodes": 0}, "--episodes must be at least 1, got 0"),
    "seed": ({"seed": -1}, "--seed must be from 0"),
    "weights": ({"weights": "lats"}, "unknown weights 'lats'; did you mean last?"),
    "a step": ({"weights": 3000}, "unknown weights 3000 (known: best, last)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_played_is_refused(point: Path, case: str) -> None:
    how, says = REFUSED[case]
    with pytest.raises(UserError) as caught:
        evaluate(point, **how)
    assert says in str(caught.value)


@pytest.mark.parametrize("load", [load_agent, load_policy, evaluate])
def test_a_path_that_is_no_run_is_told_as_such_and_names_a_run_inside(
    load: Callable[[Path], object], point: Path, tmp_path: Path
) -> None:
    for wrong in (tmp_path / "nope", tmp_path):
        with pytest.raises(UserError, match=r"is not a run folder: it has no config.json$"):
            load(wrong)
    with pytest.raises(UserError, match=re.escape(f"config.json; did you mean {point}?")):
        load(point.parents[1])


def test_a_run_is_loaded_onto_a_device(point: Path, tmp_path: Path) -> None:
    run = copy_run(point, tmp_path)
    _, step = load_agent(run)
    RunFolder(run).write_calibration({"step": step, "shifts": [0.0, 1.0]})
    agent, _ = load_agent(run, device="cpu")
    assert agent.shifts is not None
    devices = {t.device for t in (*agent.state_dict().values(), agent.shifts)}
    assert devices == {torch.device("cpu")}
    obs = torch.zeros(3)
    assert load_policy(run, device="cpu")(obs).tolist() == load_policy(run)(obs).tolist()


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "meta"])
@pytest.mark.parametrize("load", ["load_agent", "load_policy"])
def test_a_device_that_is_not_there_is_refused(load: str, device: str, point: Path) -> None:
    with pytest.raises(UserError, match=r'try device="cpu"$') as caught:
        getattr(bridgerl, load)(point, device=device)
    assert device in str(caught.value)
    assert "\n" not in str(caught.value)
