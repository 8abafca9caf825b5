"""What happens to one job: it is run by its kind, and its end told in words, wherever it ran."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bridgerl.config import decode, decode_fields
from bridgerl.errors import BridgeError, Busy, StorageFault, printable
from bridgerl.runs import store
from bridgerl.runs.console import forgive_encodings
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.result import RESULT, Result, ResultCell, write_result
from bridgerl.runs.versions import versions
from bridgerl.studies.endpoint_bias import rule_name
from bridgerl.studies.evaluation import SCORES
from bridgerl.studies.jobs import Job, evaluation_cell, gamble_cell, job_from, league_cell
from bridgerl.training.loop import Stopped, train
from bridgerl.training.process import StopSignal
from bridgerl.truth.endpoint import error_table
from bridgerl.truth.evaluation import run_evaluation
from bridgerl.truth.gambles import WORTH_AT, run_gamble
from bridgerl.truth.league import run_cell
from bridgerl.truth.settings import EndpointConfig, ToyConfig
from bridgerl.truth.toy import run_toy

RETRIES = 5
"""Times a job whose process died is taken up again."""
GRACE = 30.0
"""Seconds that a job has to end after it was asked to, before its process is killed."""
Found = tuple[list[ResultCell], dict[str, Any]]
News = Literal["started", "waiting"]
"""What a job tells before its end."""
Tell = Callable[[News, str], None]


class JobEnd(NamedTuple):
    """How a job ended."""

    status: Literal["done", "failed", "stopped"]
    reason: str = ""


def run_job(job: Job) -> None:
    """Do a job, or what is left of it; Busy while another process has it under way."""
    if job.trains:
        train(decode(job.work), quiet=True)
        return
    store.make_folder(job.folder)
    lock = RunFolder(job.folder).lock()
    try:
        if not job.done():  # Another study may just have done it.
            cells, data = COMPUTE[job.kind](job)
            write_result(job.folder / RESULT, Result(job.identity, cells, data, versions()))
    finally:
        lock.release()


def _toy(job: Job) -> Found:
    data = run_toy(decode_fields(ToyConfig, job.work, "toy"))
    (run,) = data["runs"]
    rows = run["iterations"]
    keys = ("w1_share", "valley", "drift_kurtosis", "drift_bimodality")
    scores = {key: rows[-1][key] for key in keys}
    curve = [[row["k"], row["w1_share"]] for row in rows]
    return [ResultCell(job.setting, job.task, job.seed, scores, curve)], data


def _league(job: Job) -> Found:
    data = run_cell(league_cell(job))
    # Of the first query, at whole per cents.
    curve = [[x, z] for x, z in enumerate(data["curves"][0][::2]) if z is not None]
    return [ResultCell(job.setting, job.task, job.seed, data["figures"], curve)], data


def _evaluation(job: Job) -> Found:
    """Policies and their data lie beside the cells that share them."""
    cell = evaluation_cell(job)
    mark, shared = store.sha256(store.to_json(job.work["data"]))[:12], job.folder.parents[1]
    store.refuse_links(shared / f"policy-{mark}", shared)
    figures = run_evaluation(cell, shared / f"policy-{mark}")
    covered = {f"covers_{share}": value for share, value in figures["coverage"].items()}
    scores = {key: figures[key] for key in SCORES} | covered
    curve = [[(i + 0.5) / len(figures["pit"]), share] for i, share in enumerate(figures["pit"])]
    return [ResultCell(job.setting, job.task, job.seed, scores, curve)], figures


def _gamble(job: Job) -> Found:
    data = store.finite(run_gamble(gamble_cell(job)))
    scores = {key: data[key] for key in ("miss", "action")}
    worth = zip(WORTH_AT, data["worth"], strict=True)
    curve = [list(point) for point in worth if point[1] is not None]
    return [ResultCell(job.setting, job.task, job.seed, scores, curve)], data


def _endpoint(job: Job) -> Found:
    """The curve of a rule stands in its first cell; a logarithm has no place for rounding alone."""
    cells: list[ResultCell] = []
    for row in error_table(decode_fields(EndpointConfig, job.work, "endpoint")):
        name, percents = rule_name(row["rule"], row["schedule"]), row["percent"]
        curve = [] if row["rule"] == "exact" else [[m, percents[m]] for m in percents]
        for m, percent in percents.items():
            scores = {"percent": percent}
            cells.append(ResultCell(name, f"M = {m}", None, scores, curve, exact=True))
            curve = []
    return cells, {}


COMPUTE: dict[str, Callable[[Job], Found]] = {
    "toy": _toy,
    "league": _league,
    "evaluation": _evaluation,
    "gamble": _gamble,
    "endpoint": _endpoint,
}


def perform(text: str, tell: Tell = lambda _news, _reason: None) -> tuple[str, str]:
    """Run a job given as JSON; returns status and reason, and raises nothing."""
    try:
        job = job_from(json.loads(text))
        _run_when_free(job, tell)
    except Stopped as stop:
        return "stopped", str(stop)
    except BridgeError as error:
        return "failed", str(error)
    except KeyboardInterrupt:
        return "stopped", "interrupted"
    except Exception as error:
        traceback.print_exc()
        return "failed", printable(f"{type(error).__name__}: {' '.join(str(error).split())}")
    # A job that returns has done all it was asked for; its folder must say so too.
    return ("done", "") if job.done() else ("failed", f"{job.folder} has no result")


def _run_when_free(job: Job, tell: Tell) -> None:
    """Wait while another study has the same run under way, or the last one is still saving it."""
    told = set[News]()

    def tell_once(news: News, reason: str = "") -> None:
        if news not in told:
            told.add(news)
            tell(news, reason)

    while not job.done():  # Who had it under way may have done all of it.
        try:
            _require_free(RunFolder(job.folder))
            tell_once("started")
            return run_job(job)
        except Busy as busy:
            if "waiting" not in told:
                print(f"waiting: {busy}", file=sys.stderr, flush=True)
            tell_once("waiting", str(busy).partition(";")[0])
            time.sleep(1.0)


def _require_free(run: RunFolder) -> None:
    """Busy while another process has the folder; whatever else is wrong with it, the run says."""
    with contextlib.suppress(OSError):
        if run.lock_file.exists():
            run.lock().release()


def serve(calls: Connection) -> None:
    """A process of its own: jobs come through a pipe with a log each, and their ends go back."""
    # Ctrl-C is the parent's to hear; until here it was blocked, see `Pool`.
    os.setpgrp()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    StopSignal.together = 10.0
    forgive_encodings()
    threading.Thread(target=_stop_with_parent, daemon=True).start()

    def tell(news: str, reason: str) -> None:
        with contextlib.suppress(OSError):  # Nobody listens any more.
            calls.send((news, reason))

    while True:
        try:
            name, text, log = calls.recv()
        except (EOFError, OSError):
            return
        try:
            _print_to(log)
            status, reason = perform(text, tell)
            print(": ".join(filter(None, (name, status, reason))), flush=True)
        except StorageFault as fault:  # There is no log to tell it to.
            status, reason = "failed", str(fault)
        tell(status, reason)


def _stop_with_parent(grace: float = GRACE) -> None:
    """A run whose study is gone stops at its next step, after a checkpoint; other jobs at once.

    What has no next step, because its environment hangs, is killed after a grace period.
    """
    if parent := parent_process():
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)


def _print_to(path: Path) -> None:
    """Everything printed goes to a file; lines of several attempts follow each other."""
    sys.stdout.flush()
    sys.stderr.flush()
    with store.open_owned(path, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
