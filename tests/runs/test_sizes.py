"""Sizes come first: no file of a stranger asks for memory before it is known to fit."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from bridgerl import load_agent
from bridgerl.cli.main import main
from bridgerl.errors import StorageFault
from bridgerl.runs import checkpoint, store
from bridgerl.runs.folder import RunFolder
from bridgerl.training import play
from runs.forgeries import FORGED_SIZES
from runs.strangers import COMMAND, copy_run, forge_checkpoint, forge_config, make_run

Capture = pytest.CaptureFixture[str]
GIANT = 40 * 2**30


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("original"))


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return copy_run(original, tmp_path / "out")


VERBS = ["verify RUN", "compare RUN RUN", "evaluate RUN", "train"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_giant_sparse_log_is_refused_in_one_line(
    run: Path, verb: str, tmp_path: Path, capsys: Capture
) -> None:
    os.truncate(run / "metrics.jsonl", GIANT)
    words = [str(run) if word == "RUN" else word for word in verb.split()]
    if verb != "train":
        assert main(words) == 5
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "metrics.jsonl is damaged: it has more than" in err
        return
    # Resuming looks at no more of it than the checkpoint saw, and cuts the rest off.
    assert main([*COMMAND, str(tmp_path / "out")]) == 0
    assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "evaluations.npz"])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_report_names_a_giant_sparse_log_and_goes_on(
    run: Path, name: str, sealed: bool, capsys: Capture
) -> None:
    if not sealed:
        (run / "DONE").unlink()
    if name == "evaluations.npz":
        (run / "metrics.jsonl").unlink()
    os.truncate(run / name, GIANT)
    assert main(["report", str(run)]) == 0
    assert "problems: " in capsys.readouterr().out


def test_a_giant_file_of_a_checkpoint_is_refused_before_it_is_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = RunFolder(run).last_weights()
    os.truncate(newest / checkpoint.TENSORS, GIANT)
    with pytest.raises(StorageFault, match="size or checksum differs"):
        checkpoint.load_weights(newest)
    manifest = store.read_manifest(newest)
    next(r for r in manifest["files"] if r["name"] == checkpoint.TENSORS)["size"] = GIANT
    (newest / "manifest.json").write_bytes(store.to_sealed_json(manifest))
    memory = type("Memory", (), {"available": 8 * 2**30})
    monkeypatch.setattr(store.psutil, "virtual_memory", lambda: memory)
    with pytest.raises(StorageFault, match="42,949,672,960 bytes do not fit into memory"):
        checkpoint.load_weights(newest)


@pytest.mark.parametrize("kind", FORGED_SIZES)
def test_forged_sizes_are_refused_before_networks_are_made(
    run: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge_config(run, FORGED_SIZES[kind])
    made: list[str] = []
    build = play.build_agent

    def watch(*parts: Any) -> Any:
        made.append(parts[3].device)
        return build(*parts)

    monkeypatch.setattr(play, "build_agent", watch)
    with pytest.raises(StorageFault, match=r"does not fit this agent|sizes"):
        load_agent(run)
    assert "cpu" not in made


@pytest.mark.parametrize("which", ["best", "last"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused_by_every_reader(
    run: Path, which: Any, value: float, capsys: Capture
) -> None:
    folder = RunFolder(run).weights(which)
    tensors = load((folder / checkpoint.TENSORS).read_bytes())
    name = next(k for k in sorted(tensors) if k.startswith("agent.actor") and tensors[k].dim())
    tensors[name].view(-1)[0] = value
    forge_checkpoint(folder, checkpoint.TENSORS, save(tensors))
    with pytest.raises(StorageFault, match=f"{name} is not finite"):
        load_agent(run, which)
    assert main(["evaluate", str(run), "--weights", which]) == 5
    assert main(["verify", str(run)]) == 5
    assert capsys.readouterr().err.count("\n") == 2
