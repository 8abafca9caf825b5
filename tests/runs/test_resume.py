"""A run that was killed, stopped, extended or short of disk ends with the very same bits."""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from bridgerl.actors import ACTORS
from bridgerl.critics import CRITICS
from bridgerl.runs import checkpoint, segments, store
from bridgerl.runs.checkpoint import Snapshot
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.tensors import pack
from bridgerl.runs.verify import compare, verify
from bridgerl.training.replay import Replay
from bridgerl.types import EnvSpec
from conftest import TINY, Run, environment, finished
from runs.tiny_runs import FLAGS, SEGMENT_ROWS, Runs, assert_same
from warm_process import WarmProcess

REFERENCES = ("sac", "td3")


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", SEGMENT_ROWS)


@pytest.fixture(scope="module")
def references(warm: WarmProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One uninterrupted run per actor."""
    found = {}
    for actor in REFERENCES:
        runs = Runs(warm, tmp_path_factory.mktemp(actor), actor)
        ended = runs.train()
        assert ended.code == 0, ended
        found[actor] = runs.folder
    return found


@pytest.fixture
def runs(warm: WarmProcess, tmp_path: Path) -> Runs:
    return Runs(warm, tmp_path / "out")


def training_state(run: Path) -> dict[str, Tensor]:
    """Weights, moments, generators and replay at the end; not the figures of the last log line."""
    path = RunFolder(run).last_weights()
    state = {
        k: v
        for k, v in checkpoint.load(RunFolder(run), path)[0].tensors.items()
        if k[:6] != "metric"
    }
    capacity = int(FLAGS["--train.buffer-size"])
    rows = checkpoint.replay_rows(RunFolder(run), path, capacity)
    return {**state, "replay": torch.cat([r for _, r in rows])}


def assert_same_training(a: Path, b: Path) -> None:
    one, two = training_state(a), training_state(b)
    assert set(one) == set(two)
    assert [k for k in one if not torch.equal(one[k], two[k])] == []


KILL_POINTS = [
    "write.config.json.half:1",
    "publish.config.json:1",
    "train.step:1",
    "train.step:101",
    "train.step:139",
    "train.step:160",
    "write.tensors.safetensors.half:1",
    "write.tensors.safetensors.half:4",
    "write.replay-tail.safetensors.half:2",
    "write.episode.safetensors.half:2",
    "write.state.json.half:3",
    "write.manifest.json.half:3",
    "ckpt.before_manifest:1",
    "ckpt.before_manifest:3",
    "ckpt.after_manifest:3",
    "ckpt.after_rename:1",
    "ckpt.after_rename:4",
    "prune.mid:1",
    "prune.segments:4",
    "prune.segment:1",
    "write.seg-000003.safetensors.half:1",
    "publish.seg-000004.safetensors:1",
    "replay.sealed:1",
    "replay.sealed:6",
    "metrics.append:4",
    "metrics.mid_line:9",
    "timing.mid_line:3",
    "eval.mid:1",
    "eval.mid:6",
    "publish.DONE:1",
]


@pytest.mark.parametrize("point", KILL_POINTS)
def test_killed_sac_run_resumes_to_the_same_bits(
    runs: Runs, references: dict[str, Path], point: str
) -> None:
    runs.kill(point)
    ended = runs.train()
    assert ended.code == 0, ended
    assert_same(runs.folder, references["sac"])


@pytest.mark.parametrize("point", ["train.step:139", "ckpt.after_rename:4"])
def test_a_run_killed_within_held_noise_resumes_to_the_same_bits(
    warm: WarmProcess, tmp_path: Path, point: str
) -> None:
    # Noise is held across the checkpoint at step 120: drawn at 101, 108, 115 and 122.
    sde = {"actor__sde": "", "actor__sde_sample_every": "7"}
    whole, killed = (Runs(warm, tmp_path / name) for name in ("whole", "killed"))
    assert whole.train(**sde).code == 0
    killed.kill(point, **sde)
    ended = killed.train(**sde)
    assert ended.code == 0, ended
    assert_same(killed.folder, whole.folder)


@pytest.mark.parametrize("points", [KILL_POINTS[i::3] for i in range(3)], ids=lambda p: p[0])
def test_td3_run_killed_at_one_point_after_another_resumes_to_the_same_bits(
    warm: WarmProcess, tmp_path: Path, references: dict[str, Path], points: list[str]
) -> None:
    runs = Runs(warm, tmp_path / "0", "td3")
    for number, point in enumerate(points, 1):
        ended = runs.train(f"{point}:kill")
        if ended.code == 0:  # The run was over before this point came: on with a new one.
            assert_same(runs.folder, references["td3"])
            runs = Runs(warm, tmp_path / str(number), "td3")
            runs.kill(point)
        else:
            assert ended.code == -signal.SIGKILL, ended
    assert runs.train().code == 0
    assert_same(runs.folder, references["td3"])


@pytest.mark.parametrize("actor", ACTORS)
@pytest.mark.parametrize("critic", CRITICS)
def test_every_pair_killed_while_learning_resumes_to_the_same_bits(
    warm: WarmProcess, tmp_path: Path, actor: str, critic: str
) -> None:
    whole, killed = (Runs(warm, tmp_path / name, actor, critic) for name in ("whole", "killed"))
    assert whole.train().code == 0
    for point in ("train.step:131", "write.tensors.safetensors.half:1", "train.step:37"):
        killed.kill(point)
    assert killed.train().code == 0
    assert_same(killed.folder, whole.folder)


@pytest.mark.parametrize("critic", ["cdq", "dbc"])
def test_run_with_n_step_returns_killed_in_mid_episode_resumes_to_the_same_bits(
    warm: WarmProcess, tmp_path: Path, critic: str
) -> None:
    whole, killed = (Runs(warm, tmp_path / name, "sac", critic) for name in ("whole", "killed"))
    changed = {"train__n_step": "3", "train__updates_per_step": "1.5"}
    assert whole.train(**changed).code == 0
    for point in ("train.step:139", "write.episode.safetensors.half:1", "train.step:22"):
        killed.kill(point, **changed)
        run = RunFolder(killed.folder)
        snap, _ = checkpoint.load(run, run.last_weights())
        assert snap.episode["pending"].shape == (2, 6)
    assert killed.train(**changed).code == 0
    assert_same(killed.folder, whole.folder)
    assert int(training_state(whole.folder)["agent._extra_state"]) == 90


def test_without_n_step_returns_a_checkpoint_is_written_as_before_they_came(
    references: dict[str, Path],
) -> None:
    episode = RunFolder(references["sac"]).last_weights() / checkpoint.EPISODE
    assert set(load_file(episode)) == {"actions", "obs", "reward"}


@pytest.mark.parametrize(
    ("actor", "critic", "trunk"),
    [("sac", "dbc", "batchnorm"), ("td3", "vf", "plain"), ("td3", "tqc", "layernorm")],
)
def test_a_killed_run_that_normalises_resumes_to_the_same_bits(
    warm: WarmProcess, tmp_path: Path, actor: str, critic: str, trunk: str
) -> None:
    """Among the kills one in warm-up, when statistics are all that has been learnt."""
    both = {"train__normalize_obs": "", "train__normalize_returns": ""}
    both |= {"critic__trunk": trunk, "actor__trunk": trunk}
    whole, killed = (Runs(warm, tmp_path / name, actor, critic) for name in ("whole", "killed"))
    assert whole.train(**both).code == 0
    for point in ("train.step:47", "train.step:85", "train.step:37"):
        killed.kill(point, **both)
    assert killed.train(**both).code == 0
    assert_same(killed.folder, whole.folder)
    del both["train__normalize_obs"]
    ended = killed.train(**both, train__no_normalize_obs="")
    assert ended.code == 2
    assert "train.normalize_obs was True, now False" in ended.err


@pytest.mark.parametrize(
    "points",
    [
        ("ckpt.after_manifest:3", "sweep.mid:1", "resume.loaded:1", "train.step:1"),
        ("metrics.mid_line:9", "log.resume:1", "log.truncated:1", "metrics.mid_line:1"),
        ("prune.mid:1", "sweep.mid:1", "prune.mid:1", "prune.segment:1", "train.step:1"),
        ("write.seg-000004.safetensors.half:1", "replay.sealed:1", "write.state.json.half:1"),
        tuple(f"train.step:{n}" for n in (45, 19, 35, 44, 3)),
    ],
    ids=lambda points: "+".join(points),
)
def test_run_killed_again_and_again_also_while_resuming_ends_with_the_same_bits(
    runs: Runs, references: dict[str, Path], points: tuple[str, ...]
) -> None:
    for point in points:
        runs.kill(point, save__every="20")
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


def test_kill_loses_nothing_before_the_last_checkpoint(runs: Runs) -> None:
    runs.kill("train.step:139")
    ended = runs.train()
    assert "resuming at step 120" in ended.out
    assert ended.err == ""


def test_run_killed_before_its_first_checkpoint_says_that_it_starts_again(runs: Runs) -> None:
    runs.kill("train.step:39")
    assert "no checkpoint yet: starting again from step 0" in runs.train().err


def test_fresh_interpreters_give_the_same_bits_as_forks(
    cli: Run, tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tests fork a process that has everything imported; users do not."""
    monkeypatch.undo()
    killed = cli(*TINY, "--out", str(tmp_path / "a"), BRIDGERL_FAILPOINT="train.step:460:kill")
    assert killed.returncode == -signal.SIGKILL
    assert cli(*TINY, "--out", str(tmp_path / "a")).returncode == 0
    assert runs.warm.run(*TINY, "--out", str(tmp_path / "b")).code == 0
    folders = [str(next((tmp_path / x).glob("*/*/seed0"))) for x in "ab"]
    compared = runs.warm.run("compare", *folders)
    assert (compared.code, compared.out) == (0, "equal\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_the_run_with_a_checkpoint_at_that_step(
    runs: Runs, references: dict[str, Path], number: signal.Signals, code: int
) -> None:
    action = {signal.SIGTERM: "term", signal.SIGINT: "int"}[number]
    ended = runs.train(f"train.step:103:{action}")
    assert ended.code == code
    assert (
        ended.err == "bridgerl: stopped at step 103 after a checkpoint; the same command resumes\n"
    )
    assert RunFolder(runs.folder).last_weights().name == "step-000000000103"
    verify(runs.folder)
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_at_random_moments_never_change_the_result(
    runs: Runs, references: dict[str, Path], number: signal.Signals
) -> None:
    draws = random.Random(int(number))
    stopped = 0
    for _ in range(6):
        process = runs.warm.start(*runs.command(), segment_rows=SEGMENT_ROWS)
        process.wait_for_output()  # The handlers are in place by then.
        time.sleep(draws.uniform(0.0, 0.1))
        process.send(number)
        ended = process.wait()
        verify(runs.folder)
        if ended.code == 0:
            break
        stopped += 1
        assert ended.code == 128 + number, ended
        step = int(ended.err.split("step ")[1].split()[0])
        assert RunFolder(runs.folder).last_weights().name == f"step-{step:012d}"
    assert stopped > 0
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


def test_a_signal_during_the_last_evaluation_leaves_it_to_the_next_start(
    runs: Runs, references: dict[str, Path]
) -> None:
    assert runs.train("eval.mid:7:term").code == 128 + signal.SIGTERM
    assert runs.train().code == 0
    verify(runs.folder)
    assert_same(runs.folder, references["sac"])


@pytest.mark.parametrize("place", ["write.tensors.safetensors.half:4", "ckpt.after_manifest:4"])
def test_second_signal_ends_at_once_and_leaves_a_valid_state(
    runs: Runs, references: dict[str, Path], place: str
) -> None:
    ended = runs.train(f"train.step:103:term,{place}:term")
    assert ended.code == -signal.SIGTERM
    verify(runs.folder)
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


def test_evaluating_logging_and_saving_more_or_less_often_never_changes_training(
    runs: Runs, tmp_path: Path, references: dict[str, Path]
) -> None:
    often = {"eval__every": "7", "eval__episodes": "1", "log__every": "3", "save__every": "11"}
    rarely = {"eval__every": "1000", "log__every": "1000", "save__every": "1000"}
    for number, changed in enumerate((often, rarely)):
        other = Runs(runs.warm, tmp_path / str(number))
        assert other.train(**changed).code == 0
        assert_same_training(other.folder, references["sac"])


def test_cadence_may_change_between_kill_and_resume(
    runs: Runs, references: dict[str, Path]
) -> None:
    runs.kill("train.step:97", save__every="30", eval__every="20", log__every="9")
    assert runs.train(save__every="50").code == 0
    assert_same_training(runs.folder, references["sac"])


def test_same_seed_gives_the_same_run_and_another_seed_another(
    runs: Runs, tmp_path: Path, references: dict[str, Path]
) -> None:
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])
    other = Runs(runs.warm, tmp_path / "other")
    assert other.train(seed="1").code == 0
    assert compare(other.folder, references["sac"]) == "config seed: 1 against 0"
    state = training_state(other.folder)
    same = training_state(references["sac"])
    assert not any(torch.equal(state[k], same[k]) for k in state if k.endswith("actor.mean"))
    assert not torch.equal(state["replay"], same["replay"])


