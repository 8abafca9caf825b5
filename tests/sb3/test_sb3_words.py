"""Words of SAC, TD3 and TQC mean the same here, and refusals speak in them."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from stable_baselines3.common.vec_env import VecEnv

from bridgerl.errors import UserError
from bridgerl.sb3 import DBC, TQC, ActorCritic

# Stable-Baselines3 asks every environment it makes for pictures first.
pytestmark = pytest.mark.filterwarnings("ignore:.*render_mode")

POINT = "toy_envs:Point-v0"
TINY: dict[str, Any] = {"learning_starts": 10, "batch_size": 16, "buffer_size": 200, "seed": 0}
TINY |= {"device": "cpu"}


def make(env: Any = POINT, critic: str = "cdq", **kwargs: Any) -> Any:
    shape = {"net_arch": [8]} | kwargs.pop("policy_kwargs", {})
    return ActorCritic("MlpPolicy", env, critic=critic, policy_kwargs=shape, **(TINY | kwargs))


@pytest.mark.parametrize(
    ("word", "start", "learns"),
    [("auto", 1.0, True), ("auto_0.1", 0.1, True), (0.01, 0.01, False), (1, 1.0, False)],
)
def test_the_entropy_coefficient_is_fixed_or_learnt(word: Any, start: float, learns: bool) -> None:
    model = make(ent_coef=word)
    assert model.ent_coef_tensor.item() == pytest.approx(start)
    model.learn(15)
    assert (model.ent_coef_tensor.item() != pytest.approx(start)) == learns
    assert (model.log_ent_coef is not None) == learns
    if learns:
        assert model.log_ent_coef.exp().item() == pytest.approx(model.ent_coef_tensor.item())


def test_actors_without_a_temperature_have_no_coefficient() -> None:
    model = make(actor="td3")
    assert (model.log_ent_coef, model.ent_coef_tensor) == (None, None)
    with pytest.raises(UserError, match="the actor td3 has no ent_coef"):
        make(actor="td3", ent_coef=0.1)


def test_words_of_sac_and_td3_set_the_fields_they_name() -> None:
    sac = make(target_entropy=-3.0, target_update_interval=4).config
    assert (sac.actor.target_entropy, sac.critic.target_every) == (-3.0, 4)
    assert make(target_entropy="auto").config.actor.target_entropy is None
    td3 = make(actor="td3", policy_delay=3, target_policy_noise=0.3, target_noise_clip=0.4).config
    actor = td3.actor
    assert (actor.delay, actor.target_noise, actor.target_noise_clip) == (3, 0.3, 0.4)
    assert td3.critic.target_every == 3  # The targets wait for the policy, as there.


@pytest.mark.parametrize("arch", [[], {"pi": [], "qf": [8]}, {"pi": [8], "qf": []}])
@pytest.mark.parametrize("critic", ["dbc", "cdq"])
def test_parts_without_hidden_layers_learn_and_come_back(
    arch: Any, critic: str, tmp_path: Path
) -> None:
    model = make(critic=critic, policy_kwargs={"net_arch": arch}).learn(20)
    widths = arch if isinstance(arch, dict) else {"pi": arch, "qf": arch}
    hidden = model.config.actor.hidden, model.config.critic.hidden
    assert hidden == (tuple(widths["pi"]), tuple(widths["qf"]))
    model.save(tmp_path / "model")
    obs = np.ones((4, 3))
    plays = [m.predict(obs, deterministic=True)[0] for m in (model, model.load(tmp_path / "model"))]
    assert plays[0].tobytes() == plays[1].tobytes()


def test_words_of_tqc_drop_so_many_quantiles_of_every_network() -> None:
    shape = {"net_arch": [8], "n_critics": 3, "n_quantiles": 10}
    model: Any = TQC(
        "MlpPolicy", POINT, top_quantiles_to_drop_per_net=2, policy_kwargs=shape, **TINY
    )
    critic = model.config.critic
    assert (critic.n_heads, critic.n_atoms, critic.n_drop) == (3, 10, 6)
    assert model.learn(15).agent.updates == 5


def test_arguments_of_adam_reach_both_parts() -> None:
    how = {"betas": (0.5, 0.9), "eps": 1e-3}
    config = make(policy_kwargs={"optimizer_kwargs": how}).config
    for part in (config.actor, config.critic):
        found = (part.beta1, part.beta2, part.adam_eps, part.weight_decay)
        assert found == (0.5, 0.9, 1e-3, 0.0)
    decays = [
        make(policy_kwargs={"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": how}).config
        for how in (None, {"weight_decay": 0.2})
    ]
    assert [c.critic.weight_decay for c in decays] == [0.01, 0.2]  # The first is AdamW's own.


def test_our_own_words_come_last() -> None:
    config = make(tau=0.1, critic_kwargs={"polyak": 0.2}, ent_coef=0.5).config
    assert (config.critic.polyak, config.actor.temperature) == (0.2, 0.5)


def test_words_that_say_what_is_the_case_anyway_are_taken() -> None:
    same = {"activation_fn": nn.ReLU, "features_extractor_class": FlattenExtractor}
    same |= {"share_features_extractor": False, "normalize_images": True}
    make(use_sde=False, sde_sample_freq=-1, use_sde_at_warmup=False, policy_kwargs=same)
    with pytest.warns(UserWarning, match="images are flattened: cnn_output_dim has no effect"):
        make(policy_kwargs={"features_extractor_kwargs": {"cnn_output_dim": 8}})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"use_sde": True, "actor": "td3"}, "^the actor td3 has no use_sde$"),
        ({"use_sde": True, "actor": "qvpo"}, "^the actor qvpo has no use_sde$"),
        ({"sde_sample_freq": -2}, "^sde_sample_freq must be at least -1, got -2$"),
        ({"ent_coeff": 0.1}, "there is no argument 'ent_coeff'; did you mean ent_coef"),
        ({"ent_coef": "automatic"}, "ent_coef must be a number, 'auto' or"),
        ({"ent_coef": -1.0}, "^ent_coef must be positive and finite, got -1.0$"),
        ({"top_quantiles_to_drop_per_net": 2}, "critic cdq has no top_quantiles_to_drop_per_net"),
        ({"policy_kwargs": {"n_critics": 0}}, "^n_critics must be from 1 to 1024, got 0$"),
        ({"policy_kwargs": {"net_arch": [0]}}, "^net_arch must be widths from 1 to"),
        ({"policy_kwargs": {"activation_fn": nn.Tanh}}, "must be ReLU"),
        ({"policy_kwargs": {"features_extractor_class": NatureCNN}}, "must be FlattenExtractor"),
        ({"policy_kwargs": {"optimizer_class": torch.optim.SGD}}, "must be Adam or AdamW"),
        ({"policy_kwargs": {"optimizer_kwargs": {"weight_decay": 0.1}}}, "needs optimizer_class"),
        ({"policy_kwargs": {"optimizer_kwargs": {"amsgrad": 1}}}, "betas, eps and weight_decay"),
        ({"actor_kwargs": {"risk": "cvar:0.1"}}, r"^actor_kwargs\['risk'\] .*: critic .*dbc"),
        ({"critic_kwargs": {"grad_clip": 0.0}}, r"^critic_kwargs\['grad_clip'\] must be positive"),
        (
            {"actor_kwargs": {"trunk": "simba"}},
            r"equal widths in actor_kwargs\['hidden'\]|net_arch",
        ),
        ({"batch_size": "many"}, "^batch_size cannot be 'many'$"),
    ],
)
def test_refusals_name_the_argument_and_no_flag(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make(**arguments)
    assert isinstance(caught.value, UserError)
    assert "--" not in str(caught.value)
    assert "\n" not in str(caught.value)


# What else programs ask for


def test_actor_and_critic_are_called_as_in_sb3() -> None:
    model = make(ent_coef=0.1).learn(20)
    obs, _ = model.policy.obs_to_tensor(np.ones((4, 3)))
    action = model.actor(obs)
    assert torch.equal(action, model.policy(obs, deterministic=True))
    assert torch.equal(action, model.policy.actor(obs))
    by_name, _ = model.actor.predict(np.ones((4, 3)), deterministic=True)
    assert by_name == pytest.approx(model.policy.unscale_action(action.numpy()))
    (q,) = model.critic(obs, action)
    assert torch.equal(q[:, 0], model.agent.q(obs.float(), action))
    assert q.shape == model.policy.critic(obs, action)[0].shape == (4, 1)
    assert model.critic_target is model.policy.critic_target is model.agent.critic.target
    assert list(model.actor.parameters()) == list(model.agent.actor.parameters())


def test_training_takes_the_models_batch_size_unless_told() -> None:
    model = make().learn(15)
    sizes = []
    sample = model.replay_buffer.sample
    model.replay_buffer.sample = lambda n, env: sizes.append(n) or sample(n, env)
    model.train(2)
    model.train(gradient_steps=1, batch_size=5)
    model.train(gradient_steps=0)
    assert sizes == [16, 16, 5]


def test_tensorboards_folder_is_named_after_the_class(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    model = DBC("MlpPolicy", POINT, policy_kwargs={"net_arch": [8]}, tensorboard_log=str(tmp_path))
    model.learn(5)
    model.learn(5, tb_log_name="mine")
    assert {path.name for path in tmp_path.iterdir()} == {"DBC_1", "mine_1"}


class Own(VecEnv):
    """As little of a vectorised environment as one may write; it knows no env_method."""

    def __init__(self) -> None:
        space = gym.spaces.Box(-1, 1, (3,), np.float32)
        super().__init__(2, space, gym.spaces.Box(-1, 1, (2,), np.float32))

    def reset(self) -> Any:
        return np.zeros((2, 3), np.float32)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        done = np.zeros(2, bool)
        return np.zeros((2, 3), np.float32), self._actions[:, 0], done, [{}, {}]

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: Any = None) -> Any:
        return [None, None]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise RuntimeError("this is a GPU")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise RuntimeError("this is a GPU")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> Any:
        return [False, False]


def test_vectorised_environments_of_ones_own_train() -> None:
    assert make(Own()).learn(20).num_timesteps == 20
