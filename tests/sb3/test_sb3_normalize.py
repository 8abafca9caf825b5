"""Normalisers of the agent inside Stable-Baselines3: fed by every step, saved, never doubled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecCheckNan, VecNormalize

from bridgerl.errors import UserError
from bridgerl.sb3 import ActorCritic
from bridgerl.sb3.policy import to_batch

# Stable-Baselines3 asks every environment it makes for pictures first.
pytestmark = pytest.mark.filterwarnings("ignore:.*render_mode")

POINT = "toy_envs:Point-v0"
BOTH: dict[str, Any] = {"normalize_obs": True, "normalize_returns": True}


def make(env: Any = POINT, **kwargs: Any) -> ActorCritic:
    how: dict[str, Any] = {"learning_starts": 10, "batch_size": 16, "buffer_size": 3000}
    how |= {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [16]}, "critic": "cdq"}
    return ActorCritic("MlpPolicy", env, **(how | kwargs))


def moments(model: ActorCritic) -> tuple[np.ndarray, np.ndarray, float]:
    normalizer = model.agent.normalizer
    assert normalizer.obs is not None
    assert normalizer.returns is not None
    return normalizer.obs.mean, normalizer.obs.std, normalizer.returns.gain


@pytest.mark.parametrize("n_envs", [1, 3])
def test_statistics_are_those_of_every_environment(n_envs: int) -> None:
    model = make(make_vec_env(POINT, n_envs), **BOTH).learn(150 * n_envs)
    model.learn(60 * n_envs)  # Counts from 0 again and begins new episodes in the middle of others.
    buffer: Any = model.replay_buffer
    obs, after = (a[: buffer.pos] for a in (buffer.observations, buffer.next_observations))
    begins = np.ones((buffer.pos, n_envs), bool)
    begins[1:] = (obs[1:] != after[:-1]).any(2)
    sums = np.zeros((buffer.pos, n_envs))
    for t, reward in enumerate(buffer.rewards[: buffer.pos]):
        sums[t] = reward + model.gamma * np.where(begins[t], 0.0, sums[t - 1])
    seen = np.concatenate([obs[begins], after.reshape(-1, 3)]).astype(np.float64)
    mean, std, gain = moments(model)
    assert begins.sum() > 4 * n_envs
    assert mean == pytest.approx(seen.mean(0), rel=1e-6)
    assert std == pytest.approx(seen.std(0), rel=1e-6)
    assert gain == pytest.approx(model.return_unit / np.sqrt(np.square(sums).mean()), rel=1e-5)


def test_learning_and_predicting_go_by_what_was_seen() -> None:
    model = make(**BOTH).learn(60)
    mean, std, _ = moments(model)
    obs = np.random.default_rng(0).normal(2.0, 1.0, (5, 3))
    action, _ = model.predict(obs, deterministic=True)
    seen = torch.from_numpy(np.clip((obs - mean) / std, -10, 10)).float()
    with torch.no_grad():
        own = model.agent.actor.net(seen).chunk(2, -1)[0].tanh().numpy()
    assert action == pytest.approx(model.policy.unscale_action(own), abs=1e-5)


def test_a_loaded_model_has_the_statistics_whatever_its_number_of_environments(
    tmp_path: Path,
) -> None:
    model = make(make_vec_env(POINT, 3), return_unit=5.0, **BOTH).learn(90)
    model.save(tmp_path / "model")
    batch = to_batch(model.replay_buffer.sample(16), 0.99, model.policy.flatten)  # pyright: ignore[reportOptionalMemberAccess]
    for env in (None, make_vec_env(POINT, 2)):
        loaded = ActorCritic.load(tmp_path / "model", env, device="cpu")
        assert (loaded.normalize_obs, loaded.normalize_returns) == (True, True)
        values = [m.agent.q(batch.obs, batch.action) for m in (model, loaded)]
        assert torch.equal(*values)
        plays = [m.predict(batch.obs.numpy(), deterministic=True)[0] for m in (model, loaded)]
        assert plays[0].tobytes() == plays[1].tobytes()
    other = make(return_unit=5.0, **BOTH)
    other.set_parameters(tmp_path / "model")
    assert torch.equal(other.agent.q(batch.obs, batch.action), values[0])
    loaded.learn(30, reset_num_timesteps=False)
    assert moments(loaded)[2] != moments(model)[2]


@pytest.mark.parametrize(("force_reset", "begins"), [(False, [0]), (True, [0, 25])])
def test_returns_are_added_up_on_where_episodes_go_on(
    force_reset: bool, begins: list[int], tmp_path: Path
) -> None:
    env = make_vec_env("toy_envs:Endless-v0", 2)
    model = make(env, **BOTH).learn(50)
    model.save(tmp_path / "model")
    later = ActorCritic.load(tmp_path / "model", env, device="cpu", force_reset=force_reset)
    later.learn(40, reset_num_timesteps=False)
    buffers: Any = model.replay_buffer, later.replay_buffer
    rewards = np.concatenate([buffer.rewards[: buffer.pos] for buffer in buffers])
    assert rewards.shape == (45, 2)
    sums = np.zeros_like(rewards, dtype=np.float64)
    for t, reward in enumerate(rewards):
        sums[t] = reward + (0.0 if t in begins else model.gamma * sums[t - 1])
    gain = model.return_unit / np.sqrt(np.square(sums).mean())
    assert moments(later)[2] == pytest.approx(gain, rel=1e-5)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("norm_obs", "normalize_obs"), ("norm_reward", "normalize_returns")]
)
def test_what_vecnormalize_does_already_is_refused(theirs: str, ours: str, tmp_path: Path) -> None:
    off: dict[str, Any] = {"norm_obs": False, "norm_reward": False}
    on: dict[str, Any] = off | {theirs: True}
    doing, idle = (VecCheckNan(VecNormalize(make_vec_env(POINT), **how)) for how in (on, off))
    message = rf"VecNormalize normalises \w+ already; leave out {ours}, .* {theirs}=False"
    with pytest.raises(UserError, match=message):
        make(doing, **{ours: True})
    model = make(idle, **{ours: True}).learn(15)
    with pytest.raises(UserError, match=message):
        model.set_env(doing)
    assert model.env is idle
    model.save(tmp_path / "model")
    with pytest.raises(UserError, match=message):
        ActorCritic.load(tmp_path / "model", doing)
    other = {"normalize_obs", "normalize_returns"} - {ours}
    make(doing, **dict.fromkeys(other, True)).learn(15)


def test_what_vecnormalize_does_is_left_to_it_unless_asked_for() -> None:
    assert make().normalize_obs  # By the preset.
    for norm_obs in (True, False):
        env = VecNormalize(make_vec_env(POINT), norm_obs=norm_obs)
        assert make(env).learn(15).normalize_obs is not norm_obs


def test_a_unit_that_is_no_size_is_refused() -> None:
    with pytest.raises(UserError, match="return_unit must be positive and finite, got 0"):
        make(return_unit=0.0)
    with pytest.raises(UserError, match="normalize_obs cannot be 'yes'"):
        make(normalize_obs="yes")


def test_the_log_tells_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    model, told = make(**BOTH).learn(30), {}
    monkeypatch.setattr(model.logger, "record", lambda k, v, **_: told.__setitem__(k, v))
    model.dump_logs()
    assert told["agent/return_gain"] == pytest.approx(moments(model)[2])
