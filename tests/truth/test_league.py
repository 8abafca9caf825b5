"""The league's problems have the distributions they claim, and its verdicts repeat."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from bridgerl.cli.entrants import read_entrant
from bridgerl.cli.main import main
from bridgerl.critics import CRITICS
from bridgerl.critics.base import Critic
from bridgerl.critics.cdq import CDQConfig
from bridgerl.critics.dbc import DBCConfig
from bridgerl.errors import StorageFault, UserError
from bridgerl.streams import Streams
from bridgerl.studies.run import pool
from bridgerl.truth import league
from bridgerl.truth.league import cramer, run_cell, summarise
from bridgerl.truth.problems import PROBLEMS, Problem, Query
from bridgerl.truth.settings import LeagueCell
from bridgerl.types import Batch, Bootstrap, Metrics
from conftest import started

TINY = {"updates": 4, "batch": 8}
QUERIES = [(name, i) for name, p in PROBLEMS.items() for i in range(len(p.queries))]
PNG = b"\x89PNG\r\n"


def cell(problem: str, critic: str, seed: int = 0, **budget: int) -> LeagueCell:
    """A critic as it is typed, with next to no budget."""
    entrant = read_entrant(critic)
    return LeagueCell(problem, entrant.critic, entrant.config, seed, **TINY | budget)


def _rollouts(problem: Problem, query: Query, n: int) -> np.ndarray:
    """Discounted returns of the uniform policy after the query's action."""
    rng = np.random.default_rng(0)
    state, action = np.full(n, query.state), np.full(n, query.action)
    total, weight = np.zeros(n), np.ones(n)
    for _ in range(60):
        out = problem.step(state, action, rng)
        total += weight * out.reward
        weight *= problem.discount * ~out.terminated
        state, action = out.next_state, rng.uniform(-1, 1, n)
    assert weight.max() < 1e-3
    return np.sort(total)


@pytest.mark.parametrize(("name", "i"), QUERIES)
def test_the_claimed_law_is_that_of_rollouts(name: str, i: int) -> None:
    problem, n = PROBLEMS[name], 40_000
    query = problem.queries[i]
    truth = query.quantile((np.arange(n) + 0.5) / n)
    assert np.all(np.diff(truth) >= 0)
    assert np.abs(_rollouts(problem, query, n) - truth).mean() < 0.02 * truth.std()


@pytest.mark.parametrize("name", PROBLEMS)
def test_returns_are_of_the_order_of_a_hundred(name: str) -> None:
    tau = (np.arange(1000) + 0.5) / 1000
    spreads = [q.quantile(tau).std() for q in PROBLEMS[name].queries]
    assert 40 < max(spreads) < 200


@pytest.mark.parametrize("name", PROBLEMS)
def test_batches_bootstrap_only_where_the_problem_goes_on(name: str) -> None:
    problem = PROBLEMS[name]
    batch, boot = problem.draw(256, np.random.default_rng(0))
    assert batch.obs.shape == batch.next_obs.shape == (256, problem.n_states)
    assert torch.equal(batch.obs.sum(1), torch.ones(256))
    assert set(batch.discount.tolist()) <= {0.0, float(np.float32(problem.discount))}
    assert batch.action.abs().max() <= 1
    assert boot.action.abs().max() <= 1
    assert not torch.equal(batch.action, boot.action)


@pytest.mark.parametrize("name", ["two-point", "heavy-tail", "risky-choice"])
def test_a_bandit_never_bootstraps(name: str) -> None:
    batch, _ = PROBLEMS[name].draw(256, np.random.default_rng(0))
    assert not batch.discount.any()


def test_the_coin_leads_to_two_other_states() -> None:
    batch, _ = PROBLEMS["stochastic-transition"].draw(512, np.random.default_rng(0))
    ahead = batch.next_obs[batch.obs[:, 0] == 1]
    assert not ahead[:, 0].any()
    assert 0.3 < ahead[:, 1].mean() < 0.7
    assert PROBLEMS["stochastic-transition"].queries[0].quantile(np.array([0.25])) == -99


def test_both_choices_have_the_same_mean_and_another_spread() -> None:
    tau = (np.arange(1000) + 0.5) / 1000
    safe, risky = (q.quantile(tau) for q in PROBLEMS["risky-choice"].queries)
    assert safe.mean() == pytest.approx(risky.mean())
    assert risky.std() == pytest.approx(10 * safe.std())


def test_the_excess_crps_is_the_energy_distance_by_halves() -> None:
    rng = np.random.default_rng(0)
    a, b = np.sort(rng.normal(0, 3, 60)), np.sort(rng.choice([-5.0, 5.0], 40))

    def gap(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.abs(x[:, None] - y).mean())

    assert cramer(a, b) == pytest.approx(gap(a, b) - gap(a, a) / 2 - gap(b, b) / 2)
    assert cramer(a, a) == 0