def test_compare_names_the_first_difference(
    runs: Runs, tmp_path: Path, references: dict[str, Path]
) -> None:
    reference = references["sac"]
    copy = tmp_path / "copy"

    def difference() -> str | None:
        return compare(copy, reference)

    shutil.copytree(reference, copy)
    assert difference() is None
    log = copy / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], b'{"kind": "\xff"}\n', *lines[3:]]))
    assert str(difference()).startswith("metrics.jsonl line 3: ")
    log.write_bytes(b"".join(lines[:-1]))
    assert difference() == f"metrics.jsonl: {len(lines) - 1} lines against {len(lines)}"
    log.write_bytes(b"".join(lines))
    newest = RunFolder(copy).last_weights()
    for file, told in (
        ("state.json", f"episode in state.json of {newest.name}"),
        ("tensors.safetensors", f" in {newest.name}"),
    ):
        _rewrite(newest, file)
        assert told in str(difference())
        shutil.rmtree(newest)
        shutil.copytree(RunFolder(reference).last_weights(), newest)
    shutil.rmtree(newest)
    assert difference() == "last checkpoint: step-000000000120 against step-000000000160"


def _rewrite(folder: Path, file: str) -> None:
    """Change one number in a file, and make the checksums right again."""
    if file == "state.json":
        data = store.to_json(json.loads((folder / file).read_bytes()) | {"episode": 99})
    else:
        tensors = load_file(folder / file)
        first = next(v for k, v in sorted(tensors.items()) if v.is_floating_point() and v.numel())
        first.view(-1)[0] += 1
        data = pack(tensors)
    (folder / file).write_bytes(data)
    manifest = store.read_manifest(folder)
    for row in manifest["files"]:
        if row["name"] == file:
            row.update(size=len(data), sha256=store.sha256(data))
    (folder / "manifest.json").write_bytes(store.to_sealed_json(manifest))


