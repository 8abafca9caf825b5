"""bridgerl.sb3 behaves as an algorithm of Stable-Baselines3, on the same agents, without pickle."""

import importlib
import io
import json
import runpy
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")

import stable_baselines3
from stable_baselines3.common import callbacks
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import bridgerl.sb3
from bridgerl.actors import ACTORS
from bridgerl.actors.td3 import TD3Config
from bridgerl.agent import build_agent
from bridgerl.critics import CRITICS
from bridgerl.critics.cdq import CDQConfig
from bridgerl.errors import BridgeError, NumericFault, StorageFault, UserError
from bridgerl.sb3 import CDQ, DBC, ActorCritic, files
from bridgerl.sb3.policy import to_batch
from bridgerl.sb3.settings import UNNAMED, env_id
from bridgerl.streams import Streams
from bridgerl.types import EnvSpec

# Stable-Baselines3 asks every environment it makes for pictures first.
pytestmark = pytest.mark.filterwarnings("ignore:.*render_mode")

POINT = "toy_envs:Point-v0"
PAIRS = [("sac", c) for c in CRITICS] + [(a, "cdq") for a in ACTORS if a != "sac"]
TINY: dict[str, Any] = {
    "learning_starts": 10,
    "batch_size": 16,
    "buffer_size": 200,
    "seed": 0,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [16]},
}


def make(critic: Any = "cdq", actor: Any = "sac", env: Any = POINT, **kwargs: Any) -> ActorCritic:
    return ActorCritic("MlpPolicy", env, actor=actor, critic=critic, **(TINY | kwargs))


def equal(a: ActorCritic, b: ActorCritic) -> bool:
    ours, theirs = a._tensors(), b._tensors()
    return set(ours) == set(theirs) and all(torch.equal(v, theirs[k]) for k, v in ours.items())


def observations(n: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3))