class Oracle(Critic):
    """Knows one law, shifted by a miss of its online network."""

    def __init__(self, problem: Problem, miss: float) -> None:
        super().__init__(CDQConfig(), torch.nn.Linear(1, 1))
        self._quantile, self._miss = problem.queries[0].quantile, miss

    def loss(self, batch: Batch, boot: Bootstrap) -> Tensor:
        raise NotImplementedError

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        raise NotImplementedError

    def particles(self, obs: Tensor, action: Tensor, n: int, *, target: bool = False) -> Tensor:
        z = self._quantile((np.arange(n) + 0.5) / n) + (0 if target else self._miss)
        return torch.tensor(z[::-1].copy())[None]


def test_a_critic_that_knows_the_law_is_measured_at_zero() -> None:
    problem = PROBLEMS["bernoulli-loop"]
    row = league.distances(Oracle(problem, 3.0), problem, problem.queries[0])
    assert row["w1"] == row["crps"] == row["mean_error"] == 0
    assert row["w1_online"] == pytest.approx(3)
    assert row["std"] == pytest.approx(200 / 12**0.5, rel=1e-3)


@pytest.mark.parametrize("critic", CRITICS)
def test_every_critic_can_play_every_problem(critic: str) -> None:
    for name, problem in PROBLEMS.items():
        result = run_cell(cell(name, critic))
        assert all(np.isfinite(v) for v in result["figures"].values())
        assert len(result["curves"]) == len(problem.queries)


def test_a_cell_repeats_and_another_seed_differs() -> None:
    def figures(seed: int) -> dict[str, float]:
        return run_cell(cell("two-point", "dbc", seed))["figures"]

    first, again, other = figures(0), figures(0), figures(1)
    for result in (first, again, other):
        del result["updates_per_second"]
    assert first == again != other


def test_a_point_mass_is_as_far_from_two_points_as_it_must_be() -> None:
    """CDQ's best W1 to +-100 is 100: it learns the mean, and shows what it cannot represent."""
    figures = run_cell(cell("two-point", "cdq --hidden 16", updates=50, batch=32))["figures"]
    assert figures["w1"] == pytest.approx(100, abs=1)
    assert figures["mean_error"] < 10


def test_an_entrant_is_written_as_in_train() -> None:
    entrant = read_entrant("printed = dbc --bridge-input label --hidden 8 8")
    assert entrant.label == "printed"
    assert isinstance(entrant.config, DBCConfig)
    assert (entrant.config.bridge_input, entrant.config.hidden) == ("label", (8, 8))
    paper = read_entrant("dbc --preset paper").config
    assert isinstance(paper, DBCConfig)
    assert (paper.network, paper.bridge_input, paper.drop) == ("mlp", "label", 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$x = cdq", "labels without $"),
        ("_x = cdq", "labels without $"),
        (" = cdq", "labels without $"),
        ("dbc --kappa 1 --kappa 2", "--kappa is given more than once"),
        ("dbc --kapa 1", "did you mean --kappa? (see bridgerl train --critic dbc --help)"),
        ("dbc --n-target 0", "--critic.n-target must be from 1"),
        ("dbc --help", "has no help"),
        ("dbc --preset", "--preset needs a value"),
        ("dbc --preset papr", "unknown preset 'papr'; did you mean paper?"),
    ],
)
def test_an_entrant_is_refused_in_words_of_train(text: str, words: str) -> None:
    with pytest.raises(UserError) as refusal:
        read_entrant(text)
    assert words in str(refusal.value)


def test_an_entrants_flags_may_be_those_of_train() -> None:
    assert read_entrant("dbc --critic.kappa 2 --preset=paper").config == (
        read_entrant("dbc --kappa 2 --preset paper").config
    )


def test_seeds_are_averaged_and_a_lost_one_is_not_hidden() -> None:
    def result(seed: int, w1: float | None) -> dict[str, Any]:
        return {"problem": "p", "entrant": "e", "seed": seed, "figures": {"w1": w1}}

    (row,) = summarise([result(0, 1.0), result(1, 3.0)])
    assert (row["w1"], row["w1_spread"]) == (2.0, pytest.approx(2**0.5))
    (row,) = summarise([result(0, 1.0), result(1, None)])
    assert league.figure(row, "w1") == "diverged"


def _play(folder: Path, *more: str) -> int:
    args = "--critics cdq --tasks two-point --seeds 0 --updates 4 --batch 8 --json".split()
    return main(["league", "--out", str(folder), *args, *more])