def test_finished_run_says_so_and_changes_nothing(runs: Runs, references: dict[str, Path]) -> None:
    assert runs.train().code == 0
    before = {p: p.read_bytes() for p in (runs.folder / "ckpt").rglob("*.*") if p.is_file()}
    log = (runs.folder / "metrics.jsonl").read_bytes()
    ended = runs.train()
    assert ended.code == 0
    assert "already finished at step 160" in ended.out
    assert {p: p.read_bytes() for p in before} == before
    assert (runs.folder / "metrics.jsonl").read_bytes() == log


def test_extended_run_equals_one_that_ran_through(runs: Runs, references: dict[str, Path]) -> None:
    assert runs.train(steps="130").code == 0
    runs.kill("train.step:20")
    ended = runs.train()
    assert ended.code == 0
    assert json.loads((runs.folder / "DONE").read_bytes())["step"] == 160
    assert_same_training(runs.folder, references["sac"])


def test_a_warmup_left_open_is_settled_at_the_first_start_and_kept(
    runs: Runs, tmp_path: Path
) -> None:
    left_open = {"train__warmup": "None"}
    assert runs.train(**left_open).code == 0
    assert RunFolder(runs.folder).read_config().train.warmup == 16
    assert runs.train(**left_open, steps="200").code == 0
    assert RunFolder(runs.folder).read_config().train.warmup == 16
    chosen = Runs(runs.warm, tmp_path / "chosen")
    assert chosen.train(train__warmup="16", steps="200").code == 0
    assert_same_training(runs.folder, chosen.folder)
    refused = runs.train(train__warmup="20", steps="200")
    assert refused.code == 2
    assert "train.warmup was 16, now 20" in refused.err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("critic__hidden", "9"),
        ("train__buffer_size", "65"),
        ("train__discount", "0.9"),
        ("actor__lr", "0.1"),
    ],
)
def test_another_config_is_refused_by_field(
    warm: WarmProcess, references: dict[str, Path], flag: str, value: str
) -> None:
    reference = references["sac"]
    runs = Runs(warm, reference.parents[2])
    before = {p: p.stat().st_mtime_ns for p in reference.rglob("*") if p.is_file()}
    ended = runs.train(**{flag: value})
    assert ended.code == 2
    assert flag.replace("__", ".") in ended.err
    assert ended.err.count("\n") == 1
    assert {p: p.stat().st_mtime_ns for p in reference.rglob("*") if p.is_file()} == before


