"""Bad input: exit code 2, one line that names the flag, and nothing created or changed."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bridgerl import __version__
from bridgerl.actors import ACTORS
from bridgerl.cli.main import VERBS, main
from bridgerl.critics import CRITICS
from bridgerl.ops.measures import KINDS
from bridgerl.presets import PRESETS, environments
from bridgerl.studies import SCALES, STUDIES
from conftest import TINY, Run, finished

ENV = "--env toy_envs:Point-v0"
TOY = f"{ENV} --critic cdq"
TD3 = f"{TOY} --actor td3"

# (arguments, fragments of the message); words are split at blanks, {} is an empty word.
TABLE: list[tuple[str, str]] = [
    # Verbs.
    ("trian", "unknown command 'trian'; did you mean train?"),
    ("verifyy", "did you mean verify?"),
    ("xyz", "known: train, sweep"),
    ("--env Hopper-v5", "unknown command '--env'"),
    ("{}", "unknown command ''"),
    # Names.
    ("train", "train needs --env"),
    ("train --env Hoper-v5", "did you mean Hopper-v5?"),
    ("train --env Hopper-v9", "did you mean Hopper-v"),
    ("train --env toy_envs:Pont-v0", "did you mean toy_envs:Point-v0?"),
    ("train --env no_such_module:Env-v0", "No module named 'no_such_module'; is it installed"),
    ("train --env NoSpace/Env-v0", "unknown environment 'NoSpace/Env-v0'"),
    ("train --env not!an!id", "'not!an!id' cannot be made"),
    ("train --env Hopper-v3", "'Hopper-v3' cannot be made"),
    ("train --env faulty_envs:RaisesWhenMade-v0", "no display"),
    ("train --env faulty_envs:LeavesWhenMade-v0", "cannot be made: SystemExit: 0"),
    ("train --env faulty_envs:FailsToBeMade-v0", "cannot be made: AssertionError"),
    ("train --env ALE/Pong-v5", "no package has registered ALE/: name the module"),
    ("train --env Pusher-v9x", "did you mean Pusher-v5?"),
    (f"train {TOY} --actor sax", "unknown actor 'sax'; did you mean sac? (known: sac, td3, qvpo)"),
    (f"train {ENV} --critic cdw", "unknown critic 'cdw'; did you mean cdq?"),
    (f"train {TOY} --preset light", "unknown preset 'light'; did you mean lite?"),
    (
        f"train {TOY} --critic.polyack 1",
        "unknown flag '--critic.polyack'; did you mean --critic.pol",
    ),
    (f"train {TOY} --critic.polyack 1", "did you mean --critic.polyak?"),
    (f"train {TOY} --sed=1", "did you mean --seed?"),
    (f"train {TOY} --quite", "did you mean --quiet?"),
    (f"train {TOY} -x", "unknown flag '-x'"),
    (f"train {TOY} --render", "unknown flag '--render' (see bridgerl train --help)"),
    (f"train {TOY} --norm-obs", "did you mean --train.normalize-obs?"),
    (f"train {TOY} --batch-sise 3", "did you mean --train.batch-size?"),
    # How an environment is made.
    (f"train {TOY} --env-kwargs 3", "--env-kwargs must be a JSON object in braces, got '3'"),
    (f"train {TOY} --env-kwargs a=3", """must be a JSON object like '{"name": 1,"""),
    (f'train {TOY} --env-kwargs {{"a":NaN}}', "NaN is no JSON number"),
    (f'train {TOY} --env-kwargs {{"max_episode_steps":3}}', "use --env-time-limit"),
    (f'train {TOY} --env-kwargs {{"no_such":3}}', "takes no arguments was raised"),
    (f"train {TOY} --env-time-limit 0", "--env-time-limit must be from 1 to"),
    (f"train {TOY} --env-frame-skip 0", "--env-frame-skip must be from 1 to 1000, got 0"),
    (f"train {TOY} --env-wrappers ClipRewrd", "wrapper 'ClipRewrd'; did you mean ClipReward?"),
    (f"train {TOY} --env-wrappers NormalizeReward", "use --train.normalize-returns"),
    (f"train {TOY} --env-wrappers ClipReward=3", "--env-wrappers ClipReward= must be a JSON"),
    (f'train {TOY} --env-wrappers ClipReward={{"a":3}}', "Point-v0 cannot be wrapped: "),
    (f"train {TOY} --env-wrappers no_such:Wrapper", "no_such:Wrapper cannot be imported"),
    (f"train {TOY} --env-factory make_env", "must be like my_module:make_env"),
    (f"train {TOY} --env-factory toy_envs:no_such", "AttributeError: module 'toy_envs' has no"),
    (f"train {TOY} --env-factory toy_envs:np.zeros", "is no function that can be imported"),
    (f"train {TOY} --critic.actor-q max", "'max' for argument '--critic.actor-q'"),
    (f"train {TOY} --actor.explore-noise 0.1", "a flag of actor td3; add --actor td3"),
    (f"train {TD3} --actor.temperature 1", "a flag of actor sac; add --actor sac"),
    # The form of a command line.
    (f"train {TOY} --seed", "'--seed'"),
    (f"train {TOY} --actor", "--actor needs a value"),
    ("train --env --seed 1", "--env needs a value"),
    (f"train {TOY} --seed {{}}", "--seed is empty"),
    (f"train {TOY} --out=", "--out is empty"),
    ("train --env {}", "--env is empty"),
    (f"train {TOY} --seed 1 --seed=2", "--seed is given more than once"),
    (f"train {TOY} --actor sac --actor td3", "--actor is given more than once"),
    (f"train {TOY} --train.batch-size 8 --train.batch_size 8", "given more than once"),
    (f"train {TOY} --log.tensorboard --log.no-tensorboard", "given more than once"),
    (f"train {TOY} --log.tensorboard=no", "'no'"),
    (f"train {TOY} stray", "unexpected argument 'stray'"),
    (f"train {TOY} -- stray", "unexpected argument 'stray'"),
    # Wrong types.
    (f"train {TOY} --steps many", "--steps takes INT, got 'many'"),
    (f"train {TOY} --steps 1e6", "--steps takes INT, got '1e6'"),
    (f"train {TOY} --steps 1.0", "--steps takes INT, got '1.0'"),
    (f"train {TOY} --steps nan", "--steps takes INT, got 'nan'"),
    (f"train {TOY} --steps {'9' * 5000}", "--steps takes INT"),
    (f"train {TOY} --train.batch_size=x", "--train.batch-size takes INT, got 'x'"),
    (f"train {TOY} --train.discount 0,9", "--train.discount takes FLOAT, got '0,9'"),
    (f"train {TOY} --critic.grad-clip off", "--critic.grad-clip takes {None}|FLOAT, got 'off'"),
    (f"train {TOY} --actor.hidden 8 x", "--actor.hidden takes [INT [INT ...]], got '8 x'"),
    (f"train {TOY} --actor.hidden 8,8", "--actor.hidden takes [INT [INT ...]], got '8,8'"),
    # Wrong ranges.
    (f"train {TOY} --steps 0", "--steps must be from 1 to"),
    (f"train {TOY} --steps 1000000000000", "--steps must be from 1 to"),
    (f"train {TOY} --seed -1", "--seed must be from 0 to 2**32 - 1, got -1"),
    (f"train {TOY} --seed 4294967296", "--seed must be from 0 to 2**32 - 1"),
    (f"train {TOY} --train.batch-size 0", "--train.batch-size must be at least 1, got 0"),
    (f"train {TOY} --train.buffer-size 0", "--train.buffer-size must be from 1"),
    (f"train {TOY} --train.buffer-size {10**30}", "--train.buffer-size must be from 1"),
    (f"train {TOY} --train.warmup x", "--train.warmup takes {None}|INT, got 'x'"),
    (f"train {TOY} --steps 1", "--train.warmup 1 leaves nothing of --steps 1 to learn in"),
    (f"train {TOY} --train.warmup 0", "--train.warmup must be at least 1, got 0"),
    (f"train {TOY} --train.updates-per-step 0", "--train.updates-per-step must be from 0.001"),
    (f"train {TOY} --train.updates-per-step inf", "must be from 0.001 to 1000, got inf"),
    (f"train {TOY} --train.n-step 0", "--train.n-step must be at least 1, got 0"),
    (f"train {TOY} --train.discount 1", "--train.discount must be in [0, 1), got 1.0"),
    (f"train {TOY} --train.discount -0.1", "--train.discount must be in [0, 1), got -0.1"),
    (f"train {TOY} --train.discount nan", "--train.discount must be in [0, 1), got nan"),
    (f"train {TOY} --train.threads -1", "--train.threads must be from 0 to 1024, got -1"),
    (f"train {TOY} --train.threads 1025", "--train.threads must be from 0 to 1024"),
    (f"train {TOY} --train.compile", "--train.compile is for CUDA"),
    (f"train {TOY} --eval.every 0", "--eval.every must be at least 1"),
    (f"train {TOY} --eval.episodes 0", "--eval.episodes must be at least 1"),
    (f"train {TOY} --eval.stop-at nan", "--eval.stop-at must be finite"),
    (f"train {TOY} --eval.stop-at inf", "--eval.stop-at must be finite"),
    (f"train {TOY} --log.every -5", "--log.every must be at least 1, got -5"),
    (f"train {TOY} --save.every 0", "--save.every must be at least 1"),
    (f"train {TOY} --save.keep 0", "--save.keep must be at least 1"),
    (f"train {TOY} --save.weights-every 0", "--save.weights-every must be at least 1"),
    (f"train {TOY} --actor.lr 0", "--actor.lr must be in (0, 1), got 0.0"),
    (f"train {TOY} --critic.lr 1e400", "--critic.lr must be in (0, 1), got inf"),
    (f"train {TOY} --critic.lr nan", "--critic.lr must be in (0, 1), got nan"),
    (f"train {TOY} --actor.adam-eps 0", "--actor.adam-eps must be in (0, 1)"),
    (f"train {TOY} --critic.adam-eps -1", "--critic.adam-eps must be in (0, 1)"),
    (f"train {TOY} --actor.beta1 1", "--actor.beta1 must be in [0, 1), got 1.0"),
    (f"train {TOY} --critic.beta1 -0.1", "--critic.beta1 must be in [0, 1), got -0.1"),
    (f"train {TOY} --critic.beta2 nan", "--critic.beta2 must be in [0, 1), got nan"),
    (f"train {TOY} --critic.weight-decay -1", "--critic.weight-decay must be from 0 to below"),
    (
        f"train {TOY} --actor.weight-decay 100 --actor.lr 0.01",
        "--actor.weight-decay must be from 0 to below 1 / lr, got 100.0",
    ),
    (f"train {TOY} --actor.grad-clip 0", "--actor.grad-clip must be positive and finite, or None"),
    (f"train {TOY} --critic.grad-clip inf", "--critic.grad-clip must be positive and finite"),
    (f"train {TOY} --actor.delay 0", "--actor.delay must be at least 1"),
    (f"train {TOY} --actor.hidden 0", "--actor.hidden must be one or more widths"),
    (f"train {TOY} --actor.hidden", "--actor.hidden must be one or more widths"),
    (f"train {TOY} --critic.hidden 8 65537", "--critic.hidden must be one or more widths"),
    (f"train {TOY} --critic.n-heads 0", "--critic.n-heads must be from 1 to 1024"),
    (f"train {TOY} --critic.n-heads 1025", "--critic.n-heads must be from 1 to 1024"),
    (f"train {TOY} --critic.polyak 0", "--critic.polyak must be in (0, 1], got 0.0"),
    (f"train {TOY} --critic.polyak 1.5", "--critic.polyak must be in (0, 1], got 1.5"),
    (f"train {TOY} --critic.target-every 0", "--critic.target-every must be at least 1"),
    (f"train {TOY} --actor.temperature 0", "--actor.temperature must be positive and finite"),
    (f"train {TOY} --actor.temperature inf", "--actor.temperature must be positive and finite"),
    (f"train {TOY} --actor.temperature-lr 0", "--actor.temperature-lr must be in (0, 1)"),
    (f"train {TOY} --actor.target-entropy nan", "--actor.target-entropy must be finite"),
    (f"train {TD3} --actor.polyak 0", "--actor.polyak must be in (0, 1]"),
    (f"train {TD3} --actor.explore-noise -1", "--actor.explore-noise must be finite"),
    (f"train {TD3} --actor.target-noise nan", "--actor.target-noise must be finite"),
    (f"train {TD3} --actor.target-noise-clip inf", "--actor.target-noise-clip must be finite"),
    # The lab.
    ("league --critics dbcc", "unknown critic 'dbcc'; did you mean dbc?"),
    ("league --critics", "--critics needs at least one"),
    ("league --no-plot --plot", "given more than once"),
    ("league --critics cdq cdq", "--critics names one twice"),
    ("league --tasks two-pint", "unknown task 'two-pint'; did you mean two-point?"),
    ("league --tasks", "--tasks needs at least one"),
    ("league --seeds -1", "--seeds must be from 0 to 2**32 - 1, got -1"),
    ("league --seeds 1 1", "--seeds names one twice"),
    ("league --seeds x", "--seeds"),
    ("league --updates 0", "--updates must be from 1"),
    ("league --batch 0", "--batch must be from 1"),
    ("league --workers 0", "--workers must be from 1"),
    ("league --upates 3", "did you mean --updates?"),
    ("league --out file", "--out file/cells cannot be written"),
    ("toy --critics flw", "unknown critic 'flw'; did you mean flow?"),
    ("toy --seeds", "--seeds needs at least one"),
    ("toy --fit-steps 0", "--fit-steps must be from 1"),
    ("toy --discount 1.5", "--discount must be in (0, 1]"),
    ("toy --lr 0", "--lr must be in (0, 1)"),
    ("toy --seed 1", "did you mean --seeds?"),
    ("toy --out file", "--out file cannot be written"),
    ("bridge-error --schedules cosin", "unknown schedule 'cosin'; did you mean cosine?"),
    ("bridge-error --steps 3 3", "--steps names one twice"),
    ("bridge-error --schedules", "--schedules needs at least one"),
    ("bridge-error --steps", "--steps needs at least one"),
    ("bridge-error --steps 0", "--steps must be from 1"),
    ("bridge-error --theta 0", "--theta must be positive and finite, got 0.0"),
    ("bridge-error --theta-min -1", "--theta-min must be positive and finite"),
    ("bridge-error --theta-max 0.01", "--theta-max must be finite and at least"),
    ("bridge-error --out file", "--out file cannot be written"),
    # Wrong combinations.
    (
        f"train {TOY} --train.batch-size 64 --train.buffer-size 32",
        "--train.batch-size 64 is larger than --train.buffer-size 32; lower the first",
    ),
    (
        f"train {TOY} --steps 500 --train.warmup 10000",
        "--train.warmup 10000 leaves nothing of --steps 500 to learn in; lower --train.warmup",
    ),
    (
        f"train {TOY} --train.n-step 6 --train.warmup 5",
        "--train.n-step 6 is more than --train.warmup 5; lower the first or raise the second",
    ),
    (f"train {TOY} --steps 500 --train.warmup 500", "lower --train.warmup or raise --steps"),
    (
        "train --env Humanoid-v5 --train.buffer-size 1000000000 --steps 1000000000",
        "lower --train.buffer-size to about",
    ),
    # Devices.
    (f"train {TOY} --train.device gpu", "device 'gpu' cannot be used"),
    (f"train {TOY} --train.device cuda:99", "try --train.device cpu"),
    (f"train {TOY} --train.device meta", "try --train.device cpu"),
    # Folders.
    (f"train {TOY} --out file", "is a file where a folder is needed; change --out"),
    (f"train {TOY} --out file/below", "is a file where a folder is needed; change --out"),
    (f"train {TOY} --out {'x' * 300}", "change --out"),
    (f"train {TOY} --out /proc/no/such", "change --out"),
    (f"train {TOY} --out a\0b", "--out must be text without control characters"),
    (f"train {TOY} --out a\udcffb", "--out must be text without control characters"),
    (f"train {TOY} --name ../x", "--name must be letters, digits"),
    (f"train {TOY} --name a/b", "--name must be letters, digits"),
    (f"train {TOY} --name .hidden", "--name must be letters, digits"),
    (f"train {TOY} --name {{}}", "--name is empty"),
    (f"train {TOY} --name {'x' * 65}", "--name must be letters, digits"),
    # Spaces.
    ("train --env CartPole-v1", "Discrete action space; continuous control needs a Box"),
    ("train --env faulty_envs:DiscreteAction-v0", "Discrete action space"),
    ("train --env faulty_envs:MultiDiscreteAction-v0", "MultiDiscrete action space"),
    ("train --env faulty_envs:TupleAction-v0", "Tuple action space"),
    ("train --env faulty_envs:EmptyAction-v0", "empty action space"),
    ("train --env faulty_envs:UnboundedAction-v0", "infinite or NaN bounds"),
    ("train --env faulty_envs:NanAction-v0", "infinite or NaN bounds"),
    ("train --env faulty_envs:IntegerAction-v0", "int64 actions; floating point is needed"),
    ("train --env faulty_envs:FlatAction-v0", "low is not below its high"),
    ("train --env faulty_envs:GraphObservation-v0", "Graph observation space; a Box is needed"),
    ("train --env faulty_envs:TextInDict-v0", "Dict observation space with a Text in it"),
    ("train --env faulty_envs:EmptyObservation-v0", "empty observation space"),
    # The other verbs.
    ("evaluate", "RUN Run folder. (required)"),
    ("evaluate nowhere", "nowhere is not a run folder"),
    ("evaluate file", "file is not a run folder"),
    (f"evaluate {'x' * 300}", "is not a run folder"),
    ("evaluate empty", "empty is not a run folder: it has no config.json"),
    ("evaluate empty --episodes 0", "--episodes must be at least 1, got 0"),
    ("evaluate empty --episodes x", "--episodes takes INT, got 'x'"),
    ("evaluate empty --seed -1", "--seed must be from 0"),
    ("evaluate empty --weights bst", "Expected one of ('best', 'last')"),
    ("evaluate empty empty", "unexpected argument 'empty'"),
    ("evaluate empty --episode 3", "did you mean --episodes?"),
    ("verify", "RUN Run folder. (required)"),
    ("verify empty", "empty is not a run folder"),
    ("verify empty --jsn", "did you mean --json?"),
    ("compare empty", "RUN Run folder. (required)"),
    ("compare empty nowhere", "empty is not a run folder"),
    ("check-env", "ENV"),
    ("check-env Hoper-v5", "did you mean Hopper-v5?"),
    ("check-env CartPole-v1", "Discrete action space"),
    ("bench --pairs sax+cdq", "unknown actor 'sax'; did you mean sac?"),
    ("bench --pairs sac+cdq sac+cdq", "--pairs names one twice"),
    ("bench --pairs", "--pairs needs at least one"),
    ("bench --env CartPole-v1", "Discrete action space"),
    ("bench --seconds 0", "--seconds must be in (0, 3600)"),
    ("bench --peers nowhere/python", "--peers nowhere/python cannot be run"),
    ("bench --repeats 0", "--repeats must be at least 1"),
    ("bench --threads 0", "--threads must be at least 1"),
    ("bench --second 3", "did you mean --seconds?"),
    ("list everything", "unexpected argument 'everything'"),
    ("list --jsonn", "did you mean --json?"),
]


