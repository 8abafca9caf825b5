"""What a run folder tells without tensors: whose run it is, how far it is, what repeats it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridgerl.config import RunConfig, encode
from bridgerl.errors import StorageFault, UserError
from bridgerl.presets import command_of, resolve
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.search import find_runs
from bridgerl.types import EnvSpec

SPEC = EnvSpec("Hopper-v5", 11, 3)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return replace(resolve("Hopper-v5", "sac", "dbc"), steps=20_000, out=tmp_path)


@pytest.fixture
def run(config: RunConfig) -> RunFolder:
    folder = RunFolder(config.folder)
    folder.open(config, SPEC).release()
    return folder


def rewrite(run: RunFolder, data: dict) -> None:
    run.config_file.write_bytes(store.to_sealed_json(data))


def test_a_folder_gives_back_its_config_sizes_and_command(
    run: RunFolder, config: RunConfig
) -> None:
    assert run.read_config() == config
    assert run.sizes() == (11, 3)
    assert run.command() == command_of(config)
    assert set(run.stored()) == {"config", "sizes", "versions", "length", "command"}


def test_the_command_of_an_older_folder_is_worked_out(run: RunFolder, config: RunConfig) -> None:
    stored = run.stored()
    del stored["command"]
    rewrite(run, stored)
    assert run.command() == command_of(config)
    stored["config"]["preset"] = "my-own"
    rewrite(run, stored)
    assert run.command() == ""


def test_a_config_of_a_preset_of_ones_own_has_no_command(config: RunConfig) -> None:
    own = replace(config, preset="my-own")
    run = RunFolder(own.folder)
    run.open(own, SPEC).release()
    assert "command" not in run.stored()


def test_a_folder_holds_its_run_as_config_and_as_json(run: RunFolder, config: RunConfig) -> None:
    slower = config.changed(critic={"lr": 1e-5})
    for wanted, same in ((config, True), (slower, False), (replace(config, steps=30_000), True)):
        plain = json.loads(json.dumps(encode(wanted), default=str))
        assert run.holds(wanted) == run.holds(plain) == same


def test_a_warmup_that_is_left_open_is_the_one_that_the_run_began_with(
    run: RunFolder, config: RunConfig
) -> None:
    longer = replace(config, steps=30_000)
    assert (config.warmup, longer.warmup) == (2_000, 3_000)
    for warmup, same in ((None, True), (2_000, True), (3_000, False)):
        assert run.holds(longer.changed(train={"warmup": warmup})) == same


def test_a_field_that_an_older_release_did_not_write_has_its_default(
    run: RunFolder, config: RunConfig
) -> None:
    stored = run.stored()
    del stored["config"]["train"]["compile"]
    rewrite(run, stored)
    assert run.holds(config)
    stored["config"]["train"]["not_yet_known"] = 1
    rewrite(run, stored)
    with pytest.raises(StorageFault, match="not_yet_known"):
        run.holds(config)
    assert not run.is_done(config)


def test_a_run_is_done_once_it_has_all_steps_of_the_very_config(
    run: RunFolder, config: RunConfig
) -> None:
    assert (run.done(), run.is_done(config)) == (None, False)
    run.write_done({"step": 20_000})
    assert run.is_done(config)
    assert run.is_done(json.loads(json.dumps(encode(config), default=str)))
    assert not run.is_done(replace(config, steps=20_001))
    assert not run.is_done(replace(config, seed=1))
    run.done_file.write_text("{}")
    with pytest.raises(StorageFault, match="no step inside"):
        run.done()


def test_progress_is_read_from_whole_lines_and_odd_ones_tell_nothing(run: RunFolder) -> None:
    assert (run.progress(), run.last_return()) == (0, None)
    run.timing_file.write_text('{"step": 1000}\n{"step": 2000}\n{"step": 30')
    run.metrics_file.write_text(
        '{"kind": "eval", "step": 1, "eval/return_mean": 7.5}\n{"kind": "train", "step": 2}\n'
    )
    assert (run.progress(), run.last_return()) == (2000, 7.5)
    run.timing_file.write_text('{"step": 1000}\nno "step" at all\n')
    assert run.progress() == 0


def test_values_belong_to_the_weights_they_were_measured_with(run: RunFolder) -> None:
    assert run.values() is None
    run.metrics_file.touch()
    run.write_values("last", 10, {"relative_q_bias": 0.5})
    for newest, current in ((None, False), (10, True), (20, False)):
        if newest is not None:
            run.checkpoint("step", newest).mkdir()
        values = run.values()
        assert values is not None
        assert (values["weights"], values["step"], values["current"]) == ("last", 10, current)


def test_values_of_older_releases_are_read(run: RunFolder) -> None:
    run.values_file.write_text('{"weights": "best", "step": 10, "relative_bias": -0.25}')
    values = run.values()
    assert values is not None
    assert values["relative_q_bias"] == -0.25


def test_best_weights_are_those_of_the_best_evaluation_that_are_on_disk(run: RunFolder) -> None:
    scores = {10: 1.0, 20: 9.0, 30: 5.0}
    rows = [
        {"kind": "eval", "step": s, "eval/return_mean": r, "eval/returns": [r], "eval/lengths": [1]}
        for s, r in scores.items()
    ]
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="no checkpoint yet"):
        run.weights("best")
    for step in (10, 30):
        run.checkpoint("weights", step).mkdir()
    assert run.weights("best") == run.checkpoint("weights", 30)
    run.checkpoint("step", 40).mkdir()
    assert run.weights("last") == run.checkpoint("step", 40)


def test_runs_are_found_below_a_root_but_not_inside_of_each_other(
    run: RunFolder, tmp_path: Path
) -> None:
    run.metrics_file.touch()
    for folder in (run.replay, tmp_path / "theirs", tmp_path / ".hidden"):
        folder.mkdir(exist_ok=True)
        (folder / "evaluations.npz").touch()
    found = find_runs(tmp_path, lambda error: pytest.fail(str(error)))
    assert [r.path for r in found] == [run.path, tmp_path / "theirs"]


def test_reading_folders_takes_no_torch(run: RunFolder, config: RunConfig, tmp_path: Path) -> None:
    run.write_done({"step": 20_000})
    (tmp_path / "job.json").write_text(json.dumps(encode(config), default=str))
    code = (
        "import json, sys; from pathlib import Path; from bridgerl.runs.folder import RunFolder; "
        "run = RunFolder(Path(sys.argv[1])); "
        "print(run.is_done(json.loads(Path(sys.argv[2]).read_bytes())), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(run.path), str(tmp_path / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