class Bandit(gym.Env[np.ndarray, np.ndarray]):
    """One step; the nearer the action to -0.7, the better; random actions earn -8 on average."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        reward = -10 * float((action[0] + 0.7) ** 2)
        return np.zeros(1, np.float32), reward, True, False, {}


# The promise of a drop-in


@pytest.mark.parametrize("name", ["Pendulum-v1", POINT])
def test_environments_used_here_pass_the_checker_of_sb3(name: str) -> None:
    check_env(gym.make(name).unwrapped, warn=False)


@pytest.mark.parametrize("critic", ["cdq", "dsac", "iqn", "tqc", "vf", "vdrl", "dbc"])
def test_every_critic_of_the_paper_has_a_class_that_takes_no_other(critic: str) -> None:
    cls = getattr(bridgerl.sb3, critic.upper())
    assert cls("MlpPolicy", POINT, **TINY).config.critic_name == critic
    other = "cdq" if critic == "dbc" else "dbc"
    with pytest.raises(UserError, match=f"no critic {other}"):
        cls("MlpPolicy", POINT, critic=other, **TINY)


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_one_gradient_step_is_one_update_of_the_agent(actor: str, critic: str) -> None:
    model = make(critic, actor, normalize_obs=False)
    model.learn(10)
    streams = Streams(0)
    spec = EnvSpec("", 3, 2)
    agent = build_agent(model.config.actor, model.config.critic, spec, streams)
    np.random.seed(7)  # noqa: NPY002 (SB3 samples with the global generator.)
    model.train(gradient_steps=2, batch_size=16)
    np.random.seed(7)  # noqa: NPY002
    assert model.replay_buffer is not None
    for _ in range(2):
        agent.update(to_batch(model.replay_buffer.sample(16), 0.99, model.policy.flatten))
    ours = model.agent.state_dict()
    assert all(torch.equal(v, ours[k]) for k, v in agent.state_dict().items())


@pytest.mark.parametrize("critic", ["cdq", "dbc"])
def test_it_learns_a_bandit(critic: str) -> None:
    env = Monitor(Bandit())
    model = make(critic, env=env, learning_rate=5e-3, batch_size=64, learning_starts=50)
    before: Any = evaluate_policy(model, env, n_eval_episodes=1)[0]
    model.learn(400)
    after: Any = evaluate_policy(model, env, n_eval_episodes=1)[0]
    assert after > -0.3
    assert before < -3


def test_equal_seeds_give_equal_runs_and_other_seeds_others() -> None:
    a, b, c = (make("dbc", seed=seed).learn(30) for seed in (0, 0, 1))
    assert equal(a, b)
    assert not equal(a, c)


def test_reseeding_a_model_repeats_its_exploration() -> None:
    model = make().learn(15)
    draws = []
    for _ in range(2):
        model.set_random_seed(3)
        draws.append(model.predict(observations())[0])
    assert np.array_equal(*draws)
    assert model.streams.seed == 3  # Streams that are born later follow it too.
    assert not np.array_equal(draws[0], model.predict(observations())[0])


@pytest.mark.parametrize("actor", list(ACTORS))
def test_evaluating_is_deterministic_and_leaves_training_alone(actor: str) -> None:
    model = make(actor=actor).learn(15)
    before = model.streams.state()
    first, second = (model.predict(observations(), deterministic=True)[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert all(torch.equal(v, before[k]) for k, v in model.streams.state().items())
    assert not np.array_equal(first, model.predict(observations())[0])


@pytest.mark.parametrize("n_envs", [1, 4])
def test_it_trains_in_several_environments(n_envs: int) -> None:
    model = make(env=make_vec_env(POINT, n_envs))
    model.learn(40)
    assert model.num_timesteps == 40
    assert model.predict(observations(n_envs))[0].shape == (n_envs, 2)


def test_actions_fill_the_bounds_of_the_space() -> None:
    low, high = (-2.0, 0.5)
    loud = make(actor_kwargs={"trunk": "plain"}, normalize_obs=False)  # Norms would keep it calm.
    actions, _ = loud.predict(100 * observations(200), deterministic=True)
    assert low <= actions.min() < low + 0.1
    assert high - 0.1 < actions.max() <= high
    single, _ = make().predict(observations()[0], deterministic=True)
    assert single.shape == (2,)


def test_observations_of_any_shape_are_flattened() -> None:
    env = gym.wrappers.ReshapeObservation(gym.make(POINT), (3, 1))
    assert make(env=env).learn(20).agent.actor.net(torch.zeros(1, 3)).shape == (1, 4)


def test_replay_is_normalised_by_vecnormalize() -> None:
    env = VecNormalize(make_vec_env(POINT, 2), clip_obs=0.25)
    model = make(env=env)
    seen = []
    update = model.agent.update
    model.agent.update = lambda batch, **how: seen.append(batch.obs) or update(batch, **how)
    model.learn(40)
    assert model.replay_buffer is not None
    assert np.abs(model.replay_buffer.observations).max() > 0.25
    assert torch.cat(seen).abs().max() == 0.25


def test_action_noise_comes_on_top_of_the_policy() -> None:
    noise = NormalActionNoise(np.full(2, 5.0), np.zeros(2))
    model = make(actor="td3", actor_kwargs={"explore_noise": 0.0}, action_noise=noise)
    model.learn(30)
    assert model.replay_buffer is not None
    assert (model.replay_buffer.actions[:30] == 1).all()


def test_n_step_returns_bring_their_own_discount() -> None:
    model = make(n_steps=3)
    seen = []
    update = model.agent.update
    model.agent.update = lambda batch, **how: seen.append(batch.discount) or update(batch, **how)
    model.learn(40)
    assert isinstance(model.replay_buffer, NStepReplayBuffer)
    discounts = torch.cat(seen)
    assert discounts.dim() == 1
    assert torch.isclose(discounts.max(), torch.tensor(0.99))
    assert torch.isclose(discounts.median(), torch.tensor(0.99**3))


def test_truncation_bootstraps_and_termination_does_not() -> None:
    model = make("cdq", env=Monitor(gym.make(POINT, max_episode_steps=2)))
    model.learn(12)
    assert model.replay_buffer is not None
    assert model.replay_buffer.dones[1] == 1
    assert to_batch(
        model.replay_buffer.sample(50), 0.9, model.policy.flatten
    ).discount.unique() == np.float32(0.9)
    ended = make("cdq", env=Monitor(Bandit())).learn(12).replay_buffer
    assert ended is not None
    assert not to_batch(ended.sample(50), 0.9, model.policy.flatten).discount.any()


# Settings


def _rates(model: ActorCritic) -> set[float]:
    return {optimizer.lr for optimizer in model.agent.optimizers}


def test_the_learning_rate_is_each_parts_own_or_everybodys() -> None:
    own = make(actor_kwargs={"lr": 1e-3}, critic_kwargs={"lr": 2e-3}).learn(15)
    assert _rates(own) == {1e-3, 2e-3, 3e-4}
    assert _rates(make(learning_rate=0.5).learn(15)) == {0.5}
    assert _rates(make(learning_rate=lambda left: 0.1 + 0.5 * left).learn(20)) == {0.1}


def test_settings_come_from_the_preset_the_task_and_the_keywords() -> None:
    hopper: Any = DBC("MlpPolicy", "Hopper-v5", buffer_size=10).config.critic
    assert (hopper.drop, hopper.hidden) == (32 / 128, (128, 128))
    paper = DBC("MlpPolicy", POINT, **TINY, critic_kwargs={"bridge_steps": 2}, preset="paper")
    critic: Any = paper.config.critic
    assert (critic.network, critic.hidden, critic.bridge_steps) == ("mlp", (16,), 2)
    given = make(CDQConfig(hidden=(8,)), TD3Config(delay=3), policy_kwargs=None)
    assert given.config.critic == CDQConfig(hidden=(8,))
    assert given.config.actor == TD3Config(delay=3)


def test_tau_and_net_arch_mean_what_they_mean_in_sb3() -> None:
    model = make(actor="td3", tau=0.5, policy_kwargs={"net_arch": {"pi": [8], "qf": [9, 10]}})
    actor: Any = model.config.actor
    critic: Any = model.config.critic
    assert (actor.polyak, critic.polyak, model.tau) == (0.5, 0.5, 0.5)
    assert (actor.hidden, critic.hidden) == ((8,), (9, 10))


def test_the_id_is_found_behind_wrappers_and_in_other_processes() -> None:
    assert env_id(gym.make(POINT)) == "Point-v0"
    assert env_id(VecNormalize(make_vec_env("Pendulum-v1", 2))) == "Pendulum-v1"
    assert env_id(Monitor(Bandit())) == env_id(DummyVecEnv([Bandit])) == env_id(None) == UNNAMED
    far = SubprocVecEnv([lambda: gym.make("Pendulum-v1")], start_method="fork")
    assert env_id(far) == "Pendulum-v1"
    far.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"critic": "dcb"}, "unknown critic 'dcb'; did you mean dbc"),
        ({"actor": "sca"}, "unknown actor 'sca'; did you mean sac"),
        ({"preset": "light"}, "unknown preset 'light'; did you mean lite"),
        ({"critic_kwargs": {"polyack": 1}}, "no setting 'polyack'; did you mean polyak"),
        ({"critic_kwargs": {"n_heads": "two"}}, r"critic_kwargs\['n_heads'\] cannot be 'two'"),
        ({"critic_kwargs": {"n_heads": 2.5}}, r"critic_kwargs\['n_heads'\] cannot be 2.5"),
        ({"actor_kwargs": {"delay": 0}}, r"^actor_kwargs\['delay'\] must be at least 1, got 0$"),
        ({"tau": 2.0}, r"^tau must be in \(0, 1\], got 2.0$"),
        ({"policy_kwargs": {"n_critix": 2}}, "policy_kwargs takes net_arch, .*, not n_critix"),
        ({"policy_kwargs": {"net_arch": {"pi": [8]}}}, "dict of pi and qf"),
        ({"policy_kwargs": {"net_arch": 64}}, "net_arch must be widths"),
        (
            {"critic": "vf", "policy_kwargs": {"net_arch": []}},
            "^net_arch must be one or more widths",
        ),
        ({"env": None}, "an environment is needed"),
        ({"env": "CartPole-v1"}, "Discrete action space"),
        ({"learning_starts": 1e4}, "^learning_starts cannot be 10000.0"),
    ],
)
def test_what_cannot_train_is_refused_in_one_line(arguments: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make(**arguments)
    assert "\n" not in str(caught.value)


def test_other_policies_and_spaces_are_refused_as_programs_of_sb3_expect() -> None:
    with pytest.raises(ValueError, match="must be 'MlpPolicy' or 'MultiInputPolicy', got 'Cnn"):
        ActorCritic("CnnPolicy", POINT)
    env = Bandit()
    env.observation_space = gym.spaces.Text(3)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AssertionError, match="a Text observation space; a Box, Discrete, "):
        make(env=env)


def test_the_agent_stays_on_its_device() -> None:
    policy = make().policy
    assert policy.to("cpu") is policy
    with pytest.raises(UserError, match="stays on cpu"):
        policy.to("meta")


def test_lost_updates_are_not_silent() -> None:
    with pytest.raises(NumericFault, match="in a row"):
        make(env="toy_envs:HugeReward-v0").learn(30)


# Callbacks and logs


def test_callbacks_evaluate_stop_and_checkpoint(tmp_path: Path) -> None:
    model = make()
    stop = callbacks.StopTrainingOnRewardThreshold(-1e9)
    evaluate = callbacks.EvalCallback(
        Monitor(gym.make(POINT)),
        eval_freq=30,
        n_eval_episodes=1,
        best_model_save_path=str(tmp_path),
        callback_on_new_best=stop,
        verbose=0,
    )
    checkpoint = callbacks.CheckpointCallback(20, str(tmp_path), save_replay_buffer=True)
    model.learn(100, callback=[checkpoint, evaluate], progress_bar=True)
    assert model.num_timesteps == 30
    assert equal(model, ActorCritic.load(tmp_path / "best_model"))
    early = ActorCritic.load(tmp_path / "rl_model_20_steps")
    assert early.num_timesteps == 20
    early.load_replay_buffer(tmp_path / "rl_model_replay_buffer_20_steps.pkl")
    assert early.replay_buffer is not None
    assert early.replay_buffer.pos == 19  # SB3 calls back before it stores the transition.


def test_tensorboard_shows_the_tags_of_sb3_and_ours(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = make("dbc", tensorboard_log=tmp_path)
    model.learn(110, log_interval=1, tb_log_name="dbc")
    events = EventAccumulator(str(tmp_path / "dbc_1")).Reload()
    tags = set(events.Tags()["scalars"])
    shared = {"actor_loss", "critic_loss", "ent_coef", "ent_coef_loss", "learning_rate"}
    assert {f"train/{tag}" for tag in shared} | {"rollout/ep_rew_mean"} <= tags
    assert {"critic/quantile_loss", "critic/grad_norm", "actor/grad_norm"} <= tags
    assert model.logger.name_to_value["train/n_updates"] == model._n_updates == 100
    assert events.Scalars("train/learning_rate")[-1].value == pytest.approx(1e-3)


# Files


@pytest.mark.parametrize(("actor", "critic"), PAIRS)
def test_a_loaded_model_is_the_saved_one(actor: str, critic: str, tmp_path: Path) -> None:
    model = make(critic, actor).learn(20)
    model.predict(observations())  # The stream of exploration stands in the middle.
    model.save(tmp_path / "model")
    loaded = ActorCritic.load(tmp_path / "model", device="cpu")
    assert equal(model, loaded)
    assert model.config == loaded.config
    assert model._header() == loaded._header()
    assert (loaded.num_timesteps, loaded._n_updates) == (20, 10)
    for deterministic in (True, False, False):
        ours, theirs = (
            m.predict(observations(), deterministic=deterministic) for m in (model, loaded)
        )
        assert ours[0].tobytes() == theirs[0].tobytes()


def test_a_loaded_model_goes_on_training(tmp_path: Path) -> None:
    make("dbc").learn(20).save(tmp_path / "model")
    loaded = DBC.load(
        tmp_path / "model", env=make_vec_env(POINT, 2), device="cpu", gradient_steps=2
    )
    loaded.learn(20, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded.agent.updates, loaded._n_updates) == (40, 30, 30)


def test_learning_twice_counts_on() -> None:
    model = make().learn(20).learn(20, reset_num_timesteps=False)
    assert (model.num_timesteps, model._n_updates) == (40, 30)


def test_equal_models_give_equal_bytes_in_files_and_streams(tmp_path: Path) -> None:
    model = make().learn(15)
    stream = io.BytesIO()
    model.save(stream)
    model.save(tmp_path / "new" / "model.v1")
    assert (tmp_path / "new" / "model.v1").read_bytes() == stream.getvalue()
    stream.seek(0)
    assert equal(model, ActorCritic.load(stream))
    (tmp_path / "link.zip").symlink_to(tmp_path / "new" / "model.v1")
    assert equal(model, ActorCritic.load(tmp_path / "link"))


def test_saving_never_replaces_a_folder(tmp_path: Path) -> None:
    (tmp_path / "my.runs").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        make().save(tmp_path / "my.runs")
    assert (tmp_path / "my.runs").is_dir()


def test_what_is_code_is_not_stored_and_said(tmp_path: Path) -> None:
    noise = NormalActionNoise(np.zeros(2), np.ones(2))
    model = make(learning_rate=lambda left: 1e-3 * left, action_noise=noise).learn(20)
    model.save(tmp_path / "model")
    assert ActorCritic.load(tmp_path / "model").learning_rate == 1e-3
    with pytest.warns(UserWarning, match="no file holds action_noise: to train on"):
        loaded = ActorCritic.load(tmp_path / "model", gym.make(POINT), learning_rate=0.25)
    assert _rates(loaded.learn(15)) == {0.25}


def test_parameters_move_between_models(tmp_path: Path) -> None:
    model, other = make("dbc").learn(15), make("dbc", seed=1)
    model.save(tmp_path / "model")
    for source in (model.get_parameters(), tmp_path / "model"):
        other = make("dbc", seed=1)
        other.set_parameters(source)
        actions = [m.predict(observations(), deterministic=True)[0] for m in (model, other)]
        assert actions[0].tobytes() == actions[1].tobytes()
        before = other.agent.critic.optimizer.flat.clone()
        other.learn(15)  # The weights are still views of what the optimiser moves.
        assert not torch.equal(before, other.agent.critic.optimizer.flat)
        assert (
            next(other.critic.online.parameters()).flatten()[0]
            == (other.agent.critic.optimizer.flat[0])
        )
    other.policy.load_from_vector(np.zeros_like(other.policy.parameters_to_vector()))
    assert other.agent.actor.optimizer.flat.abs().max() == 0


def test_another_critics_file_and_unknown_arguments_are_refused(tmp_path: Path) -> None:
    make("dbc").save(tmp_path / "model")
    with pytest.raises(UserError, match="CDQ has no critic dbc; ActorCritic takes any"):
        CDQ.load(tmp_path / "model")
    with pytest.raises(UserError, match="load cannot change 'batch_sise'; did you mean batch_size"):
        DBC.load(tmp_path / "model", batch_sise=3)
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        DBC.load(tmp_path / "model", env=gym.make("Pendulum-v1"))
    with pytest.raises(StorageFault, match=r"none\.zip is missing"):
        DBC.load(tmp_path / "none")


def test_nothing_is_pickled(tmp_path: Path) -> None:
    model = make().learn(15)
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert archive.namelist() == ["config.json", "model.safetensors"]
        config = json.loads(archive.read("config.json"))
    assert (config["format"], config["agent"]["critic"]["type"]) == (1, "cdq")
    source = Path(bridgerl.sb3.__file__).parent.glob("*.py")
    text = "".join(path.read_text() for path in source)
    for word in ("import pickle", "cloudpickle", "torch.load", "torch.save", "_pkl", "joblib"):
        assert word not in text


def test_files_of_sb3_itself_are_refused(tmp_path: Path) -> None:
    sac = stable_baselines3.SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, device="cpu")
    sac.save(tmp_path / "sac")
    sac.save_replay_buffer(tmp_path / "buffer.pkl")
    model = make()
    for read in (ActorCritic.load, model.set_parameters):
        with pytest.raises(UserError, match="pickles are not read"):
            read(tmp_path / "sac")
    with pytest.raises(UserError, match=r"buffer\.pkl is a pickle, and pickles are not read"):
        model.load_replay_buffer(tmp_path / "buffer.pkl")


def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    make(policy_kwargs={"net_arch": [2]}).save(tmp_path / "model")
    data = (tmp_path / "model.zip").read_bytes()
    draws = np.random.default_rng(0)
    cases = [data[: int(n)] for n in draws.integers(0, len(data), 20)]
    places = [*draws.integers(0, len(data), 60), *range(len(data) - 120, len(data))]
    cases += [data[:n] + bytes([data[n] ^ 0xFF]) + data[n + 1 :] for n in places]
    for case in cases:
        try:
            files.read_model(io.BytesIO(case))
        except BridgeError as error:
            assert "\n" not in str(error)  # noqa: PT017


def _forge(path: Path, **changes: Any) -> None:
    """Rewrite fields of config.json in a saved model."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(members["config.json"])
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.safetensors", members["model.safetensors"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2, this release reads format 1"),
        ({"more": 1}, "unknown or missing fields more"),
        ({"attributes": {"batch_size": "many"}}, "batch_size cannot be 'many'"),
        ({"attributes": {"n_envs": 0}}, "n_envs must be at least 1, got 0"),
        ({"attributes": {"buffer_size": -1}}, "buffer_size must be at least 1"),
        ({"attributes": {"train_freq": 0}}, "train_freq must be at least 1"),
        ({"attributes": {"learning_rate": -1.0}}, "learning_rate must be finite and not negative"),
        ({"attributes": {"gamma": 2.0}}, r"gamma must be in \[0, 1\]"),
        ({"attributes": {"seed": -5}}, "seed must be from 0"),
        ({"agent": {"critic": {"type": "os"}}}, "critic 'os' is not registered"),
    ],
)
def test_forged_settings_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    make().save(tmp_path / "model")
    _forge(tmp_path / "model.zip", **change)
    with pytest.raises(BridgeError, match=message):
        ActorCritic.load(tmp_path / "model")


