"""State-dependent exploration: Stable-Baselines3's own distribution, and its loop around ours."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from parity import all_close, close, make_batch, make_theirs, sb3, task_spec

from bridgerl.actors.sac import SACConfig, StateSAC
from bridgerl.nn.state_noise import StateNoise
from bridgerl.sb3 import CDQ, TQC
from bridgerl.streams import Streams

SMALL: dict[str, Any] = {"net_arch": [8]}


def make(env: Any = "Pendulum-v1", **kwargs: Any) -> CDQ:
    how = {"policy_kwargs": SMALL, "seed": 1, "learning_starts": 8, "batch_size": 8} | kwargs
    return CDQ("MlpPolicy", env, device="cpu", buffer_size=100, **how)


def explored(model: CDQ, n: int = 1) -> np.ndarray:
    return model.predict(np.ones((n, 3), np.float32), deterministic=False)[0]


def parts(net: Any) -> list[torch.Tensor]:
    """Weights of a policy of ours in the order of theirs."""
    return [net.log_std, *net.features.parameters(), *net.mean.parameters()]


@pytest.mark.parametrize("use_expln", [False, True])
def test_mean_spread_noise_and_gradients_equal_stable_baselines3(use_expln: bool) -> None:
    how = {"use_expln": use_expln, "log_std_init": -1.0}
    model, obs = make_theirs(sb3.SAC, use_sde=True, policy_kwargs=how), make_batch().obs * 20
    theirs = model.actor
    config = SACConfig(hidden=(256, 256), sde=True, sde_expln=use_expln)
    net: Any = config.build(task_spec(), Streams(0)).net
    assert isinstance(net, StateNoise)
    with torch.no_grad():
        theirs.log_std.add_(torch.randn(theirs.log_std.shape))  # Below 0 and above.
        for mine, other in zip(parts(net), theirs.parameters(), strict=True):
            mine.copy_(other)
    close(net.std, theirs.get_std())

    mean, log_std = net(obs)
    their_mean, raw, latent = theirs.get_action_dist_params(obs)
    spread = theirs.action_dist.proba_distribution(their_mean, raw, **latent).distribution.stddev
    assert mean.abs().max() == 2.0  # The limit of the mean is at work.
    close(mean, their_mean)
    close(log_std.exp(), spread)
    grads = [
        torch.autograd.grad((m * s.log()).mean(), weights)
        for m, s, weights in (
            (mean, log_std.exp(), parts(net)),
            (their_mean, spread, list(theirs.parameters())),
        )
    ]
    all_close(*map(list, grads))

    theirs.reset_noise(len(obs))
    draws = theirs.action_dist.exploration_matrices / theirs.get_std()
    close(torch.tanh(net.explore(obs, draws)), theirs(obs))


def test_log_probabilities_equal_stable_baselines3() -> None:
    model, obs = make_theirs(sb3.SAC, use_sde=True), make_batch().obs
    config = SACConfig(hidden=(256, 256), sde=True)
    actor: Any = config.build(task_spec(), Streams(0))
    with torch.no_grad():
        for mine, other in zip(parts(actor.net), model.actor.parameters(), strict=True):
            mine.copy_(other)
        action, ours = actor._sample(obs, torch.Generator().manual_seed(0))
        mean, raw, latent = model.actor.get_action_dist_params(obs)
        theirs = model.actor.action_dist.proba_distribution(mean, raw, **latent).log_prob(action)
    close(ours, theirs)


def test_noise_is_held_for_a_rollout_or_sample_freq_steps() -> None:
    for freq, changes in ((-1, 1), (2, 3)):
        model = make(use_sde=True, sde_sample_freq=freq, train_freq=6, use_sde_at_warmup=True)
        actor, seeds = model.policy.with_sde, []
        act = actor.act

        def noted(*args: Any, act: Any = act, actor: StateSAC = actor, **kwargs: Any) -> Any:
            out = act(*args, **kwargs)
            seeds.append(float(actor.held.seed))  # noqa: B023
            return out

        actor.act = noted
        model.learn(6)
        assert len(seeds) == 6
        assert len(set(seeds)) == changes


def test_environments_explore_apart_and_new_noise_is_other() -> None:
    model = make(use_sde=True)
    first = explored(model, 2)
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first, explored(model, 2))
    model.policy.reset_noise()
    assert not np.array_equal(first, explored(model, 2))
    assert model.actor.get_std().shape == (8, 1)


def test_a_saved_model_goes_on_with_the_noise_it_holds(tmp_path: Path) -> None:
    how = {"log_std_init": -2.0, "use_expln": True, "clip_mean": 0.0}
    model = make(use_sde=True, sde_sample_freq=4, use_sde_at_warmup=True, policy_kwargs=SMALL | how)
    model.learn(12)
    model.save(tmp_path / "model")
    other = CDQ.load(tmp_path / "model", device="cpu")
    assert other.use_sde
    assert other.use_sde_at_warmup
    assert other.sde_sample_freq == 4
    assert other.config.actor == model.config.actor
    assert np.array_equal(explored(model), explored(other))
    for each in (model, other):
        each.policy.reset_noise()
    assert np.array_equal(explored(model), explored(other))


def test_use_sde_false_turns_off_what_the_settings_of_an_actor_have_on() -> None:
    own = SACConfig(hidden=(8,), sde=True)
    assert isinstance(make(actor=own).agent.actor, StateSAC)
    assert not isinstance(make(actor=own, use_sde=False).agent.actor, StateSAC)


def test_the_actor_may_hold_its_noise_by_itself() -> None:
    model = make(actor_kwargs={"sde": True, "sde_sample_every": 5})
    assert not model.use_sde  # Stable-Baselines3's loop does not meddle.
    actions = [explored(model) for _ in range(10)]
    assert len(np.unique(actions)) == 2


def test_sde_goes_with_other_critics_and_its_calls_are_refused_without_it() -> None:
    TQC("MlpPolicy", "Pendulum-v1", use_sde=True, policy_kwargs=SMALL, seed=1).learn(5)
    make(actor="td3", use_sde=False)
    with pytest.raises(AssertionError, match="need use_sde=True"):
        make().policy.reset_noise()


def test_the_log_tells_the_spread_of_the_noise(tmp_path: Path) -> None:
    env = gym.wrappers.TimeLimit(gym.make("Pendulum-v1").unwrapped, 4)
    model = make(env, use_sde=True)
    model.set_logger(sb3.common.logger.configure(str(tmp_path), ["json"]))
    model.learn(9, log_interval=1)
    model.logger.close()
    lines = (tmp_path / "progress.json").read_text().splitlines()
    assert json.loads(lines[-1])["train/std"] == pytest.approx(np.exp(-3.0), rel=0.1)
