"""Models that come back: from files, streams, copies and other programs' conventions."""

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import LinearSchedule

from bridgerl.actors import ACTORS
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.sb3 import CDQ, ActorCritic

# Stable-Baselines3 asks every environment it makes for pictures first.
pytestmark = pytest.mark.filterwarnings("ignore:.*render_mode")

POINT = "toy_envs:Point-v0"
OBS = np.random.default_rng(0).normal(size=(5, 3))
TINY: dict[str, Any] = {"learning_starts": 10, "batch_size": 16, "buffer_size": 200, "seed": 0}
TINY |= {"device": "cpu", "policy_kwargs": {"net_arch": [8]}}


def make(env: Any = POINT, **kwargs: Any) -> ActorCritic:
    given: dict[str, Any] = {"critic": "cdq"} | TINY | kwargs
    return ActorCritic("MlpPolicy", env, **given)


def actions(model: ActorCritic, deterministic: bool = True) -> bytes:
    return model.predict(OBS, deterministic=deterministic)[0].tobytes()


def weights(model: ActorCritic) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.agent.parameters()])


# Files


def test_a_model_with_a_compiled_policy_is_saved_and_loaded(tmp_path: Path) -> None:
    model = make().learn(15)
    before = actions(model)
    plain = model.policy
    model.policy = torch.compile(model.policy, backend="eager")  # pyright: ignore
    model.save(tmp_path / "model")
    model.set_parameters(tmp_path / "model")
    assert model.policy is not plain
    assert actions(ActorCritic.load(tmp_path / "model")) == before
    assert set(model.get_parameters()["policy"]) == set(plain.state_dict())


def test_what_was_just_written_to_a_stream_can_be_read_from_it(tmp_path: Path) -> None:
    model = make().learn(15)
    with (tmp_path / "model").open("w+b") as stream:
        model.save(stream)
        assert actions(ActorCritic.load(stream)) == actions(model)
    with (tmp_path / "buffer").open("w+b") as stream:
        model.save_replay_buffer(stream)
        model.load_replay_buffer(stream)


def test_a_seed_given_to_load_reaches_every_random_stream(tmp_path: Path) -> None:
    make().learn(15).save(tmp_path / "model")
    seeds: list[dict[str, Any]] = [{}, {"seed": 1}, {"seed": 1}, {"seed": 2}]
    as_saved, one, again, two = (
        ActorCritic.load(tmp_path / "model", device="cpu", **how) for how in seeds
    )
    assert actions(as_saved) == actions(one) == actions(two)
    explored = [actions(m, deterministic=False) for m in (as_saved, one, again, two)]
    assert explored[1] == explored[2]
    assert len(set(explored)) == 3


def test_without_a_forced_reset_the_episode_goes_on(tmp_path: Path) -> None:
    env = make_vec_env(POINT, 2)
    model = make(env).learn(30)
    model.save(tmp_path / "model")
    resets = []
    reset = env.reset
    env.reset = lambda: resets.append(1) or reset()
    going_on = ActorCritic.load(tmp_path / "model", env, device="cpu", force_reset=False)
    assert np.array_equal(going_on._last_obs, model._last_obs)  # pyright: ignore[reportArgumentType]
    going_on.learn(10, reset_num_timesteps=False)
    assert not resets
    anew = ActorCritic.load(tmp_path / "model", env, device="cpu")
    assert anew._last_obs is None
    anew.learn(10, reset_num_timesteps=False)
    assert len(resets) == 1
    with pytest.raises(UserError, match="saved with 2 environments, not 1"):
        ActorCritic.load(tmp_path / "model", gym.make(POINT), force_reset=False)


def test_what_is_excluded_is_as_the_constructor_makes_it(tmp_path: Path) -> None:
    model = make(verbose=2, gamma=0.5)
    model.save(tmp_path / "model", exclude=["verbose", "gamma", "replay_buffer", "unknown"])
    loaded = ActorCritic.load(tmp_path / "model")
    assert (loaded.verbose, loaded.gamma) == (0, 0.99)
    model.save(tmp_path / "model", exclude=["verbose", "gamma"], include=["verbose"])
    assert ActorCritic.load(tmp_path / "model").verbose == 2
    with pytest.raises(UserError, match="include cannot add replay_buffer"):
        model.save(tmp_path / "model", include=["replay_buffer"])


