"""The write protocol: what is on disk in which order, and what is read back bit for bit."""

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgerl.errors import NumericFault, StorageFault, UserError
from bridgerl.runs import checkpoint, failpoint, segments, store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.log import RunLog
from bridgerl.runs.records import read_metrics
from bridgerl.runs.tensors import pack, unpack
from bridgerl.training.replay import Replay
from bridgerl.types import EnvSpec
from conftest import started

FILES = {"a.safetensors": b"one", "b.json": b"two"}


@pytest.fixture
def armed() -> Any:
    """Arm a failpoint for the length of a test."""
    yield failpoint.arm
    failpoint.arm("")


class Trace:
    """The system calls of a block, by what they were called on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        self._fsync, self._rename, self._unlink = os.fsync, os.rename, os.unlink
        patch.setattr(os, "fsync", self._note_fsync)
        patch.setattr(os, "rename", self._note_rename)
        patch.setattr(os, "unlink", self._note_unlink)

    def _note_fsync(self, handle: int) -> None:
        self.calls.append(("sync", self._plain(os.readlink(f"/proc/self/fd/{handle}"))))
        self._fsync(handle)

    def _note_rename(self, source: Any, target: Any, **_: Any) -> None:
        self._rename(source, target)
        self.calls.append(("rename", self._plain(str(target))))

    def _note_unlink(self, path: Any, **extra: Any) -> None:
        self._unlink(path, **extra)
        self.calls.append(("unlink", self._plain(str(path))))

    @staticmethod
    def _plain(path: str) -> str:
        """The name without the random part of temporary names, `tmp/` for what lies inside."""
        name = Path(path).name
        inside = Path(path).parent.name.startswith(".tmp-")
        return ("tmp/" if inside else "") + (
            name[:-9] if name.startswith((".tmp-", ".trash-")) else name
        )


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


@needs_proc
def test_file_is_synced_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    store.publish_file(tmp_path / "x.json", b"data")
    assert trace.calls == [
        ("sync", ".tmp-x.json"),
        ("rename", "x.json"),
        ("sync", tmp_path.name),
    ]
    assert (tmp_path / "x.json").read_bytes() == b"data"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@needs_proc
def test_folder_is_synced_files_first_then_manifest_then_itself_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    store.publish_folder(tmp_path / "step-1", FILES, {"step": 1})
    assert trace.calls == [
        ("sync", "tmp/a.safetensors"),
        ("sync", "tmp/b.json"),
        ("sync", "tmp/manifest.json"),
        ("sync", ".tmp-step-1"),
        ("rename", "step-1"),
        ("sync", tmp_path.name),
    ]


@needs_proc
def test_checkpoint_seals_segments_first_and_prunes_them_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 4)
    run, replay, sealed = tmp_path, Replay(4, EnvSpec("toy", 1, 1)), {}
    store.make_folder(run / "ckpt")
    store.make_folder(run / "replay")
    for step in (4, 8):
        for _ in range(4):
            replay.add(np.ones(1), np.ones(1), 1.0, 1.0, np.ones(1))
        trace = Trace(monkeypatch)
        checkpoint.save(RunFolder(run), snapshot(step), replay, sealed, keep=1)
    names = [call for call in trace.calls if "json" not in call[1] and "tmp/" not in call[1]]
    assert names[:-1] == [
        ("sync", ".tmp-seg-000001.safetensors"),
        ("rename", "seg-000001.safetensors"),
        ("sync", "replay"),
        ("sync", ".tmp-step-000000000008"),
        ("rename", "step-000000000008"),
        ("sync", "ckpt"),
        ("rename", ".trash-step-000000000004"),
        *[("unlink", name) for name in _unlinked(trace)],
        ("sync", "ckpt"),
    ]
    assert names[-1] == ("unlink", "seg-000000.safetensors")


def _unlinked(trace: Trace) -> list[str]:
    """Files inside the discarded checkpoint, in whatever order the file system lists them."""
    return [
        n for kind, n in trace.calls if kind == "unlink" and n[:4] != "seg-" and "json" not in n
    ]


def snapshot(step: int, **tensors: torch.Tensor) -> checkpoint.Snapshot:
    return checkpoint.Snapshot(
        step=step,
        tensors=tensors,
        episode={
            "actions": torch.zeros(0, 1),
            "obs": torch.zeros(1),
            "reward": torch.tensor(0.0).double(),
        },
        state={"step": step},
        metrics={"bytes": 0, "sha256": store.sha256(b"")},
    )


@needs_proc
def test_new_folders_are_synced_into_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    store.make_folder(tmp_path / "a" / "b")
    assert {name for _, name in trace.calls} == {"a", tmp_path.name}
    store.make_folder(tmp_path / "a" / "b")
    assert len(trace.calls) == 2


@needs_proc
def test_log_is_synced_at_every_mark_and_its_name_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    log = RunLog(RunFolder(tmp_path), tensorboard=False)
    assert trace.calls == [("sync", tmp_path.name)]
    log.record("train", 1, {"x": 1.0})
    log.mark()
    assert trace.calls[1:] == [("sync", "metrics.jsonl")]
    log.close()


@pytest.mark.parametrize(
    "place", ["write.a.safetensors.half", "ckpt.before_manifest", "ckpt.after_manifest"]
)
def test_failed_folder_leaves_nothing_behind(
    tmp_path: Path, place: str, armed: Callable[[str], None]
) -> None:
    armed(f"{place}:1:enospc")
    with pytest.raises(OSError, match="No space left"):
        store.publish_folder(tmp_path / "step-1", FILES, {})
    assert list(tmp_path.iterdir()) == []
    store.publish_folder(tmp_path / "step-1", FILES, {})
    assert store.read_folder(tmp_path / "step-1", set(FILES))[1] == FILES


def test_failed_file_leaves_the_old_one(tmp_path: Path, armed: Callable[[str], None]) -> None:
    store.publish_file(tmp_path / "x", b"old")
    armed("write.x.half:1:enospc")
    with pytest.raises(OSError, match="No space left"):
        store.publish_file(tmp_path / "x", b"new")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize("old", ["folder", "file", "link", "dangling link"])
def test_folder_takes_the_place_of_whatever_bears_its_name(tmp_path: Path, old: str) -> None:
    place, elsewhere = tmp_path / "ckpt" / "step-1", tmp_path / "elsewhere"
    place.parent.mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    if old == "folder":
        shutil.copytree(elsewhere, place)
    elif old == "file":
        place.touch()
    else:
        place.symlink_to(elsewhere if old == "link" else tmp_path / "nowhere")
    store.publish_folder(place.parent / "step-1", FILES, {})
    assert sorted(p.name for p in place.iterdir()) == ["a.safetensors", "b.json", "manifest.json"]
    assert list(place.parent.iterdir()) == [place]
    assert (elsewhere / "precious").exists()


def test_sweep_takes_only_leftovers(tmp_path: Path) -> None:
    (tmp_path / ".tmp-step-1-0123abcd").mkdir()
    (tmp_path / ".tmp-step-1-0123abcd" / "x").touch()
    (tmp_path / ".trash-step-2-0123abcd").mkdir()
    (tmp_path / ".tmp-x.json-0123abcd").touch()
    (tmp_path / ".trash-link-0123abcd").symlink_to(tmp_path / "step-3")
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3" / "kept").touch()
    store.sweep(tmp_path)
    assert [p.name for p in tmp_path.rglob("*")] == ["step-3", "kept"]


def test_pruning_keeps_every_segment_while_a_kept_manifest_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 2)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "replay").mkdir()
    run, replay, sealed = RunFolder(tmp_path), Replay(2, EnvSpec("toy", 1, 1)), {}
    for step, format in ((1, 1), (2, 1), (3, 99)):
        for _ in range(2):
            replay.add(np.ones(1), np.ones(1), 1.0, 1.0, np.ones(1))
        checkpoint.save(run, snapshot(step), replay, sealed, keep=3)
        path = run.checkpoint("step", step) / "manifest.json"
        path.write_bytes(path.read_bytes().replace(b'"format": 1', f'"format": {format}'.encode()))
    checkpoint.prune(run, 2, 3)
    assert len(list((tmp_path / "replay").iterdir())) == 3
    assert [s for s, _ in run.checkpoints()] == [2, 3]


def test_rows_of_earlier_releases_get_rewards_without_a_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 2)
    spec = EnvSpec("toy", 1, 1)
    run, narrow, wide = RunFolder(tmp_path), Replay(4, spec), Replay(4, spec, fine_rewards=True)
    run.ckpt.mkdir()
    run.replay.mkdir()
    for reward in (0.1, 0.2, 0.3):  # Two of them in a sealed segment.
        narrow.add(np.ones(1), np.ones(1), reward, 1.0, np.ones(1))
    checkpoint.save(run, snapshot(3), narrow, {}, keep=1)
    checkpoint.refill(run, run.checkpoint("step", 3), wide)
    wide.add(np.ones(1), np.ones(1), 0.4, 1.0, np.ones(1))
    exact = [float(np.float32(reward)) for reward in (0.1, 0.2, 0.3)]
    assert wide.latest(4).reward.tolist() == pytest.approx([*exact, 0.4], rel=1e-14)
    with pytest.raises(StorageFault, match="rows of 5 numbers, not 7"):
        checkpoint.refill(run, run.checkpoint("step", 3), Replay(4, EnvSpec("toy", 2, 1)))


def test_weights_that_are_not_finite_never_reach_the_disk(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    bad = {"agent.w": torch.tensor([1.0, math.nan])}
    with pytest.raises(NumericFault, match=r"agent\.w is not finite at step 7"):
        checkpoint.save_weights(RunFolder(tmp_path), 7, bad)
    replay = Replay(1, EnvSpec("toy", 1, 1))
    with pytest.raises(NumericFault):
        checkpoint.save(RunFolder(tmp_path), snapshot(7, **bad), replay, {}, 1)
    assert list((tmp_path / "ckpt").iterdir()) == []


# The lock.


HOLDER = """
import sys, time
from pathlib import Path
from bridgerl.runs.folder import RunFolder
lock = RunFolder(Path(sys.argv[1])).lock()
print("locked", flush=True)
time.sleep(600)
"""


def test_lock_names_its_holder_and_is_released_by_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with started(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UserError, match=f"written by process {holder.pid};"):
            RunFolder(tmp_path).lock()
    lock = RunFolder(tmp_path).lock()
    assert (tmp_path / "run.lock").read_text() == str(os.getpid())
    with pytest.raises(UserError, match=f"process {os.getpid()};"):
        RunFolder(tmp_path).lock()
    lock.release()
    RunFolder(tmp_path).lock().release()


def test_lock_file_of_rubbish_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_bytes(b"\xff" * 100)
    lock = RunFolder(tmp_path).lock()
    (tmp_path / "run.lock").write_bytes(b"\xff" * 100)
    with pytest.raises(UserError, match="being written by process"):
        RunFolder(tmp_path).lock()
    lock.release()


# JSON.


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        '{"a": -Infinity}',
        "1e999",
        "-1e999",
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        "[" * 100_000,
        "9" * 5000,
        "",
        "{",
        "{} {}",
        "{'a': 1}",
        "01",
        "\ufeff{}",
    ],
)
def test_json_is_strict(text: str) -> None:
    with pytest.raises(StorageFault, match=r"x\.json is damaged"):
        store.parse_json(text.encode(), "x.json")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_json_reads_back_what_was_written(value: Any) -> None:
    assert store.parse_json(store.to_json(value), "x") == value


@settings(deadline=None)
@given(st.dictionaries(st.text().filter(lambda k: k != "sha256"), json_values, max_size=4))
def test_sealed_json_reads_back_and_notices_any_other_value(value: dict[str, Any]) -> None:
    data = store.to_sealed_json(value)
    assert store.open_sealed_json(data, "x") == value
    other = json.loads(data) | {"another field": 1}
    with pytest.raises(StorageFault, match="checksum differs"):
        store.open_sealed_json(json.dumps(other).encode(), "x")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_never_writes_what_it_would_not_read(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.to_json({"x": value})


def test_json_larger_than_any_we_write_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_JSON_BYTES", 100)
    (tmp_path / "x.json").write_bytes(b" " * 1000)
    data = store.read_json_bytes(tmp_path / "x.json")
    assert len(data) == 101
    with pytest.raises(StorageFault, match="too large"):
        store.parse_json(data, "x.json")


# Tensors.


DTYPES = {
    torch.float32: np.uint32,
    torch.float64: np.uint64,
    torch.float16: np.uint16,
    torch.int64: np.uint64,
    torch.uint8: np.uint8,
}
SPECIAL = [
    0x80000000,
    0x00000001,
    0x807FFFFF,
    0x7F800000,
    0xFF800000,
    0x7FC00001,
    0x7F800001,
    0xFFFFFFFF,
]


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(list(DTYPES)),
    bits=st.lists(st.sampled_from(SPECIAL) | st.integers(0, 2**64 - 1), min_size=1, max_size=12),
    flush=st.booleans(),
)
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype, bits: list[int], flush: bool) -> None:
    """Minus zero, subnormals and the payloads of NaN included, flushing of subnormals or not."""
    raw = np.array([b % 2 ** (8 * dtype.itemsize) for b in bits], DTYPES[dtype])
    tensor = torch.from_numpy(raw.view(np.uint8).copy()).view(dtype)
    torch.set_flush_denormal(flush)
    try:
        back = unpack(pack({"x": tensor, "y": tensor}), "x")
    finally:
        torch.set_flush_denormal(False)
    for value in back.values():
        assert value.dtype == dtype
        assert value.shape == tensor.shape
        assert value.view(torch.uint8).numpy().tobytes() == raw.tobytes()


def test_tensors_keep_their_shape_whatever_their_layout() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors = {
        "transposed": base.transpose(0, 2),
        "slice": base[:, 1],
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "needs gradient": torch.ones(2, requires_grad=True),
    }
    back = unpack(pack(tensors), "x")
    assert set(back) == set(tensors)
    assert all(torch.equal(back[k], v) and back[k].shape == v.shape for k, v in tensors.items())


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_tensors_or_damage(data: bytes) -> None:
    with contextlib.suppress(StorageFault):
        unpack(data, "x")


# The log.


def test_log_is_cut_back_to_the_mark_and_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    log = RunLog(RunFolder(tmp_path), tensorboard=False)
    log.record("train", 1, {"x": 1.5})
    mark = log.mark()
    log.record("train", 2, {"x": math.nan})
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    log.close()
    (tmp_path / "metrics.jsonl").write_bytes(whole + b'{"kind": "tor')
    assert [r["step"] for r in read_metrics(whole + b'{"kind": "tor', "log")] == [1, 2]
    log = RunLog(RunFolder(tmp_path), tensorboard=False)
    log.resume(mark, 1)
    assert log.mark() == mark
    log.record("train", 2, {"x": math.nan})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole
    assert read_metrics(whole, "log")[1] == {"kind": "train", "step": 2, "x": None}


def test_curves_drawn_after_the_checkpoint_are_purged_and_those_before_survive_a_kill(
    tmp_path: Path,
) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    killed = RunLog(RunFolder(tmp_path), tensorboard=True)
    killed.resume({"bytes": 0}, 0)
    for step in (10, 20):
        killed.record("train", step, {"actor/loss": float(step)})
    mark = killed.mark()
    # What was marked is in the file already, though the log is not closed: as after kill -9.
    files = list((tmp_path / "tb").iterdir())
    copies = {p: p.read_bytes() for p in files}
    killed.record("train", 30, {"actor/loss": 999.0})
    killed.close()
    assert all(p.read_bytes().startswith(data) for p, data in copies.items())

    def curve() -> list[tuple[int, float]]:
        reader = events.EventAccumulator(str(tmp_path / "tb"))
        reader.Reload()
        return [(e.step, e.value) for e in reader.Scalars("train/actor_loss")]

    assert curve() == [(10, 10.0), (20, 20.0), (30, 999.0)]
    resumed = RunLog(RunFolder(tmp_path), tensorboard=True)
    resumed.resume(mark, 20)
    resumed.record("train", 30, {"actor/loss": 30.0})
    resumed.close()
    assert curve() == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_tensorboard_on_a_broken_disk_is_given_up_with_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tb").write_text("a file where a folder is needed")
    log = RunLog(RunFolder(tmp_path), tensorboard=True)
    log.resume({"bytes": 0}, 0)
    log.record("train", 1, {"x": 1.0})
    log.record("train", 2, {"x": 1.0})
    log.mark()
    log.close()
    assert capsys.readouterr().err.count("no more TensorBoard events") == 1
    assert len(RunFolder(tmp_path).records()) == 2


def test_failpoints_act_on_their_visit_or_from_it_on(armed: Callable[[str], None]) -> None:
    def visit(name: str) -> bool:
        try:
            failpoint.failpoint(name)
        except OSError:
            return True
        return False

    armed("a:2:enospc,b:2+:enospc")
    assert [visit("a") for _ in range(4)] == [False, True, False, False]
    assert [visit("b") for _ in range(4)] == [False, True, True, True]
    assert not visit("c")
