"""Whatever happens to the files of a run: the damage is named, no code runs, work is kept."""

import ast
import contextlib
import io
import json
import os
import pickle
import re
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from bridgerl.cli.main import main
from bridgerl.errors import BridgeError
from bridgerl.runs import checkpoint, segments, store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare, verify
from bridgerl.training.replay import Replay
from bridgerl.types import EnvSpec

SEGMENT_ROWS = 16
COMMAND = [
    *("train", "--env", "toy_envs:Point-v0", "--critic", "cdq"),
    *("--steps", "160", "--train.warmup", "150"),
    *("--train.batch-size", "8", "--train.buffer-size", "64", "--actor.hidden", "8"),
    *("--critic.hidden", "8", "--eval.every", "80", "--eval.episodes", "1"),
    *("--log.every", "20", "--save.every", "40", "--log.no-tensorboard", "--out"),
]
NEWEST, OLDER, OLDEST = (f"step-000000000{n}" for n in (160, 120, "080"))
ROOTS = [str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix, Path(__file__).parents[2])]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True, scope="module")
def _small_segments() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SEGMENT_ROWS", SEGMENT_ROWS)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, _small_segments: None) -> Path:
    """The output folder of a finished run, never touched again."""
    out = tmp_path_factory.mktemp("finished")
    assert main([*COMMAND, str(out)]) == 0
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


@pytest.fixture
def run(out: Path) -> Path:
    return folder(out)


def folder(out: Path) -> Path:
    return next(out.glob("*/*/seed0"))


_forbidden: list[str] = []
_watching = False