def test_a_model_of_another_kind_of_device_starts_new_random_streams(tmp_path: Path) -> None:
    model = make().learn(15)
    model.save(tmp_path / "model")
    _forge(tmp_path / "model.zip", device="cuda")
    loaded = ActorCritic.load(tmp_path / "model", device="cpu")
    a, b = (m.predict(observations(), deterministic=True)[0] for m in (model, loaded))
    assert a.tobytes() == b.tobytes()
    a, b = (m.predict(observations())[0] for m in (model, loaded))
    assert not np.array_equal(a, b)


def test_bombs_and_extra_members_are_refused(tmp_path: Path) -> None:
    for names, method in (
        (["config.json", "model.safetensors"], zipfile.ZIP_DEFLATED),
        (["config.json", "model.safetensors", "../x"], zipfile.ZIP_STORED),
        (["config.json"], zipfile.ZIP_STORED),
    ):
        with zipfile.ZipFile(tmp_path / "model.zip", "w", method) as archive:
            for name in names:
                archive.writestr(name, bytes(10**6))
        with pytest.raises(StorageFault, match="is not a model"):
            ActorCritic.load(tmp_path / "model.zip")


# Replay buffers


@pytest.mark.parametrize("steps", [30, 300])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"n_steps": 3},
        {
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        },
    ],
)
def test_a_replay_buffer_comes_back_whole(steps: int, kwargs: Any, tmp_path: Path) -> None:
    env = make_vec_env(POINT, 2)
    model = make(env=env, gradient_steps=0, **kwargs).learn(steps)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    other = make(env=env, seed=1, gradient_steps=0, **kwargs).learn(100)
    other.load_replay_buffer(tmp_path / "buffer")
    ours: Any = model.replay_buffer
    theirs: Any = other.replay_buffer
    for name, value in vars(ours).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(theirs, name))
    assert (ours.pos, ours.full) == (theirs.pos, theirs.full)
    assert ours.full == (steps == 300)