def test_what_no_file_holds_is_said_when_an_environment_comes(tmp_path: Path) -> None:
    noise = NormalActionNoise(np.zeros(2), np.ones(2))
    make(learning_rate=LinearSchedule(1e-3, 0, 1), action_noise=noise).save(tmp_path / "one")
    loaded = ActorCritic.load(tmp_path / "one")
    loaded.save(tmp_path / "two")  # A second generation has not forgotten it.
    for path in ("one", "two"):
        loaded = ActorCritic.load(tmp_path / path)
        with pytest.warns(UserWarning, match="no file holds learning_rate, action_noise: to train"):
            loaded.set_env(make_vec_env(POINT))
    loaded.action_noise = noise
    with pytest.warns(UserWarning, match="no file holds learning_rate: to train"):
        loaded.set_env(make_vec_env(POINT))


@pytest.mark.parametrize("normalize", [True, False])
def test_a_policy_or_an_actor_alone_comes_back(normalize: bool, tmp_path: Path) -> None:
    both: dict[str, Any] = {"normalize_obs": normalize, "normalize_returns": normalize}
    model = make(buffer_size=10**6, return_unit=3.0, **both).learn(15)
    model.policy.save(tmp_path / "policy.pkl")
    model.policy.actor.save(tmp_path / "actor")
    model.save(tmp_path / "model")
    policies = [type(model.policy).load(tmp_path / name) for name in ("policy.pkl", "model")]
    actor = type(model.actor).load(tmp_path / "actor")
    for one in (*policies, actor):
        assert one.predict(OBS, deterministic=True)[0].tobytes() == actions(model)
    obs, action = torch.as_tensor(OBS).float(), torch.zeros(5, 2)
    assert torch.equal(policies[0].agent.q(obs, action), model.agent.q(obs, action))


# Copies


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@pytest.mark.parametrize(
    ("actor", "critic"), [("sac", c) for c in CRITICS] + [(a, "cdq") for a in ACTORS]
)
def test_a_copy_learns_as_the_model_would_and_leaves_it_alone(
    how: str, actor: str, critic: str
) -> None:
    model = make(actor=actor, critic=critic, normalize_returns=True).learn(15)
    dumped = pickle.dumps(model)
    other: ActorCritic = copy.deepcopy(model) if how == "deepcopy" else pickle.loads(dumped)  # noqa: S301
    before = weights(model)
    for one in (other, model):
        assert torch.equal(weights(one), before)
        np.random.seed(3)  # noqa: NPY002 (SB3 samples with the global generator.)
        one.train(gradient_steps=3, batch_size=16)
    assert torch.equal(weights(other), weights(model))
    assert not torch.equal(weights(other), before)
    assert actions(other, deterministic=False) == actions(model, deterministic=False)


# rl_zoo3


def test_the_zoo_can_enjoy_a_model(tmp_path: Path) -> None:
    model = make().learn(15)
    model.save(tmp_path / "model")
    theirs = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    for custom in ({}, theirs):
        how: dict[str, Any] = {"seed": 0, "buffer_size": 1, "optimize_memory_usage": False}
        loaded = CDQ.load(tmp_path / "model.zip", custom_objects=custom, device="cpu", **how)
        assert actions(loaded) == actions(model)
        assert not hasattr(loaded, "clip_range")
    assert loaded.learning_rate == 0


def test_custom_objects_may_name_the_spaces(tmp_path: Path) -> None:
    make().learn(15).save(tmp_path / "model")
    wider = gym.spaces.Box(-9, 9, (3,), np.float64)
    loaded = CDQ.load(tmp_path / "model", custom_objects={"observation_space": wider})
    assert loaded.observation_space == wider


