"""Observations that are no plain array, and hindsight: what the agent sees, learns and stores."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from bridgerl.errors import StorageFault, UserError
from bridgerl.sb3 import DBC, ActorCritic
from bridgerl.sb3.spaces import flattener, from_tensors, one, to_tensors

ACTION = spaces.Box(-1, 1, (2,), np.float32)
ALL = {
    "box": spaces.Box(-2, 3, (2, 2), np.float64),
    "discrete": spaces.Discrete(4, start=3),
    "multidiscrete": spaces.MultiDiscrete([4, 3]),
    "multibinary": spaces.MultiBinary(5),
    "multibinary of two axes": spaces.MultiBinary((3, 2)),
    "dict": spaces.Dict(
        {"b.c/d": spaces.Discrete(3), "a": spaces.Box(-1, 1, (2,)), "e": spaces.MultiBinary(2)}
    ),
}
TINY: dict[str, Any] = {"learning_starts": 20, "batch_size": 16, "buffer_size": 200, "seed": 0}
TINY |= {"device": "cpu", "policy_kwargs": {"net_arch": [16]}, "critic": "cdq"}
HER: dict[str, Any] = {"replay_buffer_class": HerReplayBuffer}


class Random(gym.Env[Any, Any]):
    """Shows draws of its space; pays for a large first action."""

    action_space = ACTION

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: np.ndarray) -> Any:
        return self.observation_space.sample(), float(action[0]), False, False, {}


def random_env(space: spaces.Space[Any]) -> Any:
    return gym.wrappers.TimeLimit(Random(space), 10)


def make(env: Any, policy: str = "MultiInputPolicy", **kwargs: Any) -> ActorCritic:
    return ActorCritic(policy, env, **(TINY | kwargs))


def flips(n_envs: int = 1) -> Any:
    return make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), n_envs)


def draws(space: spaces.Space[Any], n: int = 20) -> list[Any]:
    space.seed(0)
    return [space.sample() for _ in range(n)]


@pytest.mark.parametrize("space", ALL.values(), ids=ALL)
def test_observations_become_what_gymnasium_flattens_them_to(space: spaces.Space[Any]) -> None:
    for obs in draws(space):
        flat, theirs = flattener(space)(one(obs)), np.asarray(spaces.flatten(space, obs))
        assert flat.dtype == torch.float32
        assert np.array_equal(flat[0].numpy(), theirs.astype(np.float32))


def test_the_order_of_a_dict_is_the_spaces_own() -> None:
    obs = draws(ALL["dict"], 1)[0]
    other = {key: obs[key] for key in reversed(list(obs))}
    assert torch.equal(*(flattener(ALL["dict"])(one(o)) for o in (obs, other)))


def test_images_are_divided_by_255() -> None:
    space = spaces.Box(0, 255, (3, 8, 8), np.uint8)
    assert flattener(space)(torch.full((2, 3, 8, 8), 255, dtype=torch.uint8)).eq(1).all()


@pytest.mark.parametrize("space", ALL.values(), ids=ALL)
def test_every_space_trains_saves_and_loads(space: spaces.Space[Any], tmp_path: Path) -> None:
    env = make_vec_env(lambda: random_env(space), 2)
    policy = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    model = make(env, policy).learn(30)
    seen = model.agent.normalizer.obs
    assert seen is not None
    assert np.isfinite(seen.mean).all()
    assert len(seen.mean) == spaces.flatdim(space)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = ActorCritic.load(tmp_path / "model", env, device="cpu")
    assert loaded.observation_space == space
    obs: Any = env.reset()
    a, b = (m.predict(obs, deterministic=True)[0] for m in (model, loaded))
    assert a.tobytes() == b.tobytes()
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert loaded.replay_buffer is not None
    assert loaded.replay_buffer.size() == 15
    assert loaded.learn(10, reset_num_timesteps=False).agent.updates > model.agent.updates


def test_a_dict_goes_on_without_a_reset_unless_it_was_forged(tmp_path: Path) -> None:
    env = random_env(ALL["dict"])
    model = make(env).learn(15)
    model.save(tmp_path / "model")
    loaded: Any = ActorCritic.load(tmp_path / "model", env, device="cpu", force_reset=False)
    for key, value in loaded._last_obs.items():
        assert np.array_equal(value, model._last_obs[key])  # pyright: ignore
    model._last_obs = {"a": np.zeros((1, 2))}
    model.save(tmp_path / "model")
    with pytest.raises(StorageFault, match="no valid last observations"):
        ActorCritic.load(tmp_path / "model", env, device="cpu", force_reset=False)


def test_statistics_are_of_the_flat_observations_up_to_the_last_of_an_episode() -> None:
    model = make(random_env(ALL["dict"])).learn(35)
    buffer: Any = model.replay_buffer
    flatten = flattener(ALL["dict"])
    after, before = (
        flatten({k: torch.as_tensor(v[:35, 0]) for k, v in parts.items()}).numpy()
        for parts in (buffer.next_observations, buffer.observations)
    )
    seen = np.concatenate([after, before[[0, 10, 20, 30]]])
    obs = model.agent.normalizer.obs
    assert obs is not None
    assert obs.mean == pytest.approx(seen.mean(0), abs=1e-6)
    assert obs.std == pytest.approx(seen.std(0), abs=1e-6)


def test_a_dict_needs_the_policy_of_that_name_as_in_sb3() -> None:
    with pytest.raises(ValueError, match="You must use `MultiInputPolicy`"):
        make(random_env(ALL["dict"]), "MlpPolicy")


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.Text(3), "a Text observation space"),
        (spaces.Dict({"a": spaces.Text(3)}), "a Text observation space"),
        (spaces.Tuple([spaces.Discrete(3)]), "a Tuple observation space"),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), "a MultiDiscrete observation space"),
        (spaces.Dict({}), "an empty observation space"),
    ],
)
def test_spaces_that_cannot_be_learnt_from_are_refused(space: Any, name: str) -> None:
    with pytest.raises(UserError, match=name) as caught:
        make(Random(space))
    assert isinstance(caught.value, AssertionError)
    assert "\n" not in str(caught.value)


def test_forged_spaces_are_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    stored = to_tensors(ACTION, "action_space")
    for forged in ([0, 0], [-5, 0], [3], [1, 2, 3]):
        with pytest.raises(StorageFault, match="no valid spaces"):
            from_tensors(stored | {"observation_space.discrete": torch.tensor(forged)})
    model = make(random_env(spaces.Discrete(10)), "MlpPolicy")
    model.observation_space = spaces.Discrete(10**12)
    model.save(tmp_path / "model")
    with pytest.raises(StorageFault, match="fewer weights than 1000000000000 observations"):
        ActorCritic.load(tmp_path / "model")


# Hindsight


def test_hindsight_shows_the_agent_goals_that_were_reached() -> None:
    model = make(flips(), **HER)
    seen = []
    update = model.agent.update
    model.agent.update = lambda batch, **how: seen.append(batch.reward) or update(batch, **how)
    model.learn(80)
    buffer: Any = model.replay_buffer
    reached = (buffer.rewards[:80] == 0).mean()
    assert (torch.cat(seen) == 0).float().mean() > reached + 0.2


@pytest.mark.parametrize("strategy", ["final", GoalSelectionStrategy.FUTURE])
def test_a_model_with_hindsight_comes_back_with_its_buffer(strategy: Any, tmp_path: Path) -> None:
    env = flips(2)
    how = {"n_sampled_goal": 2, "goal_selection_strategy": strategy}
    model = make(env, **HER, replay_buffer_kwargs=how).learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay_buffer.pkl")
    with pytest.raises(UserError, match="pass env= to load"):
        ActorCritic.load(tmp_path / "model")
    loaded = ActorCritic.load(tmp_path / "model", env, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 says that the episode under way is cut.
        loaded.load_replay_buffer(tmp_path / "replay_buffer.pkl")
    ours: Any = model.replay_buffer
    theirs: Any = loaded.replay_buffer
    assert type(theirs) is HerReplayBuffer
    assert (theirs.n_sampled_goal, theirs.pos) == (2, ours.pos)
    assert theirs.goal_selection_strategy is ours.goal_selection_strategy
    for name in ("observation", "achieved_goal", "desired_goal"):
        assert np.array_equal(ours.observations[name], theirs.observations[name])
    assert (theirs._current_ep_start == theirs.pos).all()  # What was under way is cut off.
    loaded.learn(40, reset_num_timesteps=False)


def test_hindsight_asks_the_environment_that_was_set_last() -> None:
    model, other = make(flips(), **HER).learn(30), flips()
    model.set_env(other)
    buffer: Any = model.replay_buffer
    assert buffer.env is other


def test_episodes_outside_of_a_stored_buffer_are_refused(tmp_path: Path) -> None:
    model = make(flips(), **HER).learn(40)
    buffer: Any = model.replay_buffer
    buffer.ep_length[3] = 10**9
    model.save_replay_buffer(tmp_path / "buffer")
    with pytest.raises(StorageFault, match="episodes outside of the buffer"):
        model.load_replay_buffer(tmp_path / "buffer")


def test_infos_of_any_kind_are_not_stored(tmp_path: Path) -> None:
    model = make(flips(), **HER, replay_buffer_kwargs={"copy_info_dict": True}).learn(30)
    with pytest.raises(UserError, match="copy_info_dict=True holds objects of any kind"):
        model.save_replay_buffer(tmp_path / "buffer")


def test_hindsight_with_dbc_knows_a_distribution() -> None:
    env = flips(2)
    how = {k: v for k, v in TINY.items() if k != "critic"}
    model = DBC("MultiInputPolicy", env, **how, **HER).learn(60)
    obs: Any = env.reset()
    rows = model.policy.flatten({k: torch.as_tensor(v) for k, v in obs.items()})
    tau = torch.tensor([[0.1, 0.9]])
    assert model.agent.quantiles(rows, torch.zeros(2, 4), tau).shape == (2, 2)


def test_vecnormalize_normalises_the_parts_of_a_dict() -> None:
    space = spaces.Dict({"a": spaces.Box(0, 100, (2,)), "b": spaces.Box(0, 1, (1,))})
    env = VecNormalize(make_vec_env(lambda: random_env(space), 2))
    model = make(env).learn(40)
    assert not model.normalize_obs
    buffer: Any = model.replay_buffer
    assert buffer.observations["a"].max() > 50
    batch = buffer.sample(16, env)
    assert model.policy.flatten(batch.observations).abs().max() < 10
