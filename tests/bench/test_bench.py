"""What the bench measures, on small pairs: parts add up, FLOPs are right, peers take part."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from bridgerl.bench.clock import PARTS, Clock, Flops, Setting
from bridgerl.bench.ours import folderless, isolated, measure
from bridgerl.bench.table import contenders, run_bench
from bridgerl.cli.entrants import read_pair
from bridgerl.cli.main import main
from bridgerl.errors import BridgeError, UserError

ENV = "InvertedPendulum-v5"
SETTING = Setting(ENV, batch=32, threads=1, seconds=0.05)


@pytest.fixture(autouse=True)
def _keep_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured here and not in a process of its own, so that the test's cores stay its own."""
    monkeypatch.setattr(Setting, "pin", lambda self: None)


def test_a_part_within_a_part_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 2.0, 5.0, 5.5])
    monkeypatch.setattr("bridgerl.bench.clock.time.perf_counter", lambda: next(moments))
    clock = Clock()
    with clock.part("backward"), clock.part("optimiser"):
        pass
    assert clock.spent["optimiser"] == 3.0
    assert clock.spent["backward"] == 2.5
    assert sum(clock.spent.values()) == 5.5


@pytest.mark.parametrize("text", ["sac+cdq", "td3+dbc", "qvpo+tqc", "sac+vf"])
def test_the_parts_of_a_step_add_up_to_the_step(text: str) -> None:
    _, config = read_pair(f"{text} --hidden 16 16", ENV)

    def covered(row: dict[str, float]) -> float:
        """Share of a step that its parts account for; another program may take time between."""
        return sum(row[f"{part}_ms"] for part in PARTS) * row["steps_per_second"] / 1e3

    row = max((measure(config, SETTING) for _ in range(3)), key=covered)
    assert covered(row) == pytest.approx(1, rel=0.25)
    assert all(row[f"{part}_ms"] > 0 for part in PARTS)
    assert 0 < row["peak_share"] < 1


def test_flops_are_those_of_every_matrix_product() -> None:
    row = measure(read_pair("sac+cdq --hidden 32 32", ENV)[1], SETTING)
    b, x, o, a, w, p = 32, 5, 4, 1, 32, 128
    critic = 2 * b * (x * w + w * w + w)  # One head, one way.
    policy = 2 * b * (o * p + p * p + 2 * a * p)
    # Two heads: target; online there and back, without a slope in (s, a); under the actor there and
    # back to the action. The policy: at s', at s, and back without a slope in s.
    back = 2 * critic - 2 * b * x * w
    heads = 2 * (critic + critic + back + critic + critic)
    expected = heads + 2 * policy + (2 * policy - 2 * b * o * p)
    assert row["gflop"] == pytest.approx(expected / 1e9, rel=1e-6)


@pytest.mark.parametrize("words", ["sac+cdq", "td3+dbc"])
def test_flops_are_those_that_torch_counts(words: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    _, config = read_pair(f"{words} --hidden 16 16", ENV)
    with folderless(config) as (state, act_at_random, _):
        for _ in range(40):
            act_at_random()
        batch = state.replay.sample(32, state.streams("replay", "cpu"))
        with FlopCounterMode(display=False) as torchs, Flops() as ours:
            state.agent.update(batch)
    assert ours.total == torchs.get_total_flops() > 0


def _fail(how: str) -> None:
    if how == "bug":
        raise ZeroDivisionError("by a measure")
    if how == "refusal":
        raise UserError("no such thing")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("bug", "sac+vf cannot be measured: ZeroDivisionError: by a measure"),
        ("refusal", "no such thing"),
        ("kill", "sac+vf: its process was killed"),
    ],
)
def test_a_measurement_that_fails_is_one_line(
    how: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BridgeError, match=re.escape(says)) as failed:
        isolated("sac+vf", _fail, how)
    assert failed.value.exit_code == (2 if how == "refusal" else 1)
    assert capfd.readouterr().err == ""


def test_a_peer_is_measured_beside_ours_at_equal_sizes() -> None:
    pytest.importorskip("stable_baselines3")
    import sys

    pairs = dict(read_pair(text, ENV) for text in ("sac+cdq", "sac+cdq --preset paper"))
    rivals = contenders(pairs, Path(sys.executable))
    peers = [r for r in rivals if r.peer_of is not None]
    assert ("stable-baselines3 SAC", "sac+cdq") in [(r.label, r.peer_of) for r in peers]
    # The paper's critic is wider than its policy; no peer has such a shape.
    assert all(r.peer_of == "sac+cdq" for r in peers)
    first = next(r for r in peers if r.label.startswith("stable-baselines3"))
    rows = run_bench([rivals[0], first], [SETTING], 1, lambda: None)
    speed = [row["steps_per_second"] for row in rows]
    assert rows[1]["ours_over_it"] == pytest.approx(speed[0] / speed[1])


def test_the_verb_writes_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"bench --env {ENV} --pairs sac+cdq --batch 32 --seconds 0.05 --repeats 1 --json"
    assert main([*words.split(), "--peers", "python3", "--out", str(tmp_path / "b")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "b/bench.json").read_text()) == printed
    assert printed["rows"][0]["label"] == "sac+cdq"
    assert (tmp_path / "b/bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dbc", "needs an actor and a critic, e.g. sac+dbc"),
        ("sax+dbc", "unknown actor 'sax'; did you mean sac?"),
        ("sac+dbd", "unknown critic 'dbd'; did you mean dbc?"),
        ("sac+dbc --preset", "--preset needs a value"),
        ("sac+dbc --bridge-step 3", "did you mean --bridge-steps"),
    ],
)
def test_a_pair_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        read_pair(text, ENV)
    assert says in str(refused.value)


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(UserError, match="needs as many cores"):
        _ = Setting(ENV, 32, threads=4096, seconds=1.0).cores
