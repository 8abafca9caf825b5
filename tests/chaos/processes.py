"""Processes that race, stand still, or live under clocks that jump."""

import signal
import time

from bridgerl.runs.verify import verify
from chaos.attempt import Attempt, assert_ended, assert_killed, assert_refused, expect_same
from runs.tiny_runs import SEGMENT_ROWS, Runs


def race_writers(attempt: Attempt) -> None:
    """Several writers of one folder at once, one of them perhaps killed: one wins."""
    twin, runs = attempt.place.twin(), Runs(attempt.place.warm, attempt.folder)
    writers = []
    for _ in range(attempt.rng.randint(2, 6)):
        writers.append(runs.warm.start(*runs.command(), segment_rows=SEGMENT_ROWS))
        time.sleep(attempt.rng.choice([0.0, 0.0, 0.05]))
    killed = attempt.rng.choice([None, *writers])
    if killed is not None:
        time.sleep(attempt.rng.uniform(0.0, twin.seconds))
        killed.send(signal.SIGKILL)
    for writer in writers:
        ended = writer.wait()
        if ended.code == 2:
            assert_refused(ended, 2)
            assert "is being written by process" in ended.err, ended
            attempt.row.refused += 1
            continue
        if writer is killed and ended.code != 0:
            assert_killed(ended, runs.folder)
        else:
            assert_ended(ended)
        attempt.row.recovered += 1
    assert_ended(runs.train())
    expect_same(runs.folder, twin, f"{len(writers)} writers")


def stop_processes(attempt: Attempt) -> None:
    """Stop a run and let it go on, several times; perhaps kill it while it stands still."""
    twin, runs = attempt.place.twin(), Runs(attempt.place.warm, attempt.folder)
    process = runs.warm.start(*runs.command(), segment_rows=SEGMENT_ROWS)
    stops = attempt.rng.randint(2, 5)
    for _ in range(stops):
        time.sleep(attempt.rng.uniform(0.0, twin.seconds / stops))
        process.send(signal.SIGSTOP)
        time.sleep(attempt.rng.uniform(0.0, 0.2))
        process.send(signal.SIGCONT)
    if attempt.rng.random() < 0.3:
        process.send(signal.SIGSTOP)
        process.send(signal.SIGKILL)
    ended = process.wait()
    if ended.code != 0:
        assert_killed(ended, runs.folder)
        ended = runs.train()
    assert_ended(ended)
    expect_same(runs.folder, twin, f"{stops} stops")
    attempt.row.recovered += stops


def jump_clocks(attempt: Attempt) -> None:
    """Train while every clock that Python has jumps forth and back or stands still."""
    twin, runs = attempt.place.twin(), Runs(attempt.place.warm, attempt.folder)
    seed = attempt.rng.getrandbits(32)
    jumps = f"chaos.clocks:disturb:{seed}"
    ended = runs.warm.run(*runs.command(), segment_rows=SEGMENT_ROWS, prepare=jumps)
    assert_ended(ended)
    expect_same(runs.folder, twin, f"clocks of seed {seed}")
    verify(runs.folder)
    assert_ended(attempt.run("report", str(runs.folder)))
    attempt.row.recovered += 1
