"""A run in four environments that was killed ends with the very same bits, in processes too."""

import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save
from test_damage import forge
from test_resume import SEGMENT_ROWS, Runs, assert_same

from bridgerl.runs import checkpoint, segments
from bridgerl.runs.folder import RunFolder
from bridgerl.training.replay import Replay
from bridgerl.types import EnvSpec
from warm_process import WarmProcess

# Checkpoints at steps 30, 90 and 150 are in the middle of a round: two actions are under way.
FOUR = {"train__n_envs": "4", "save__every": "30", "train__n_step": "3"}
APART = {"env_processes": ""}


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", SEGMENT_ROWS)


@pytest.fixture(scope="module")
def unbroken(warm: WarmProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = Runs(warm, tmp_path_factory.mktemp("unbroken"))
    ended = runs.train(**FOUR)
    assert ended.code == 0, ended
    return runs.folder


@pytest.fixture
def runs(warm: WarmProcess, tmp_path: Path) -> Runs:
    return Runs(warm, tmp_path / "out")


POINTS = [
    "train.step:31",
    "train.step:101",
    "train.step:153",
    "write.episode.safetensors.half:3",
    "ckpt.after_rename:3",
    "eval.mid:3",
    "publish.DONE:1",
]


CASES = [(point, APART if i % 3 else {}) for i, point in enumerate(POINTS)]


@pytest.mark.parametrize(("point", "where"), CASES)
def test_a_run_in_four_environments_resumes_to_the_same_bits(
    runs: Runs, unbroken: Path, point: str, where: dict[str, str]
) -> None:
    runs.kill(point, **FOUR, **where)
    ended = runs.train(**FOUR, **where)
    assert ended.code == 0, ended
    assert "not bit-exact" not in ended.err
    assert_same(runs.folder, unbroken)


def test_it_may_be_killed_here_and_there_and_go_on_elsewhere(runs: Runs, unbroken: Path) -> None:
    for number, point in enumerate(["train.step:95", "train.step:40", "ckpt.after_manifest:1"]):
        runs.kill(point, **FOUR, **({} if number % 2 else APART))
    (*_, (_, newest)) = RunFolder(runs.folder).checkpoints()
    snap, _ = checkpoint.load(RunFolder(runs.folder), newest)
    chosen = {f"{i}.chosen" for i in range(snap.step % 4, 4)} if snap.step % 4 else set()
    assert {name for name in snap.episode if name.endswith("chosen")} == chosen
    assert runs.train(**FOUR).code == 0
    assert_same(runs.folder, unbroken)


def test_a_signal_in_the_middle_of_a_round_leaves_a_checkpoint_that_goes_on(
    runs: Runs, unbroken: Path
) -> None:
    ended = runs.train("train.step:122:term", **FOUR, **APART)
    assert ended.code == 128 + signal.SIGTERM, ended
    assert RunFolder(runs.folder).checkpoints()[-1][0] == 122
    assert runs.train(**FOUR, **APART).code == 0
    assert_same(runs.folder, unbroken)


def test_another_number_of_environments_is_refused(runs: Runs) -> None:
    runs.kill("train.step:50", **FOUR)
    ended = runs.train(**FOUR | {"train__n_envs": "3"})
    assert ended.code == 2
    assert "train.n_envs was 4, now 3" in ended.err


WRONG: dict[str, tuple[str, torch.Tensor | None]] = {
    "no number": ("2.episode", None),
    "a number below 0": ("2.episode", torch.tensor(-1)),
    "an action of another size": ("3.chosen", torch.zeros(3)),
    "one more, half": ("4.obs", torch.zeros(3)),
    "a name of nobody": ("x.obs", torch.zeros(3)),
}


def forge_episodes(run: Path, name: str, value: torch.Tensor | None) -> None:
    """Leave out the tensors whose names begin so, or put one in, with right checksums."""
    path = RunFolder(run).last_weights() / checkpoint.EPISODE
    episodes = {k: v for k, v in load_file(path).items() if not k.startswith(name)}
    forge(run, checkpoint.EPISODE, save(episodes if value is None else episodes | {name: value}))


@pytest.mark.parametrize("kind", WRONG)
def test_episodes_that_no_run_writes_are_skipped(tmp_path: Path, unbroken: Path, kind: str) -> None:
    run = Path(shutil.copytree(unbroken, tmp_path / "run"))
    forge_episodes(run, *WRONG[kind])
    warnings: list[str] = []
    found = checkpoint.newest(RunFolder(run), Replay(64, EnvSpec("toy", 3, 2)), warnings.append)
    assert found is not None
    assert found[0].step == 150
    assert len(warnings) == 1
    assert checkpoint.EPISODE in warnings[0]


def test_an_environment_less_than_there_should_be_ends_training_with_one_line(runs: Runs) -> None:
    runs.kill("publish.DONE:1", **FOUR)
    forge_episodes(runs.folder, "3.", None)
    ended = runs.train(**FOUR)
    assert (ended.code, ended.err.count("\n")) == (5, 1)
    assert "holds 3 environments, not 4" in ended.err


def test_environments_end_with_a_run_that_is_killed_though_they_hang(
    warm: WarmProcess, tmp_path: Path
) -> None:
    runs = Runs(warm, tmp_path)
    started = warm.start(*runs.command(env="faulty_envs:Stubborn-v0", **FOUR, **APART))
    process = psutil.Process(started.pid)
    while len(process.children()) < 4:
        time.sleep(0.01)
    children = process.children()
    started.wait_for_output()
    time.sleep(0.5)  # Twenty steps take a few milliseconds; then all of them hang.
    started.send(signal.SIGKILL)
    assert started.wait().code == -signal.SIGKILL
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
