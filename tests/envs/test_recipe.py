"""How environments are made: arguments, wrappers, limits, factories, and what a run keeps of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import own_envs
from bridgerl import resolve, train
from bridgerl.cli.main import main
from bridgerl.config import RunConfig
from bridgerl.envs import recipe
from bridgerl.envs.recipe import Recipe, name_of
from bridgerl.envs.task import Task
from bridgerl.errors import UserError
from bridgerl.presets import command_of
from bridgerl.runs.folder import RunFolder
from conftest import TINY

REACH, POINT = "own_envs:Reach-v0", "toy_envs:Point-v0"
Capture = pytest.CaptureFixture[str]


def small(out: Path, env: str = REACH, steps: int = 60, **how: Any) -> RunConfig:
    config = resolve(env, "sac", "cdq")
    return config.changed(
        out=out,
        steps=steps,
        train={"warmup": 40, "batch_size": 8, "buffer_size": 100},
        eval={"every": 30, "episodes": 1},
        log={"tensorboard": False},
        save={"every": 30},
        **how,
    )


def cli_train(out: Path, *more: str, env: str = REACH, steps: int = 60) -> int:
    words = [env if w == POINT else str(steps) if w == "600" else w for w in TINY]
    words[words.index("100")] = "40"
    return main([*words, "--quiet", "--out", str(out), *more])


def test_observations_of_every_kind_are_flattened_as_gymnasium_does() -> None:
    task = Task(REACH, 0)
    plain = own_envs.Reach()
    assert task.spec.obs_dim == gym.spaces.flatdim(plain.observation_space) == 2 + 3 + 2 + 2 + 5
    first = task.reset(0)
    seen, _ = plain.reset(seed=task._episode_seed)
    wanted = gym.spaces.flatten(plain.observation_space, seen)
    np.testing.assert_array_equal(first, np.asarray(wanted, np.float32))


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(4, start=2),
        gym.spaces.MultiDiscrete([3, 2]),
        gym.spaces.MultiBinary(3),
        gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2, 2)))),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_space_alone_is_flattened(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_envs.Reach, "observation_space", space)
    monkeypatch.setattr(own_envs.Reach, "_see", lambda self: space.sample())
    space.seed(0)
    task = Task(REACH, 0)
    task.reset(0)
    assert task.step(np.zeros(2, np.float32)).obs.shape == (gym.spaces.flatdim(space),)


def test_arguments_wrappers_limit_and_skip_make_the_environment() -> None:
    how = Recipe(REACH, {"pay": 3.0}, ("own_envs:Doubled", 'ClipReward={"min_reward": -4}'), 12, 3)
    task = Task(how, 0)
    inner: Any = task.env.unwrapped
    assert inner.pay == 3.0
    assert task.time_limit == 4
    task.reset(0)
    rewards, done = [], False
    while not done:
        out = task.step(np.ones(2, np.float32))
        rewards.append(out.reward)
        done = out.truncated
    assert len(rewards) == 4
    assert len(inner.received) == 12
    assert min(rewards) == -4.0


CLOCK = 'TimeAwareObservation={"normalize_time": true}'
CLOCKS = {
    "plain": Recipe(REACH, wrappers=(CLOCK,)),
    "frame skip": Recipe(REACH, wrappers=(CLOCK,), frame_skip=3),
    "repeated": Recipe(REACH, wrappers=('RepeatAction={"num_repeats": 3}', CLOCK)),
    "shorter": Recipe(REACH, wrappers=(CLOCK,), time_limit=9, frame_skip=2),
    "cut outside": Recipe(REACH, wrappers=('TimeLimit={"max_episode_steps": 7}', CLOCK)),
    "cut inside": Recipe(REACH, wrappers=('TimeLimit={"max_episode_steps": 70}', CLOCK)),
    "factory": Recipe(REACH, wrappers=(CLOCK,), frame_skip=2, factory="own_envs:make_reach"),
    "made": Recipe(REACH, wrappers=(CLOCK,), time_limit=9, factory="own_envs:make_registered"),
}


@pytest.mark.parametrize("case", CLOCKS)
def test_the_time_that_a_policy_sees_is_over_when_the_limit_cuts_the_episode(case: str) -> None:
    env = CLOCKS[case].make()
    _, done, times = env.reset(seed=0), False, []
    while not done:
        seen, _, _, done, _ = env.step(np.array([-2.0, 20.0]))
        assert env.observation_space.contains(seen)
        times.append(seen[-1])  # Flattened by the names of its parts: "time" is the last.
    np.testing.assert_allclose(times, np.arange(1, len(times) + 1) / len(times), rtol=1e-6)
    assert len(times) == Task(CLOCKS[case], 0).time_limit


def test_a_clock_that_was_right_has_no_layer_more() -> None:
    assert str(CLOCKS["plain"].make()).count("TimeLimit") == 1


def test_a_lifted_limit_is_still_known() -> None:
    for how in (Recipe(REACH), Recipe(REACH, factory="own_envs:make_reach")):
        task = Task(how, 0, limited=False)
        assert task.time_limit == (15 if how.factory else 20)
        task.reset(0)
        assert not any(task.step(np.zeros(2, np.float32)).truncated for _ in range(25))


def test_a_run_keeps_how_its_environment_is_made_and_resumes_by_it_alone(
    tmp_path: Path, capsys: Capture
) -> None:
    flags = ["--env-kwargs", '{"pay":2,"kind":"fast"}', "--env-time-limit", "9"]
    flags += ["--env-wrappers", 'own_envs:Doubled={"times":3}', "TimeAwareObservation"]
    flags += ["--env-frame-skip", "2"]
    assert cli_train(tmp_path, *flags) == 0
    run = next(tmp_path.glob("*/*/seed0"))
    stored = json.loads((run / "config.json").read_bytes())
    kept = {name: stored["config"][name] for name in stored["config"] if name[:4] == "env_"}
    assert kept == {
        "env_kwargs": '{"kind": "fast", "pay": 2}',
        "env_wrappers": ['own_envs:Doubled={"times": 3}', "TimeAwareObservation"],
        "env_time_limit": 9,
        "env_frame_skip": 2,
        "env_factory": None,
        "env_timeout": None,
        "env_processes": False,
    }
    assert """--env-kwargs '{"kind": "fast", "pay": 2}'""" in stored["command"]
    # Another order of the same arguments is the same run.
    flags[1] = '{"kind": "fast", "pay": 2}'
    assert cli_train(tmp_path, *flags, "--save.require-exact", steps=90) == 0
    assert json.loads((run / "DONE").read_bytes())["exact"]
    capsys.readouterr()
    flags[1] = '{"pay": 3}'
    assert cli_train(tmp_path, *flags, steps=90) == 2
    assert """env_kwargs was '{"kind": "fast", "pay": 2}', now""" in capsys.readouterr().err
    assert cli_train(tmp_path, steps=90) == 2
    err = capsys.readouterr().err
    assert "env_frame_skip was 2, now None; env_kwargs was" in err
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0


def test_runs_of_before_these_settings_are_the_same_run(tmp_path: Path) -> None:
    config = small(tmp_path)
    run = RunFolder(train(config, quiet=True))
    owner, stored = run._owner(), run.stored()["config"]
    for name in [name for name in stored if name.startswith("env_") and name != "env_timeout"]:
        del stored[name]
    assert run.holds(stored)
    changed = replace(config, env_kwargs='{"pay": 2}')
    assert not run.holds(changed)
    assert owner == run._owner()


def test_arguments_may_be_given_as_a_dictionary_in_python() -> None:
    config = replace(resolve(REACH), env_kwargs={"b": [1, None], "a": False})
    assert config.env_kwargs == '{"a": false, "b": [1, null]}'
    assert replace(config, env_kwargs="{}").env_kwargs is None
    assert "--env-kwargs" in command_of(config)
    with pytest.raises(UserError, match="belongs into train"):
        replace(config, env_kwargs={"a": object()})


def test_an_id_may_be_registered_without_a_version(capsys: Capture) -> None:
    assert main(["check-env", "own_envs:Timeless"]) == 0
    assert capsys.readouterr().err == ""


# Factories


def test_a_factory_makes_the_environment_and_is_kept_by_name(tmp_path: Path) -> None:
    config = replace(small(tmp_path, "reach"), env_kwargs='{"pay": 2}')
    run = train(config, make_env=own_envs.make_reach, quiet=True)
    assert RunFolder(run).read_config().env_factory == "own_envs:make_reach"
    assert run.parent.parent.name == "reach"
    again = train(replace(config, steps=90), make_env=own_envs.make_reach, quiet=True)
    assert json.loads((again / "DONE").read_bytes()) | {"exact": True, "step": 90} == json.loads(
        (run / "DONE").read_bytes()
    )
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0


def test_the_command_line_knows_factories_by_name(tmp_path: Path) -> None:
    how = ["--env-factory", "own_envs:make_reach"]
    assert cli_train(tmp_path, *how, env="reach") == 0
    assert main(["check-env", "reach", *how]) == 0


def test_a_factory_without_a_name_is_resumed_in_python_alone(
    tmp_path: Path, capsys: Capture
) -> None:
    run = train(small(tmp_path, "reach"), make_env=lambda: own_envs.make_reach(), quiet=True)
    assert str(RunFolder(run).read_config().env_factory).endswith(".<locals>.<lambda>")
    assert main(["evaluate", str(run), "--episodes", "1"]) == 2
    assert "hand it over by train or load_policy(..., make_env=...)" in capsys.readouterr().err


ONE = own_envs.make_reach()
BAD_FACTORIES: dict[str, tuple[Any, str]] = {
    "one environment": (lambda: ONE, "every call must make a new one"),
    "no environment": (lambda: 3, "is no gymnasium.Env but int"),
    "a fault": (lambda: 1 / 0, "cannot be made: ZeroDivisionError"),
}


@pytest.mark.parametrize("case", BAD_FACTORIES)
def test_a_factory_that_fails_is_refused_and_nothing_written(case: str, tmp_path: Path) -> None:
    make_env, says = BAD_FACTORIES[case]
    with pytest.raises(UserError, match=says):
        train(small(tmp_path, "reach"), make_env=make_env, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_script_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    monkeypatch.setattr(__main__, "__file__", "/somewhere/arm.py", raising=False)
    monkeypatch.setattr(own_envs.make_reach, "__module__", "__main__")
    assert name_of(own_envs.make_reach) == "arm:make_reach"
    assert name_of(own_envs.Reach) == "own_envs:Reach"


# Packages of extras


def test_a_package_that_is_not_there_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    family = recipe.Family("Fetch", ("no_such_robotics",), "robotics")
    monkeypatch.setattr(recipe, "FAMILIES", (family,))
    monkeypatch.setattr(gym, "registry", {k: v for k, v in gym.registry.items() if k[0] != "F"})
    assert main(["check-env", "FetchReach-v4"]) == 2
    err = capsys.readouterr().err
    assert "needs no_such_robotics: pip install -c constraints.txt -e '.[robotics]'" in err
