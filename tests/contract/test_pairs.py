"""All pairs of actor and critic train from the command line on a real MuJoCo task."""

import json
import warnings
from pathlib import Path

import pytest

from bridgerl.cli.main import main
from bridgerl.testing import PAIRS

SHORT = (
    "--steps 1040 --train.batch-size 32 --train.buffer-size 2000 --eval.episodes 2 "
    "--save.every 520 --log.every 20 --log.no-tensorboard"
).split()


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_every_pair_trains_on_the_pendulum_without_a_warning(
    actor: str, critic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = ["--env", "InvertedPendulum-v5", "--actor", actor, "--critic", critic]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = main(["train", *pair, *SHORT, "--out", str(tmp_path)])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "warning" not in (out + err).lower()
    (metrics,) = tmp_path.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    last = [row for row in rows if "critic/loss" in row][-1]
    assert last["step"] == 1040
    assert all(value is not None for value in last.values())
    assert {"actor/loss", "critic/grad_norm", "critic/q_over_bound"} <= set(last)