def _watch(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook: nothing a run folder holds may ever be run, unpickled or dialled."""
    if not _watching:
        return
    if event in ("pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"):
        _forbidden.append(f"{event} {args}")
    elif event == "exec" and not _is_ours(args[0].co_filename):
        _forbidden.append(f"exec {args[0].co_filename}")
    elif event == "compile" and args[1] is not None and not _is_ours(os.fsdecode(args[1])):
        _forbidden.append(f"compile {args[1]}")


def _is_ours(name: str) -> bool:
    return name.startswith("<frozen") or str(Path(name).resolve()).startswith(tuple(ROOTS))


sys.addaudithook(_watch)


@contextlib.contextmanager
def watching(canary: Path) -> Iterator[None]:
    """Nothing forbidden may happen in this block, and the canary must not appear."""
    global _watching
    _forbidden.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert _forbidden == []
    assert not canary.exists()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Path]:
    """The canary file of a test that is watched from its beginning to its end."""
    with watching(tmp_path / "canary"):
        yield tmp_path / "canary"


def fails_with_one_line(args: list[str], capsys: Capture) -> tuple[int, str]:
    """Run a command that must fail, with one line on stderr; returns code and line."""
    capsys.readouterr()
    code = main(args)
    err = capsys.readouterr().err
    assert code in (2, 5), err
    assert err.startswith("bridgerl: error: ")
    assert err.count("\n") == 1
    return code, err


# Damage by accident.


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0more\n")


def delete(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    """The very same bytes, but somewhere else."""
    path.rename(path.parent.parent / f"moved-{path.name}")
    path.symlink_to(path.parent.parent / f"moved-{path.name}")


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [truncate, flip, empty, extend, delete, link, turn_into_folder]
CHECKPOINT_FILES = sorted([*checkpoint.FULL_FILES, "manifest.json"])
NEWEST_SEGMENT = "replay/seg-000009.safetensors"
FILES = [
    "config.json",
    "metrics.jsonl",
    *(f"ckpt/{NEWEST}/{name}" for name in CHECKPOINT_FILES),
    f"ckpt/{OLDEST}/manifest.json",
    NEWEST_SEGMENT,
    "replay/seg-000006.safetensors",
    "ckpt/WEIGHTS/tensors.safetensors",
    "ckpt/WEIGHTS/manifest.json",
]


def by_function(value: object) -> str:
    return getattr(value, "__name__", str(value))


by_name = pytest.mark.parametrize("damage", DAMAGES, ids=by_function)


def find(run: Path, name: str) -> Path:
    """A file of the run; WEIGHTS stands for the best weights."""
    return run / name.replace("WEIGHTS", next((run / "ckpt").glob("weights-*")).name)


@by_name
@pytest.mark.parametrize("name", FILES)
def test_verify_names_the_damaged_file(
    run: Path, name: str, damage: Callable[[Path], None], capsys: Capture, watched: Path
) -> None:
    path = find(run, name)
    damage(path)
    _, line = fails_with_one_line(["verify", str(run)], capsys)
    assert path.name in line


@by_name
@pytest.mark.parametrize(
    "name", [*(f"ckpt/{NEWEST}/{n}" for n in CHECKPOINT_FILES), NEWEST_SEGMENT]
)
def test_train_falls_back_to_the_checkpoint_before_the_damaged_one(
    finished: Path, out: Path, name: str, damage: Callable[[Path], None], capsys: Capture
) -> None:
    run = folder(out)
    damage(run / name)
    assert main([*COMMAND, str(out)]) == 0
    said, warned = capsys.readouterr()
    assert "resuming at step 120" in said
    assert warned.startswith(f"bridgerl: warning: skipping {NEWEST}: ")
    assert warned.count("\n") == 1
    assert Path(name).name in warned
    assert compare(run, folder(finished)) is None
    assert NEWEST in verify(run)


def test_train_falls_back_further_when_two_checkpoints_share_the_damage(
    finished: Path, out: Path, capsys: Capture
) -> None:
    flip(folder(out) / "replay/seg-000006.safetensors")
    assert main([*COMMAND, str(out)]) == 0
    said, warned = capsys.readouterr()
    assert "resuming at step 80" in said
    assert [line.split()[3] for line in warned.splitlines()] == [f"{NEWEST}:", f"{OLDER}:"]
    assert compare(folder(out), folder(finished)) is None


@pytest.mark.parametrize("kind", ["damaged", "link", "file", "gone"])
def test_train_never_starts_from_zero_when_every_checkpoint_is_lost(
    out: Path, kind: str, capsys: Capture
) -> None:
    run = folder(out)
    for _, path in RunFolder(run).checkpoints():
        if kind == "damaged":
            flip(path / "manifest.json")
            continue
        path.rename(run / path.name)
        if kind == "link":
            path.symlink_to(run / path.name)
        elif kind == "file":
            path.write_bytes(b"")
    log = (run / "metrics.jsonl").read_bytes()
    assert main([*COMMAND, str(out)]) == 5
    err = capsys.readouterr().err
    assert "bridgerl: error: " in err
    assert "to start anew" in err
    assert (run / "metrics.jsonl").read_bytes() == log
    fails_with_one_line(["verify", str(run)], capsys)


@by_name
def test_train_refuses_a_run_whose_config_is_damaged(
    out: Path, damage: Callable[[Path], None], capsys: Capture
) -> None:
    run = folder(out)
    damage(run / "config.json")
    kept = {p: p.read_bytes() for p in run.rglob("*.*") if p.is_file()}
    code, line = fails_with_one_line([*COMMAND, str(out)], capsys)
    assert code == 5
    assert "config.json" in line
    assert all(p.read_bytes() == data for p, data in kept.items())


@pytest.mark.parametrize("damage", [empty, delete, link, turn_into_folder], ids=by_function)
def test_train_refuses_a_run_whose_whole_log_is_lost(
    out: Path, damage: Callable[[Path], None], capsys: Capture
) -> None:
    run = folder(out)
    damage(run / "metrics.jsonl")
    kept = {p: p.read_bytes() for p in (run / "ckpt").rglob("*.*") if p.is_file()}
    assert main([*COMMAND, str(out)]) == 5
    err = capsys.readouterr().err
    assert "metrics.jsonl" in err
    assert "Traceback" not in err
    assert all(p.read_bytes() == data for p, data in kept.items())


@pytest.mark.parametrize(
    ("damage", "step"), [(truncate, 80), (flip, 80), (extend, 160)], ids=by_function
)
def test_damaged_log_costs_only_the_checkpoints_that_had_seen_the_damaged_part(
    finished: Path, out: Path, damage: Callable[[Path], None], step: int, capsys: Capture
) -> None:
    damage(folder(out) / "metrics.jsonl")
    assert main([*COMMAND, str(out)]) == 0
    said, warned = capsys.readouterr()
    assert f" at step {step}\n" in said
    assert warned.count("metrics.jsonl is damaged") == (160 - step) // 40
    assert compare(folder(out), folder(finished)) is None


@pytest.mark.parametrize("name", ["DONE", "timing.jsonl", "evaluations.npz", "run.lock"])
@pytest.mark.parametrize("damage", [truncate, flip, empty, extend, delete], ids=by_function)
def test_files_that_nothing_rests_on_may_be_lost(
    finished: Path, out: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(folder(out) / name)
    assert main([*COMMAND, str(out)]) == 0
    assert main(["verify", str(folder(out))]) == 0
    assert compare(folder(out), folder(finished)) is None


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "run.lock"])
def test_nothing_is_ever_written_through_a_link(out: Path, name: str, capsys: Capture) -> None:
    run, victim = folder(out), out / "victim"
    shutil.rmtree(run / "ckpt")
    (run / "DONE").unlink()
    victim.write_bytes(b"precious")
    (run / name).unlink()
    (run / name).symlink_to(victim)
    _, line = fails_with_one_line([*COMMAND, str(out), "--quiet"], capsys)
    assert name in line
    assert victim.read_bytes() == b"precious"


def test_damaged_best_weights_are_named_when_played(run: Path, capsys: Capture) -> None:
    flip(find(run, "ckpt/WEIGHTS/tensors.safetensors"))
    code, line = fails_with_one_line(["evaluate", str(run), "--episodes", "1"], capsys)
    assert code == 5
    assert "weights-" in line


@pytest.mark.parametrize("name", ["config.json", f"ckpt/{NEWEST}/manifest.json"])
def test_flipped_bits_all_over_a_sealed_file_are_found(run: Path, name: str) -> None:
    data = (run / name).read_bytes()

    def read() -> None:
        if name == "config.json":
            RunFolder(run).read_config()
        else:
            store.read_manifest((run / name).parent)

    read()
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        (run / name).write_bytes(changed)
        with pytest.raises(BridgeError):
            read()


# Damage on purpose: every checksum is right.


class Bomb:
    """Whoever unpickles this runs a command."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.canary}",))


def reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and make its own checksum right again."""
    manifest = store.read_manifest(path)
    change(manifest)
    (path / "manifest.json").write_bytes(store.to_sealed_json(manifest))


def forge(run: Path, name: str, data: bytes) -> None:
    """Replace a file of the newest checkpoint, or its newest segment, with right checksums."""
    newest = run / "ckpt" / NEWEST
    digest = store.sha256(data)
    if name == NEWEST_SEGMENT:
        (run / name).write_bytes(data)
        reseal(newest, lambda m: m["replay"]["segments"].update({Path(name).name: digest}))
        return
    (newest / name).write_bytes(data)

    def change(manifest: dict[str, Any]) -> None:
        row = next(r for r in manifest["files"] if r["name"] == name)
        row.update(size=len(data), sha256=digest)

    reseal(newest, change)


def bombs(canary: Path) -> dict[str, bytes]:
    """Things that run code when they are read the careless way."""
    zipped, arrays = io.BytesIO(), io.BytesIO()
    torch.save({"rows": Bomb(canary)}, zipped)
    np.savez(arrays, rows=np.array([Bomb(canary)], dtype=object))
    return {
        "pickle": pickle.dumps(Bomb(canary)),
        "torch zip": zipped.getvalue(),
        "npz": arrays.getvalue(),
    }


def headed(header: bytes, length: int | None = None, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + body


def tensor_header(**fields: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **fields}
    return headed(json.dumps({"rows": entry}).encode(), body=b"\0" * 4)


HEADERS = {
    "no header": b"",
    "header cut": b"\x08\0\0",
    "giant header": headed(b"{}", 2**63 - 1),
    "header of 101 MB": headed(b"{}", 101 * 2**20),
    "header past the end": headed(b"{}", 3),
    "header not JSON": headed(b"\xff\xfe"),
    "header nested": headed(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "unknown dtype": tensor_header(dtype="PY_OBJECT"),
    "negative shape": tensor_header(shape=[-1]),
    "overflowing shape": tensor_header(shape=[2**62, 2**62]),
    "offsets past the end": tensor_header(data_offsets=[0, 400]),
    "offsets reversed": tensor_header(data_offsets=[4, 0]),
    "hole": headed(b"{}", body=b"\0" * 64),
}
SAFETENSORS = [checkpoint.TENSORS, checkpoint.TAIL, checkpoint.EPISODE, NEWEST_SEGMENT]


def assert_refused(run: Path, name: str, capsys: Capture, code: int = 5) -> None:
    """`verify` names the file; a resume goes back to the checkpoint before, saying so once."""
    told, line = fails_with_one_line(["verify", str(run)], capsys)
    assert told == code
    assert Path(name).name in line
    warnings: list[str] = []
    replay = Replay(64, EnvSpec("toy", 3, 2))
    if code == 2:
        with pytest.raises(BridgeError):
            checkpoint.newest(RunFolder(run), replay, warnings.append)
        return
    found = checkpoint.newest(RunFolder(run), replay, warnings.append)
    assert found is not None
    assert found[0].step == 120
    assert replay.count == 120
    assert len(warnings) == 1


@pytest.mark.parametrize("kind", ["pickle", "torch zip", "npz"])
@pytest.mark.parametrize("name", SAFETENSORS)
def test_code_in_place_of_tensors_is_never_run(
    run: Path, name: str, kind: str, capsys: Capture, watched: Path
) -> None:
    forge(run, name, bombs(watched)[kind])
    assert_refused(run, name, capsys)


@pytest.mark.parametrize("kind", ["pickle", "torch zip", "npz"])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_code_in_place_of_text_is_never_run(
    run: Path, name: str, kind: str, capsys: Capture, watched: Path
) -> None:
    (run / name).write_bytes(bombs(watched)[kind])
    assert name in fails_with_one_line(["verify", str(run)], capsys)[1]


@pytest.mark.parametrize("kind", HEADERS)
def test_malformed_safetensors_are_refused(
    run: Path, kind: str, capsys: Capture, watched: Path
) -> None:
    forge(run, checkpoint.TENSORS, HEADERS[kind])
    assert_refused(run, checkpoint.TENSORS, capsys)


BAD_JSON = {
    "NaN": b'{"step": NaN}',
    "infinity": b'{"step": -Infinity}',
    "overflow": b'{"step": 1e999}',
    "huge number": b'{"step": ' + b"9" * 10_000 + b"}",
    "duplicate keys": b'{"step": 160, "step": 160}',
    "deep nesting": b'{"step": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "list": b"[160]",
    "number": b"160",
    "other step": b'{"step": 159}',
    "not UTF-8": b'{"step": "\xff"}',
    "UTF-16": '{"step": 160}'.encode("utf-16"),
    "cut": b'{"step": 1',
    "nothing": b"",
}


@pytest.mark.parametrize("kind", BAD_JSON)
def test_bad_json_is_refused(run: Path, kind: str, capsys: Capture, watched: Path) -> None:
    forge(run, checkpoint.STATE, BAD_JSON[kind])
    assert_refused(run, checkpoint.STATE, capsys)


@pytest.mark.parametrize("kind", BAD_JSON)
def test_bad_json_in_a_manifest_is_refused(
    run: Path, kind: str, capsys: Capture, watched: Path
) -> None:
    (run / "ckpt" / NEWEST / "manifest.json").write_bytes(BAD_JSON[kind])
    assert_refused(run, "manifest.json", capsys)


def rename_file(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda m: m["files"][0].update(name=name)


def set_field(*path: Any) -> Callable[[dict[str, Any]], None]:
    """`set_field("replay", "count", 5)` sets manifest["replay"]["count"] to 5."""
    *keys, last, value = path

    def change(manifest: dict[str, Any]) -> None:
        inner: Any = manifest
        for key in keys:
            inner = inner[key]
        inner[last] = value

    return change


def add_segment(name: str) -> Callable[[dict[str, Any]], None]:
    return set_field("replay", "segments", name, "0" * 64)


MANIFESTS: dict[str, Callable[[dict[str, Any]], None]] = {
    "name above": rename_file("../../config.json"),
    "name absolute": rename_file("/etc/passwd"),
    "name roundabout": rename_file(f"../{NEWEST}/{checkpoint.TENSORS}"),
    "name with NUL": rename_file("tensors\0.safetensors"),
    "name empty": rename_file(""),
    "name number": set_field("files", 0, "name", 7),
    "file twice": lambda m: m["files"].append(m["files"][0]),
    "file left out": lambda m: m["files"].pop(),
    "files not rows": set_field("files", [1, 2, 3, 4]),
    "files not a list": set_field("files", {}),
    "size huge": set_field("files", 0, "size", 10**30),
    "size negative": set_field("files", 0, "size", -1),
    "size text": set_field("files", 0, "size", "12"),
    "checksum missing": lambda m: m["files"][0].pop("sha256"),
    "format older": set_field("format", 0),
    "format text": set_field("format", "1"),
    "format missing": lambda m: m.pop("format"),
    "kind": set_field("kind", "weights"),
    "step": set_field("step", 161),
    "step true": set_field("step", True),
    "step missing": lambda m: m.pop("step"),
    "count 10**18": set_field("replay", "count", 10**18),
    "count 10**30": set_field("replay", "count", 10**30),
    "count one more": set_field("replay", "count", 161),
    "count zero": set_field("replay", "count", 0),
    "count negative": set_field("replay", "count", -1),
    "count float": set_field("replay", "count", 160.0),
    "replay list": set_field("replay", []),
    "segments list": set_field("replay", "segments", []),
    "segments none": set_field("replay", "segments", {}),
    "segment above": add_segment("seg-../../x"),
    "segment above again": add_segment("seg-000009.safetensors/../../../config.json"),
    "segment newline": add_segment("seg-000009.safetensors\n"),
    "segment other digits": add_segment("seg-٠٠٠٠٠٩.safetensors"),
    "segment of old rows": add_segment("seg-000001.safetensors"),
    "segment of rows to come": add_segment("seg-999999.safetensors"),
    "segment checksum number": set_field("replay", "segments", "seg-000009.safetensors", 7),
    "fingerprint list": set_field("fingerprint", []),
    "metrics none": set_field("metrics", None),
    "metrics 10**18 bytes": set_field("metrics", "bytes", 10**18),
    "metrics negative": set_field("metrics", "bytes", -1),
    "metrics without checksum": lambda m: m["metrics"].pop("sha256"),
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_manifest_with_right_checksums_but_wrong_fields_is_refused(
    run: Path, kind: str, capsys: Capture, watched: Path
) -> None:
    reseal(run / "ckpt" / NEWEST, MANIFESTS[kind])
    assert_refused(run, "", capsys)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("version", [2, 10**20])
def test_newer_format_is_refused_naming_both(
    out: Path, version: int, sealed: bool, capsys: Capture
) -> None:
    path = folder(out) / "ckpt" / NEWEST
    if sealed:
        reseal(path, set_field("format", version))
    else:
        text = (path / "manifest.json").read_text()
        (path / "manifest.json").write_text(text.replace('"format": 1', f'"format": {version}'))
    for args in (["verify", str(folder(out))], [*COMMAND, str(out), "--quiet"]):
        code, line = fails_with_one_line(args, capsys)
        assert code == 2
        assert f"has format {version}, this release reads format 1" in line
    assert path.exists()


def changed_tensors(run: Path, name: str, **changes: torch.Tensor | None) -> bytes:
    """A safetensors file of the newest checkpoint with some tensors replaced, or left out."""
    path = run / name if name == NEWEST_SEGMENT else run / "ckpt" / NEWEST / name
    tensors = load(path.read_bytes()) | changes
    return save({k: v for k, v in tensors.items() if v is not None})


WRONG_TENSORS: dict[str, tuple[str, dict[str, torch.Tensor | None]]] = {
    "metric of three numbers": (checkpoint.TENSORS, {"metric.x": torch.zeros(3)}),
    "weights not finite": (checkpoint.TENSORS, {"agent.x": torch.tensor([1.0, torch.nan])}),
    "episode without actions": (checkpoint.EPISODE, {"actions": None}),
    "episode with more": (checkpoint.EPISODE, {"more": torch.zeros(1)}),
    "actions of another width": (checkpoint.EPISODE, {"actions": torch.zeros(3, 5)}),
    "actions flat": (checkpoint.EPISODE, {"actions": torch.zeros(6)}),
    "actions doubles": (checkpoint.EPISODE, {"actions": torch.zeros(3, 2).double()}),
    "observation of another width": (checkpoint.EPISODE, {"obs": torch.zeros(4)}),
    "observation of integers": (checkpoint.EPISODE, {"obs": torch.zeros(3, dtype=torch.int32)}),
    "reward vector": (checkpoint.EPISODE, {"reward": torch.zeros(2).double()}),
    "pending rows of another width": (checkpoint.EPISODE, {"pending": torch.zeros(1, 5).double()}),
    "pending rows flat": (checkpoint.EPISODE, {"pending": torch.zeros(6).double()}),
    "pending rows of floats": (checkpoint.EPISODE, {"pending": torch.zeros(1, 6)}),
    "tail with more": (checkpoint.TAIL, {"rows.0": torch.zeros(1, 10)}),
    "segment doubles": (NEWEST_SEGMENT, {"rows": torch.zeros(16, 10).double()}),
    "segment flat": (NEWEST_SEGMENT, {"rows": torch.zeros(16)}),
    "segment of a number": (NEWEST_SEGMENT, {"rows": torch.tensor(1.0)}),
    "segment short": (NEWEST_SEGMENT, {"rows": torch.zeros(15, 10)}),
    "segment named otherwise": (NEWEST_SEGMENT, {"rows": None, "row": torch.zeros(16, 10)}),
}


@pytest.mark.parametrize("kind", WRONG_TENSORS)
def test_tensors_of_the_wrong_shape_name_or_type_are_refused(
    run: Path, kind: str, watched: Path
) -> None:
    name, changes = WRONG_TENSORS[kind]
    forge(run, name, changed_tensors(run, name, **changes))
    warnings: list[str] = []
    replay = Replay(64, EnvSpec("toy", 3, 2))
    found = checkpoint.newest(RunFolder(run), replay, warnings.append)
    assert found is not None
    assert found[0].step == 120
    assert len(warnings) == 1
    assert Path(name).name in warnings[0]


def test_replay_rows_of_another_width_are_refused(run: Path) -> None:
    forge(run, NEWEST_SEGMENT, save({"rows": torch.zeros(16, 11)}))
    warnings: list[str] = []
    checkpoint.newest(RunFolder(run), Replay(64, EnvSpec("toy", 3, 2)), warnings.append)
    assert "replay rows of 11 numbers, not 10" in warnings[0]


@pytest.mark.parametrize(
    "kind", ["shape", "type", "missing", "unknown", "generator", "no generator"]
)
def test_weights_that_do_not_fit_the_agent_end_training_with_one_line(
    out: Path, kind: str, capsys: Capture
) -> None:
    run = folder(out)
    names = load((run / "ckpt" / NEWEST / checkpoint.TENSORS).read_bytes())
    weight = next(k for k in sorted(names) if k.startswith("agent.actor") and names[k].dim() >= 1)
    changes: dict[str, dict[str, torch.Tensor | None]] = {
        "shape": {weight: torch.zeros(7, 7)},
        "type": {weight: names[weight].double()},
        "missing": {weight: None},
        "unknown": {"agent.more": torch.zeros(1)},
        "generator": {"stream.replay": torch.zeros(3, dtype=torch.uint8)},
        "no generator": {"stream.replay": None},
    }
    forge(run, checkpoint.TENSORS, changed_tensors(run, checkpoint.TENSORS, **changes[kind]))
    code, line = fails_with_one_line([*COMMAND, str(out), "--quiet"], capsys)
    assert code == 5
    assert "does not fit this agent" in line


def test_more_pending_rows_than_there_can_be_end_training_with_one_line(
    out: Path, capsys: Capture
) -> None:
    run = folder(out)
    rows = {"pending": torch.zeros(1, 6).double()}
    forge(run, checkpoint.EPISODE, changed_tensors(run, checkpoint.EPISODE, **rows))
    code, line = fails_with_one_line([*COMMAND, str(out), "--quiet"], capsys)
    assert code == 5
    assert "1 rows wait, --train.n-step 1 lets fewer" in line


CONFIGS: dict[str, Callable[[dict[str, Any]], None]] = {
    "unknown field": set_field("more", 1),
    "field missing": lambda c: c.pop("train"),
    "section text": set_field("train", "x"),
    "seed text": set_field("seed", "0"),
    "seed true": set_field("seed", True),
    "discount huge": set_field("train", "discount", 10**400),
    "unknown actor": set_field("actor", "type", "os.system"),
    "actor list": set_field("actor", []),
    "env code": set_field("env", 7),
    "out number": set_field("out", 5),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_sealed_config_with_wrong_fields_is_refused(out: Path, kind: str, capsys: Capture) -> None:
    run = folder(out)
    data = store.open_sealed_json((run / "config.json").read_bytes(), "")
    CONFIGS[kind](data["config"])
    (run / "config.json").write_bytes(store.to_sealed_json(data))
    with watching(out / "canary"):
        _, line = fails_with_one_line(["verify", str(run)], capsys)
    assert "config.json" in line
    code = main([*COMMAND, str(out), "--quiet"])
    err = capsys.readouterr().err
    assert code in (0, 2, 5)
    assert "Traceback" not in err


LINES = {
    "not a record": b"[]\n",
    "no step": b'{"kind": "train"}\n',
    "step text": b'{"kind": "train", "step": "1"}\n',
    "kind list": b'{"kind": [], "step": 1}\n',
    "evaluation without a mean": b'{"kind": "eval", "step": 1}\n',
    "evaluation of texts": (
        b'{"kind": "eval", "step": 1, "eval/return_mean": 1.0, '
        b'"eval/returns": ["x"], "eval/lengths": [1]}\n'
    ),
    "NaN": b'{"kind": "train", "step": 1, "x": NaN}\n',
}


@pytest.mark.parametrize("kind", LINES)
def test_log_with_right_checksum_but_wrong_lines_is_refused(
    out: Path, kind: str, capsys: Capture
) -> None:
    run = folder(out)
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes() + LINES[kind])
    mark = {"bytes": log.stat().st_size, "sha256": store.sha256(log.read_bytes())}
    reseal(run / "ckpt" / NEWEST, set_field("metrics", mark))
    for args in (["verify", str(run)], [*COMMAND, str(out), "--quiet"]):
        code, line = fails_with_one_line(args, capsys)
        assert code == 5
        assert "metrics.jsonl line" in line


BANNED_MODULES = {"pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal"}
BANNED_CALLS = r"extractall|allow_pickle=True|(?<![\w.])(torch\.load|yaml\.load|(eval|exec)\()"


def test_the_source_has_nothing_that_runs_what_it_reads() -> None:
    """No fall-back either: an error that leads to an unsafe reader is made by the attacker."""
    found = []
    for path in (Path(__file__).parents[2] / "src").rglob("*.py"):
        text = path.read_text()
        found += [f"{path.name}: {m[0]}" for m in re.finditer(BANNED_CALLS, text)]
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name}: {n}" for n in names if n.split(".")[0] in BANNED_MODULES]
    assert found == []