def test_a_league_is_not_played_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _play(tmp_path) == 0
    first = json.loads(capsys.readouterr().out)
    (cell,) = (tmp_path / "cells").glob("*/result.json")
    stamp = cell.stat().st_mtime_ns
    assert _play(tmp_path) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert cell.stat().st_mtime_ns == stamp
    assert "| cdq | 1" in (tmp_path / "league.md").read_text()
    assert json.loads((tmp_path / "league.json").read_text())["summary"] == first
    for name in ("quantiles.png", "distances.png", "cost.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)


def test_a_damaged_cell_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _play(tmp_path, "--no-plot") == 0
    (result,) = (tmp_path / "cells").glob("*/result.json")
    whole = result.read_bytes()
    forged = whole.replace(b'"seed": 0', b'"seed": 7')
    assert forged != whole
    for damaged in (whole[:40], b"{}", b"null", forged):
        result.write_bytes(damaged)
        assert _play(tmp_path, "--no-plot") == StorageFault.exit_code
        err = capsys.readouterr().err
        assert str(result) in err
        assert "delete it to run this cell again" in err


def test_pictures_of_other_results_do_not_stay(tmp_path: Path) -> None:
    assert _play(tmp_path) == 0
    assert _play(tmp_path, "--no-plot") == 0
    assert not list(tmp_path.glob("*.png"))


def test_critics_on_one_seed_see_the_same_data_and_are_tracked_at_their_cadence() -> None:
    seen: dict[str, list[Tensor]] = {}
    tracked: list[int] = []

    class Watching(Oracle):
        def __init__(self, name: str) -> None:
            super().__init__(PROBLEMS["two-point"], 0.0)
            self._seen = seen.setdefault(name, [])

        def update(self, batch: Batch, boot: Bootstrap) -> Metrics:
            torch.rand(len(seen))
            self._seen.append(batch.reward)
            return {}

        def update_target(self) -> None:
            tracked.append(len(self._seen))

    class Config(CDQConfig):
        def build(self, spec: Any, streams: Streams) -> Any:
            return Watching(f"{self.target_every}")

    for every, name in ((1, "cdq"), (2, "dbc")):
        run_cell(LeagueCell("two-point", name, Config(target_every=every), 5, **TINY))
    assert all(torch.equal(a, b) for a, b in zip(*seen.values(), strict=True))
    assert tracked == [1, 2, 3, 4, 2, 4]


@contextlib.contextmanager
def _league(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A league of an hour that ends with its test."""
    flags = "--critics cdq --tasks two-point --seeds 0 1 --updates 100000 --batch 8 --no-plot"
    command = [sys.executable, "-m", "bridgerl", "league", *flags.split(), "--out", str(folder)]
    with started(command, stderr=subprocess.PIPE, text=True) as running:
        yield running


def _workers(running: subprocess.Popen[str], known: int = 0) -> list[psutil.Process]:
    """Wait for a worker besides the known one."""
    parent = psutil.Process(running.pid)
    while True:
        time.sleep(0.1)
        for child in parent.children():
            with contextlib.suppress(psutil.Error):
                if child.pid != known and "spawn_main" in " ".join(child.cmdline()):
                    time.sleep(0.5)
                    return [child]


def _gone(workers: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(workers, timeout=10)
    return not [w for w in alive if w.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_league_that_was_stopped_goes_on_with_the_same_command(
    number: int, tmp_path: Path
) -> None:
    with _league(tmp_path) as running:
        workers = _workers(running)
        running.send_signal(number)
        _, err = running.communicate(timeout=60)
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert len(err.splitlines()) == 1
        assert "stopped after 0 of 2 cells; the same command goes on" in err
    assert _gone(workers)


def test_a_cell_whose_process_dies_is_taken_up_again(tmp_path: Path) -> None:
    with _league(tmp_path) as running:
        workers = _workers(running)
        workers[0].kill()
        workers += _workers(running, workers[0].pid)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "two-point/cdq/seed0: its process died (signal 9); it is taken up again" in err
    assert _gone(workers)


def test_cells_follow_each_other_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[pool._Worker] = []

    class Counted(pool._Worker):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(pool, "_Worker", Counted)
    words = "--critics cdq --tasks two-point --seeds 0 1 2 --updates 4 --batch 8 --no-plot".split()
    assert main(["league", "--out", str(tmp_path), *words]) == 0
    log = (tmp_path / "short-jobs.log").read_text()
    assert log.splitlines() == [f"two-point/cdq/seed{seed}: done" for seed in range(3)]
    assert len(made) == 1
    assert made[0].process.exitcode == 0