def words(line: str) -> list[str]:
    return ["" if word == "{}" else word for word in line.split(" ")]


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a file and an empty folder in it."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def same_process() -> Iterator[None]:
    """Commands in this process leave its signals and torch's threads alone."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    threads = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == threads
    assert [signal.getsignal(number) for number in numbers] == handlers


@pytest.mark.parametrize(("line", "fragment"), TABLE, ids=[line[:70] for line, _ in TABLE])
def test_bad_input_is_refused_in_one_line_and_changes_nothing(
    line: str, fragment: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(workplace)
    code = main(words(line))
    out, err = capsys.readouterr()
    assert fragment in err
    assert code == 2
    assert err.startswith("bridgerl: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""
    assert snapshot(workplace) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"train {TOY} --train.batch-size x",
            "--train.batch-size takes INT, got 'x' (see bridgerl train --help)",
        ),
        (f"train {TOY} --critic.polyak 2", "--critic.polyak must be in (0, 1], got 2.0"),
        ("evaluate nowhere", "nowhere is not a run folder: it has no config.json"),
    ],
)
def test_bad_input_to_the_real_program_exits_2(
    line: str, message: str, workplace: Path, cli: Run
) -> None:
    before = snapshot(workplace)
    # A narrow terminal must not break the line.
    result = cli(*words(line), cwd=workplace, COLUMNS="20")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"bridgerl: error: {message}\n"
    assert snapshot(workplace) == before


def test_bad_input_reads_the_same_on_a_narrow_colour_terminal(workplace: Path) -> None:
    terminal, program_side = os.openpty()
    args = [sys.executable, "-m", "bridgerl", "evaluate", "empty", "--weights", "bst"]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "20", "OMP_NUM_THREADS": "1"}
    code = finished(args, env=env, stdout=program_side, stderr=program_side).returncode
    text = os.read(terminal, 10_000).decode()
    os.close(program_side)
    os.close(terminal)
    assert code == 2
    wanted = "invalid choice 'bst' for argument '--weights'. Expected one of ('best', 'last')."
    assert text == f"bridgerl: error: {wanted} (see bridgerl evaluate --help)\r\n"


def test_another_config_in_the_same_folder_is_refused(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--quiet"]) == 0
    before = snapshot(workplace)
    capsys.readouterr()
    assert main([*TINY, "--quiet", "--train.discount", "0.5"]) == 2
    err = capsys.readouterr().err
    assert "train.discount was 0.99, now 0.5" in err
    assert err.count("\n") == 1
    assert snapshot(workplace) == before


def test_equals_signs_and_odd_folders_are_fine(workplace: Path) -> None:
    out = "a folder/größe 木"
    assert main([*TINY, "--quiet", f"--out={out}", "--seed=3", "--actor=td3"]) == 0
    run = workplace / out / "toy_envs_Point-v0" / "td3-cdq-lite" / "seed3"
    assert json.loads((run / "DONE").read_bytes())["step"] == 600
    assert main(["verify", str(run)]) == 0
    assert main(["compare", str(run), str(run)]) == 0
    assert main(["evaluate", str(run), "--episodes=1", "--json"]) == 0


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_shows_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert f"Example: bridgerl {verb}" in out
    assert err == ""


def test_help_of_train_shows_the_flags_of_the_chosen_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--actor", "td3", "--critic", "cdq", "--steps", "x", "--help"])
    out = capsys.readouterr().out
    wanted = ["--actor.explore-noise", "--critic.n-heads", "--quiet"]
    for flag, names in (("--actor", ACTORS), ("--critic", CRITICS), ("--preset", PRESETS)):
        wanted.append(f"{flag} {{{','.join(names)}}}")
    assert [text for text in wanted if text not in out] == []
    assert "--actor.temperature" not in out


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"]])
def test_overview_names_every_verb(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    out = capsys.readouterr().out
    assert [verb for verb in VERBS if f"  {verb} " not in out] == []
    assert "Example: bridgerl train" in out


def test_list_prints_the_registries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "actors": list(ACTORS),
        "critics": list(CRITICS),
        "presets": list(PRESETS),
        "studies": list(STUDIES),
        "risk": [f"{name}:{kind.example:g}" for name, kind in KINDS.items()],
        "scales": list(SCALES),
        "environments": environments(),
    }


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bridgerl {__version__}\n"