def _pretend_other_torch(run: Path) -> None:
    for _, path in RunFolder(run).checkpoints():
        manifest = store.read_manifest(path)
        manifest["fingerprint"]["torch"] = "0.1"
        (path / "manifest.json").write_bytes(store.to_sealed_json(manifest))


def test_other_versions_are_told_and_on_request_refused(runs: Runs) -> None:
    runs.kill("train.step:97")
    _pretend_other_torch(runs.folder)
    command = [*runs.command(), "--save.require-exact"]
    log = (runs.folder / "metrics.jsonl").read_bytes()
    refused = runs.warm.run(*command, segment_rows=SEGMENT_ROWS)
    assert refused.code == 2
    assert "not be bit-exact: torch 0.1 -> " in refused.err
    assert (runs.folder / "metrics.jsonl").read_bytes() == log
    ended = runs.train()
    assert ended.code == 0
    assert "not bit-exact: torch 0.1 -> " in ended.err
    assert json.loads((runs.folder / "DONE").read_bytes())["exact"] is False


def test_moved_run_resumes_exactly(runs: Runs, tmp_path: Path, references: dict[str, Path]) -> None:
    runs.kill("train.step:97")
    moved = Runs(runs.warm, tmp_path / "somewhere else" / "ünïcode")
    moved.out.parent.mkdir()
    runs.out.rename(moved.out)
    ended = moved.train()
    assert ended.code == 0, ended
    assert "resuming at step 80" in ended.out
    assert_same(moved.folder, references["sac"])


