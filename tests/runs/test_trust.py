"""No code that a stranger's folder names is run, whatever verb looks at the folder."""

import sys
from pathlib import Path

import pytest

from bridgerl import load_agent
from bridgerl.cli.main import VERBS, main
from bridgerl.errors import UserError
from bridgerl.runs import trust
from bridgerl.training.play import play
from conftest import Run
from runs.forgeries import LOOKS, plant_payload
from runs.strangers import copy_run, forge_config, make_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("original"))


@pytest.fixture
def stranger(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder whose config names a module that lies where Python would find it."""
    run = copy_run(original, tmp_path / "out")
    plant_payload(run, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "payload", raising=False)
    monkeypatch.setattr(trust, "_TRUSTED", set())
    return run


READ_NO_RUNS = {"bench", "race", "check-env", "list", "league", "toy", "bridge-error"}
READ_NO_RUNS |= {"gamble", "unpack", "sweep", "tune"}
"""Verbs whose environments the user types; what `race` and `league` keep names no environment."""


def test_every_verb_is_looked_at() -> None:
    assert {words[0] for words in LOOKS.values()} | READ_NO_RUNS == set(VERBS)


@pytest.mark.parametrize("look", LOOKS)
def test_no_verb_imports_the_module_that_a_folder_names(
    stranger: Path, look: str, tmp_path: Path, capsys: Capture
) -> None:
    places = {"RUN": str(stranger), "OUT": str(tmp_path / "out")}
    code = main([places.get(word, word) for word in LOOKS[look]])
    assert not (tmp_path / "canary").exists()
    assert "payload" not in sys.modules
    if look.startswith(("evaluate", "calibrate", "resume")):
        assert code == 2
        err = capsys.readouterr().err
        assert err.startswith("bridgerl: error: ")
        assert err.count("\n") == 1
        assert "--trust-env payload" in err


@pytest.mark.parametrize("look", ["evaluate", "calibrate"])
def test_a_module_that_the_user_names_is_imported(stranger: Path, look: str) -> None:
    words = [str(stranger) if word == "RUN" else word for word in LOOKS[look]]
    assert main([*words, "--trust-env", "payload" if look == "evaluate" else "payload:Own-v0"]) == 0
    assert Path("canary").exists()


KWARGS = {
    "a wrapper": ("payload", {"env_wrappers": ["payload:Wrapper"]}),
    "a factory": ("payload", {"env_factory": "payload:make"}),
    "an id": ("Noisy/Hopper-v5", {"env_kwargs": '{"env_id": "payload:Own-v0"}'}),
    "a file": ("Ant-v5", {"env_kwargs": '{"xml_file": "/tmp/ant.xml"}'}),
    "deep": ("Ant-v5", {"env_kwargs": '{"a": [{"b": "x/y"}]}'}),
    "of a wrapper": ("Ant-v5", {"env_wrappers": ['FilterObservation={"filter_keys": ["a.b"]}']}),
}


@pytest.mark.parametrize("case", KWARGS)
def test_no_code_or_file_that_a_folder_names_for_its_environment_is_touched(
    stranger: Path, tmp_path: Path, case: str, capsys: Capture
) -> None:
    trusted, changes = KWARGS[case]
    env = "Ant-v5" if trusted == "payload" else trusted
    forge_config(stranger, lambda stored: stored["config"].update(env=env, **changes))
    assert main(["evaluate", str(stranger), "--episodes", "1"]) == 2
    assert f"add --trust-env {trusted}" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()
    main(["evaluate", str(stranger), "--trust-env", trusted, "--episodes", "1"])
    assert "add --trust-env" not in capsys.readouterr().err  # If it fails, then otherwise.
    assert (tmp_path / "canary").exists() == (trusted == "payload" or case == "an id")


def test_plain_words_and_numbers_of_a_folder_are_handed_on(stranger: Path, capsys: Capture) -> None:
    kwargs = '{"pay": 2, "kind": "plain"}'
    change = {"env": "own_envs:Reach-v0", "env_kwargs": kwargs}
    forge_config(stranger, lambda stored: stored["config"].update(change))
    assert main(["evaluate", str(stranger), "--trust-env", "toy_envs,own_envs"]) == 2
    assert "has other sizes now" in capsys.readouterr().err


def test_a_critic_that_is_not_registered_is_not_called_damage(
    stranger: Path, capsys: Capture
) -> None:
    forge_config(stranger, lambda stored: stored["config"]["critic"].update(type="own_critic"))
    assert main(["evaluate", str(stranger)]) == 2
    err = capsys.readouterr().err
    assert "critic 'own_critic' is not registered here; install its package" in err
    assert "damaged" not in err


def test_a_fresh_process_finds_a_trusted_module_in_its_working_folder(
    stranger: Path, tmp_path: Path, cli: Run
) -> None:
    ended = cli("evaluate", str(stranger), "--trust-env", "payload", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_another_module_than_the_one_named_is_still_refused(
    stranger: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["evaluate", str(stranger), "--trust-env", "toy_envs"]) == 2
    assert "--trust-env payload" in capsys.readouterr().err
    assert main(["evaluate", str(stranger), "--trust-env", "not_there"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()


def test_python_loads_an_agent_without_its_module_and_plays_it_after_an_import(
    stranger: Path, tmp_path: Path
) -> None:
    assert load_agent(stranger, "last")[1] == 80
    with pytest.raises(UserError, match="payload"):
        play(stranger, "last", 1, 0)
    assert not (tmp_path / "canary").exists()
    __import__("payload")
    assert len(play(stranger, "last", 1, 0)["returns"]) == 1