def test_replay_buffers_of_other_environments_and_kinds_are_refused(tmp_path: Path) -> None:
    model = make().learn(12)
    model.save_replay_buffer(tmp_path / "buffer")
    with pytest.raises(UserError, match="of 1 environments, but this model has 2"):
        make(env=make_vec_env(POINT, 2)).load_replay_buffer(tmp_path / "buffer")
    with pytest.raises(StorageFault, match="does not fit"):
        make(env="Pendulum-v1").load_replay_buffer(tmp_path / "buffer")

    class Mine(ReplayBuffer):
        pass

    with pytest.raises(UserError, match="a Mine cannot be stored"):
        make(replay_buffer_class=Mine).learn(12).save_replay_buffer(tmp_path / "mine")
    (tmp_path / "buffer.safetensors").write_bytes(b"no tensors")
    with pytest.raises(StorageFault, match="is damaged"):
        model.load_replay_buffer(tmp_path / "buffer")


# Around it


def test_without_sb3_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("bridgerl.sb3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.buffers", None)
    with pytest.raises(ImportError, match=r"pip install -c constraints.txt -e '\.\[sb3\]'"):
        importlib.import_module("bridgerl.sb3")


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "sb3_dropin.py"
    monkeypatch.setattr(sys, "argv", ["x", "--timesteps", "104", "--out", str(tmp_path)])
    runpy.run_path(str(example), run_name="__main__")
    assert "last.zip: " in capsys.readouterr().out