def test_second_writer_is_refused_naming_the_first_and_readers_are_welcome(
    runs: Runs, references: dict[str, Path]
) -> None:
    first = runs.warm.start(*runs.command(steps="100000"), segment_rows=SEGMENT_ROWS)
    try:
        while not RunFolder(runs.folder).checkpoints():
            time.sleep(0.01)
        second = runs.train(steps="100000")
        assert second.code == 2
        assert f"written by process {first.pid};" in second.err
        # Readers race with the writer that publishes and prunes dozens of checkpoints meanwhile.
        for _ in range(20):
            assert verify(runs.folder)
            assert compare(runs.folder, references["sac"]) is not None
        played = runs.warm.run("evaluate", str(runs.folder), "--episodes", "1")
        assert played.code == 0, played
    finally:
        first.send(signal.SIGKILL)
    assert first.wait().code == -signal.SIGKILL
    reached, _ = RunFolder(runs.folder).checkpoints()[-1]
    steps = str(max(reached + 10, 200))  # A slow machine may not have got beyond warm-up.
    assert f"resuming at step {reached:,}" in runs.train(steps=steps).out


def test_of_six_writers_at_once_exactly_one_wins(runs: Runs, references: dict[str, Path]) -> None:
    command = runs.command(steps="100000")
    processes = [runs.warm.start(*command, segment_rows=SEGMENT_ROWS) for _ in range(6)]
    lock = runs.out / "toy_envs_Point-v0" / "sac-cdq-lite" / "seed0" / "run.lock"
    while not lock.exists() or not lock.read_text():
        time.sleep(0.01)
    winner = int(lock.read_text())
    losers = [p for p in processes if p.pid != winner]
    assert [p.wait().code for p in losers] == [2] * 5
    os.kill(winner, signal.SIGKILL)
    assert {p.wait().code for p in processes if p not in losers} == {-signal.SIGKILL}
    shutil.rmtree(runs.folder / "ckpt")  # It may have run past the end of the reference.
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