def test_the_zoo_goes_on_with_a_model_and_its_replay_buffer(tmp_path: Path) -> None:
    noise = NormalActionNoise(np.zeros(2), np.ones(2))
    given: dict[str, Any] = {"actor": "td3", "tau": 0.1, "gamma": 0.9, "learning_rate": 1e-3}
    given |= {"train_freq": (1, "step"), "policy_delay": 3, "action_noise": noise, "n_steps": 1}
    model = make(**given).learn(30)
    model.save(tmp_path / "model")
    model.save_replay_buffer(os.path.join(tmp_path, "replay_buffer.pkl"))
    assert (tmp_path / "replay_buffer.pkl").is_file()
    env = make_vec_env(POINT)
    how = given | {"seed": 3, "tensorboard_log": str(tmp_path), "verbose": 0, "device": "cpu"}
    loaded = CDQ.load(str(tmp_path / "model.zip"), env=env, **how)
    loaded.load_replay_buffer(str(tmp_path / "replay_buffer.pkl"), truncate_last_traj=False)
    assert loaded.replay_buffer is not None
    assert loaded.replay_buffer.size() == 30
    loaded.learn(10, reset_num_timesteps=False)
    assert loaded.agent.updates == 30


def test_settings_of_the_agent_may_change_at_load_but_its_parts_may_not(tmp_path: Path) -> None:
    make(tau=0.1).save(tmp_path / "model")
    loaded: Any = CDQ.load(tmp_path / "model", tau=0.5, ent_coef="auto_0.1")
    assert (loaded.tau, loaded.config.critic.polyak, loaded.config.actor.temperature) == (
        0.5,
        0.5,
        0.1,
    )
    refused: list[tuple[dict[str, Any], str]] = [
        ({"critic": "tqc"}, "the saved model has the critic cdq, not 'tqc'"),
        ({"policy_kwargs": {"net_arch": [9]}}, "are not those of the saved model"),
        ({"tau": 2.0}, r"^tau must be in \(0, 1\]"),
    ]
    for wrong, message in refused:
        with pytest.raises(ValueError, match=message):
            CDQ.load(tmp_path / "model", **wrong)
    CDQ.load(tmp_path / "model", policy_kwargs=TINY["policy_kwargs"], critic="cdq")


# Replay buffers


def test_a_replay_buffer_keeps_the_size_it_was_saved_with(tmp_path: Path) -> None:
    make(buffer_size=50).learn(70).save_replay_buffer(tmp_path / "buffer")
    model = make(buffer_size=100)
    model.replay_buffer = None
    model.load_replay_buffer(tmp_path / "buffer")
    buffer: Any = model.replay_buffer
    assert (buffer.buffer_size, buffer.full, buffer.pos) == (50, True, 20)
    model.learn(20)


def test_a_replay_buffer_that_an_earlier_release_renamed_is_found(tmp_path: Path) -> None:
    model = make().learn(15)
    model.save_replay_buffer(tmp_path / "replay_buffer.safetensors")
    model.load_replay_buffer(tmp_path / "replay_buffer.pkl")


def test_a_pickled_replay_buffer_is_refused_and_not_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "replay_buffer.pkl").write_bytes(pickle.dumps(Trap()))
    for name in ("replay_buffer.pkl", "replay_buffer"):
        with pytest.raises(UserError, match="is a pickle, and pickles are not read") as caught:
            make().load_replay_buffer(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "sprung").exists()


def test_a_state_dict_of_random_numbers_is_taken_saved_and_loaded(tmp_path: Path) -> None:
    """As Stable-Baselines3's own tests do it, to whom every entry is a weight."""
    policy = make().learn(10).policy
    noise = {name: torch.rand_like(value) for name, value in policy.state_dict().items()}
    policy.load_state_dict(noise)
    policy.save(tmp_path / "policy")
    loaded = type(policy).load(tmp_path / "policy", device="cpu")
    torch.testing.assert_close(dict(policy.state_dict()), dict(loaded.state_dict()))
