"""A slice of the chaos suite with a fixed seed, and that it would see what it looks for."""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridgerl.runs import segments
from chaos import files, worker
from chaos.__main__ import main
from chaos.attempt import Attempt, Place, Silent, Twin, Untried
from chaos.faults import FAULTS, Fault
from chaos.strangers import SMALL, spoil
from chaos.tally import Row, Tally, table, total
from chaos.worker import attempt, most_due, open_place
from runs.tiny_runs import Runs

BY_NAME = {fault.name: fault for fault in FAULTS}
# Kills of studies take a minute and have tests of their own.
SLICE = {name: 1 for name in BY_NAME if name != "kills of studies"}
SLICE |= {"forged folders": 5, "bad command lines": 4, "faulty environments": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    before = segments.SEGMENT_ROWS
    with open_place(tmp_path_factory.mktemp("chaos")) as opened:
        yield opened
    segments.SEGMENT_ROWS = before


@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_chaos_breaks_no_promise(
    place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH", 10)
    for number in range(SLICE[name]):
        row = attempt(place, BY_NAME[name], "slice", number)
        if row.note:
            pytest.skip(row.note)
        assert (row.silent, row.loud) == ([], [])
        assert row.tries > 0


def test_a_run_that_ends_with_other_bits_is_a_silent_failure(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Runs(place.warm, place.workbench / "other")
    assert other.train(seed="1").code == 0
    monkeypatch.setattr(Place, "twin", lambda self: Twin(other.folder, 1.0))
    row = attempt(place, BY_NAME["clock jumps"], "slice", 0)
    assert (row.tries, row.loud) == (1, [])
    assert "config seed: 0 against 1" in row.silent[0]
    assert list(place.failures.glob("clock-jumps-0/*/*/seed0"))


def test_a_process_that_is_killed_at_once_is_no_failure(place: Place) -> None:
    for _ in range(5):
        process = place.warm.start("list")
        process.send(signal.SIGKILL)
        assert process.wait().code in (0, -signal.SIGKILL)


def fake(name: str, share: float, outcome: Exception | None = None) -> Fault:
    def act(made: Attempt) -> None:
        made.row.recovered += 1
        if outcome is not None:
            raise outcome

    return Fault(name, share, act)


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (None, (1, 0, 0, "")),
        (Silent("wrong"), (1, 1, 0, "")),
        (AssertionError("odd"), (1, 0, 1, "")),
        (Untried("no disk"), (1, 0, 0, "no disk")),
    ],
)
def test_what_an_attempt_raises_decides_its_column(
    place: Place, outcome: Exception | None, counts: tuple[int, int, int, str]
) -> None:
    row = attempt(place, fake("it", 1.0, outcome), "seed", 3)
    assert (row.recovered, len(row.silent), len(row.loud), row.note) == counts


def test_what_does_not_end_is_a_failure(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LIMIT", 0.05)
    row = attempt(place, Fault("it", 1.0, lambda made: time.sleep(60)), "seed", 0)
    assert row.loud == ["attempt 0: Hung no end within 0.05 seconds"]
    assert place.is_stuck
    place.is_stuck = False


def test_every_fault_gets_its_share_of_the_time(tmp_path: Path) -> None:
    faults, tally = [fake("a", 0.75), fake("b", 0.25)], Tally(tmp_path / "tally.json", {})
    for _ in range(8):
        tally.row(most_due(faults, tally).name).add(Row(attempts=1, seconds=1.0))
    assert [tally.row(name).attempts for name in "ab"] == [6, 2]


def test_a_dear_fault_waits_until_its_share_allows_for_it(tmp_path: Path) -> None:
    faults = [fake("dear", 0.5)._replace(cost=4.0), fake("cheap", 0.5)]
    tally, order = Tally(tmp_path / "tally.json", {}), []
    for _ in range(6):
        order.append(most_due(faults, tally).name)
        tally.row(order[-1]).add(Row(attempts=1, seconds=1.0 if order[-1] == "cheap" else 4.0))
    assert order == ["cheap"] * 4 + ["dear", "cheap"]


def test_the_table_adds_workers_up_and_lists_failures(tmp_path: Path) -> None:
    tallies = [Tally(tmp_path / f"{k}.json", {}) for k in range(2)]
    tallies[0].row("kills").add(Row(recovered=3, refused=1))
    tallies[1].row("kills").add(Row(recovered=2, silent=["attempt 7: another weight"]))
    text = table(total(tallies, ["kills", "disks"]))
    assert "| kills | 7 | 5 | 1 | 1 | 0 |" in text
    assert "| disks | 0 | 0 | 0 | 0 | 0 |" in text
    assert text.endswith("- kills: attempt 7: another weight")


def test_a_tally_is_taken_up_again_but_not_by_other_code(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "tally.json", {"source": "a"})
    tally.row("kills").add(Row(attempts=2, seconds=1.5, recovered=4, loud=["x"]))
    tally.save()
    again = Tally(tmp_path / "tally.json", {"source": "a"})
    assert (again.rows, again.seconds) == (tally.rows, 1.5)
    with pytest.raises(SystemExit, match="other code"):
        Tally(tmp_path / "tally.json", {"source": "b"})


def test_a_spoiled_command_is_another_one() -> None:
    rng, typed = random.Random(0), SMALL.split()
    assert sum(spoil(typed, rng) != typed for _ in range(200)) > 190


def test_a_killed_worker_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setattr(worker, "FAULTS", [fake("it", 1.0)])
    monkeypatch.setattr(worker, "open_place", lambda folder: contextlib.nullcontext(place))
    path, child = tmp_path / "tally.json", os.fork()
    if child == 0:
        worker.work(tmp_path, 0, 0, 600.0, ["it"])
        os._exit(1)
    while not path.exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    before = json.loads(path.read_bytes())["rows"]["it"]
    worker.work(tmp_path, 0, 0, before["seconds"] + 0.01, ["it"])
    after = json.loads(path.read_bytes())["rows"]["it"]
    assert after["attempts"] > before["attempts"] >= 1
    assert after["recovered"] == after["attempts"]


def test_a_session_ends_with_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = ["--only", "bad command lines", "--workers", "1", "--out", str(tmp_path)]
    assert main([*only, "--minutes", "0.001"]) == 0
    row = json.loads((tmp_path / "worker-0/tally.json").read_bytes())["rows"]["bad command lines"]
    counts = f"{row['attempts']} | {row['recovered']} | {row['refused']} | 0 | 0 |"
    assert f"| bad command lines | {counts}" in capsys.readouterr().out
    assert counts in (tmp_path / "chaos.md").read_text()