@pytest.mark.parametrize(
    "place",
    [
        "write.tensors.safetensors.half:3",
        "write.seg-000004.safetensors.half:1",
        "publish.seg-000004.safetensors:1",
        "write.manifest.json.half:3",
        "ckpt.after_manifest:3",
    ],
)
def test_full_disk_during_a_checkpoint_is_survived(
    runs: Runs, references: dict[str, Path], place: str
) -> None:
    ended = runs.train(f"{place}:enospc")
    assert ended.code == 0
    assert ended.err.count("\n") == 1
    assert "No space left on device; trying again in 40 steps" in ended.err
    assert_same(runs.folder, references["sac"])


def test_full_disk_three_times_in_a_row_ends_the_run_with_the_last_good_checkpoint(
    runs: Runs, references: dict[str, Path]
) -> None:
    changed = {"save__every": "10"}
    ended = runs.train("write.state.json.half:5+:enospc", **changed)
    assert ended.code == 5
    lines = ended.err.splitlines()
    assert [line.split(":")[1] for line in lines] == [" warning", " warning", " error"]
    assert "step 70 not written" in lines[2]
    verify(runs.folder)
    assert RunFolder(runs.folder).last_weights().name == "step-000000000040"
    assert not list((runs.folder / "ckpt").glob(".tmp-*"))
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


@pytest.mark.parametrize("place", ["metrics.append:4", "metrics.mid_line:4", "timing.mid_line:2"])
def test_full_disk_while_logging_leaves_no_half_line_and_loses_nothing(
    runs: Runs, references: dict[str, Path], place: str
) -> None:
    ended = runs.train(f"{place}:enospc")
    assert (ended.code, ended.err) == (0, "")
    assert_same(runs.folder, references["sac"])
    for line in (runs.folder / "timing.jsonl").read_text().splitlines():
        json.loads(line)


def test_log_that_cannot_be_written_fails_the_checkpoint_not_the_training(
    runs: Runs, references: dict[str, Path]
) -> None:
    ended = runs.train("metrics.mid_line:9+:enospc")
    assert ended.code == 5
    assert "metrics.jsonl cannot be written" in ended.err
    verify(runs.folder)
    assert runs.train().code == 0
    assert_same(runs.folder, references["sac"])


def test_file_size_limit_of_the_kernel_is_a_full_disk(runs: Runs) -> None:
    """No failpoint here: the kernel itself refuses to write more than 8 KB into one file."""
    code = (
        "import resource, sys; from bridgerl.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); sys.exit(main(sys.argv[1:]))"
    )
    ended = finished([sys.executable, "-c", code, *runs.command()], env=environment())
    assert ended.returncode == 5
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list((runs.folder / "ckpt").glob("step-*"))
    assert not list((runs.folder / "ckpt").glob(".tmp-*"))


@pytest.mark.parametrize("keep", ["1", "2"])
def test_checkpoint_written_after_falling_back_is_never_pruned_for_a_damaged_newer_one(
    runs: Runs, references: dict[str, Path], keep: str
) -> None:
    runs.kill("train.step:139")
    newest = RunFolder(runs.folder).last_weights()
    (newest / "state.json").write_bytes(b"")
    ended = runs.train("train.step:3:term", save__keep=keep)
    assert ended.code == 143
    assert f"skipping {newest.name}" in ended.err
    verify(runs.folder)
    assert RunFolder(runs.folder).last_weights().name == "step-000000000083"
    resumed = runs.train()
    assert "resuming at step 83" in resumed.out
    assert_same(runs.folder, references["sac"])


SPEC = EnvSpec("toy", 1, 1)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(1, 23),
    segment_rows=st.integers(1, 9),
    keep=st.integers(1, 3),
    adds=st.lists(st.tuples(st.integers(1, 15), st.booleans()), min_size=1, max_size=8),
)
def test_replay_log_holds_the_same_rows_as_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory,
    capacity: int,
    segment_rows: int,
    keep: int,
    adds: list[tuple[int, bool]],
) -> None:
    """Add rows, save, perhaps reload into a new buffer; every kept checkpoint stays readable."""
    run = tmp_path_factory.mktemp("log")
    (run / "ckpt").mkdir()
    (run / "replay").mkdir()
    (run / "metrics.jsonl").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SEGMENT_ROWS", segment_rows)
        patch.setattr(os, "fsync", lambda _: None)
        replay, sealed, plain = Replay(capacity, SPEC), {}, []
        lengths: dict[int, int] = {}
        for step, (count, reload) in enumerate(adds, 1):
            for _ in range(count):
                row = [float(len(plain)), 0.25, float(-len(plain)), 0.5, 0.75]
                obs, action, next_obs = (np.array([row[i]], np.float32) for i in (0, 1, 4))
                replay.add(obs, action, row[2], row[3], next_obs)
                plain.append(row)
            checkpoint.save(RunFolder(run), _snapshot(step), replay, sealed, keep)
            lengths[step] = len(plain)
            if reload:
                replay = Replay(capacity, SPEC)
                found = checkpoint.newest(RunFolder(run), replay, pytest.fail)
                assert found is not None
                sealed = found[1]
        kept = RunFolder(run).checkpoints()
        assert [s for s, _ in kept] == list(lengths)[-keep:]
        for step, path in kept:
            fresh = Replay(capacity, SPEC)
            checkpoint.refill(RunFolder(run), path, fresh)
            expected = torch.tensor(plain[: lengths[step]])[-capacity:]
            assert fresh.count == lengths[step]
            assert torch.equal(fresh.read(fresh.live_rows()), expected)
        wanted = {n for _, p in kept for n in store.read_manifest(p)["replay"]["segments"]}
        assert {p.name for p in (run / "replay").iterdir()} == wanted


def _snapshot(step: int) -> Snapshot:
    return Snapshot(
        step=step,
        tensors={"agent.w": torch.zeros(1)},
        episode={
            "actions": torch.zeros(0, 1),
            "obs": torch.zeros(1),
            "reward": torch.tensor(0.0, dtype=torch.float64),
        },
        state={"step": step},
        metrics={"bytes": 0, "sha256": store.sha256(b"")},
    )
