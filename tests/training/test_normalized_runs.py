"""Runs that normalise: what is counted, that units do not matter, and that people never notice."""

import dataclasses
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bridgerl import build_agent, load_agent, resolve, train
from bridgerl.agent import Agent, build_normalizer
from bridgerl.config import RunConfig, TrainConfig
from bridgerl.envs.task import Task
from bridgerl.runs import checkpoint
from bridgerl.runs.folder import RunFolder
from bridgerl.streams import Streams
from bridgerl.testing import SPEC, make_batch, snapshot
from bridgerl.training import health
from bridgerl.training.evaluate import play_episodes
from bridgerl.training.process import tuned_process
from bridgerl.training.state import RunState
from bridgerl.training.step import TrainStep

BOTH: dict[str, Any] = {"normalize_obs": True, "normalize_returns": True}


def small(env: str, out: Path, actor: str = "sac", critic: str = "cdq", **how: Any) -> RunConfig:
    """A short run that normalises; keywords change its training."""
    base = resolve(env, actor, critic)
    values = {"warmup": 100, "batch_size": 32, "buffer_size": 1000, **BOTH, **how}
    return dataclasses.replace(
        base,
        out=out,
        steps=300,
        actor=dataclasses.replace(base.actor, hidden=(16,)),
        critic=dataclasses.replace(base.critic, hidden=(16,)),
        train=dataclasses.replace(base.train, **values),
        eval=dataclasses.replace(base.eval, every=300, episodes=1),
        log=dataclasses.replace(base.log, every=50, tensorboard=False),
    )


def rows_of(run: Path) -> np.ndarray:
    stretches = checkpoint.replay_rows(RunFolder(run), RunFolder(run).last_weights(), 10**9)
    return torch.cat([rows for _, rows in stretches]).double().numpy()


def last_record(run: Path) -> dict[str, Any]:
    return [r for r in RunFolder(run).records() if r["kind"] == "train"][-1]


def normalizing(actor: str = "sac", critic: str = "cdq", **critic_values: Any) -> Agent:
    """An agent of the contract's sizes that has seen nothing."""
    config, how = resolve("contract", actor, critic), TrainConfig(**BOTH)
    critic_config = dataclasses.replace(config.critic, **critic_values)
    return build_agent(config.actor, critic_config, SPEC, Streams(0), build_normalizer(how, SPEC))


def moments(agent: Agent) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and deviation of observations, gain of rewards."""
    assert agent.normalizer.obs is not None
    assert agent.normalizer.returns is not None
    return agent.normalizer.obs.mean, agent.normalizer.obs.std, agent.normalizer.returns.gain


# What is counted


def test_statistics_are_those_of_every_observation_and_return_of_the_run(tmp_path: Path) -> None:
    config = small("toy_envs:Point-v0", tmp_path)
    run = train(config, quiet=True)
    rows = rows_of(run)
    obs, reward, next_obs = rows[:, :3], rows[:, 5] + rows[:, 10], rows[:, 7:10]
    begins = np.append(True, (obs[1:] != next_obs[:-1]).any(1))
    seen = np.concatenate([obs[begins], next_obs])
    sums, total = [], 0.0
    for paid, first in zip(reward, begins, strict=True):
        total = (0.0 if first else config.train.discount * total) + paid
        sums.append(total)
    mean, std, gain = moments(load_agent(run, "last")[0])
    assert begins.sum() > 3
    assert mean == pytest.approx(seen.mean(0), rel=1e-9)
    assert std == pytest.approx(seen.std(0), rel=1e-9)
    assert gain == pytest.approx(10.0 / np.sqrt(np.square(sums).mean()), rel=1e-6)
    assert last_record(run)["agent/return_gain"] == pytest.approx(gain, rel=1e-6)


def test_what_mujoco_made_up_is_not_counted(tmp_path: Path) -> None:
    run = train(small("toy_envs:Exploding-v0", tmp_path), quiet=True)
    ends = [r["step"] for r in RunFolder(run).records() if r["kind"] == "episode"]
    begun = len(ends) + (ends[-1] < 300)
    count = load_agent(run, "last")[0].state_dict()["normalizer.obs._extra_state"][0]
    assert len(rows_of(run)) < 300
    assert count == begun + len(rows_of(run))


def test_statistics_stand_still_in_an_update_and_what_is_given_stays_raw() -> None:
    agent, batch = normalizing(), make_batch()
    for row in batch.obs:
        agent.observe(row.numpy(), 3.0)
    before = {k: v for k, v in snapshot(agent).items() if k.startswith("normalizer.")}
    raw = [column.clone() for column in batch]
    agent.diagnostics(batch)
    agent.update(batch)
    agent.act(batch.obs[0].numpy(), explore=True, generator=torch.Generator())
    agent.quantiles(batch.obs, batch.action, torch.tensor([[0.5]]))
    assert len(before) == 2
    assert all(torch.equal(v, agent.state_dict()[k]) for k, v in before.items())
    assert all(map(torch.equal, raw, batch))


def test_without_normalisers_the_state_has_no_word_of_them(tmp_path: Path) -> None:
    off: dict[str, Any] = dict.fromkeys(BOTH, False)
    run = train(small("toy_envs:Point-v0", tmp_path, **off), quiet=True)
    tensors = checkpoint.load_weights(RunFolder(run).last_weights())
    assert not [name for name in tensors if "normalizer" in name]
    assert "agent/return_gain" not in last_record(run)


# Units do not matter


def stepped(env: str, actor: str, critic: str, steps: int) -> tuple[RunState, dict[str, Tensor]]:
    """Where a run without a folder stands after so many steps, and its weights."""
    config = small(env, Path("none"), actor, critic)
    with closing(Task(config.env, 0)) as task, tuned_process(1):
        state = RunState(config, task)
        step = TrainStep(state, config.train, config.warmup)
        task.reset(0)
        for number in range(1, steps + 1):
            step(diagnostics=number == steps)
    own = {k: v for k, v in state.agent.state_dict().items() if "normalizer.returns" not in k}
    return state, own


@pytest.mark.parametrize(
    ("actor", "critic"), [("sac", "cdq"), ("sac", "dbc"), ("td3", "vf"), ("qvpo", "vdrl")]
)
@pytest.mark.parametrize("factor", [1000, 1024])
def test_rewards_of_another_unit_teach_the_same_bits(actor: str, critic: str, factor: int) -> None:
    (plain, one), (loud, two) = (
        stepped(f"toy_envs:Loud{f}-v0", actor, critic, 180) for f in (1, factor)
    )
    assert plain.agent.updates == 80
    assert one.keys() == two.keys()
    assert [k for k in one if not torch.equal(one[k], two[k])] == []
    gains = [state.diagnostics.pop("agent/return_gain") for state in (plain, loud)]
    same, close = torch.testing.assert_close, {"rtol": 1e-6, "atol": 0}
    same(gains[0], factor * gains[1], **close)
    for name in ("metrics", "diagnostics"):
        same(getattr(plain, name), getattr(loud, name), **close, equal_nan=True)
    batch = make_batch()
    obs, action = batch.obs, batch.action[:, :1]
    same(factor * plain.agent.q(obs, action), loud.agent.q(obs, action), **close)


def test_rewards_too_large_to_be_squared_can_be_learnt(tmp_path: Path) -> None:
    config = small("toy_envs:HugeReward-v0", tmp_path)
    run = train(config, quiet=True)  # Otherwise three updates are lost, and the run with them.
    agent, _ = load_agent(run, "last")
    rows = torch.from_numpy(rows_of(run)).float()
    assert torch.isfinite(agent.q(rows[:, :3], rows[:, 3:5])).all()


# What people see is in the task's units


@pytest.mark.parametrize("size", [1e-3, 1e6])
@pytest.mark.parametrize("critic", ["cdq", "dbc", "iqn"])
def test_values_come_out_as_large_as_the_rewards_that_went_in(critic: str, size: float) -> None:
    agent, n = normalizing("td3", critic, lr=1e-2), 64
    for row in make_batch(500, seed=1).obs:
        agent.begin_episode(row.numpy())
        agent.observe(row.numpy(), size)
    batch = make_batch(n, discount=0.0)
    batch = batch._replace(reward=size * torch.ones(n))
    for _ in range(150):
        agent.update(batch)
    tau = torch.tensor([[0.1, 0.9]])
    values = agent.q(batch.obs, batch.action)
    assert values.mean().item() == pytest.approx(size, rel=0.1)
    for law in (
        agent.quantiles(batch.obs, batch.action, tau),
        agent.particles(batch.obs, batch.action, 5),
    ):
        assert law.mean().item() == pytest.approx(size, rel=0.1)


def test_a_loaded_agent_plays_and_values_what_it_saw_in_training(tmp_path: Path) -> None:
    config = small("toy_envs:Point-v0", tmp_path, critic="dbc")
    run = train(config, quiet=True)
    agent, step = load_agent(run, "last")
    with closing(Task(config.env, config.seed, "eval")) as task, tuned_process(1):
        again = play_episodes(agent, task, config.eval, seed=config.seed, key=step)
    played = [r for r in RunFolder(run).records() if r["kind"] == "eval"][-1]
    assert again is not None
    assert again.returns == played["eval/returns"]

    rows = rows_of(run)[:32]
    mean, std, gain = moments(agent)
    seen = torch.from_numpy((rows[:, :3] - mean) / std).float()
    obs, action = (torch.from_numpy(x).float() for x in (rows[:, :3], rows[:, 3:5]))
    tau = torch.tensor([[0.1, 0.5, 0.9]])
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4 / gain)
    close(agent.q(obs, action), agent.critic.mean(seen, action) / gain)
    own = agent.critic.quantiles(seen, action, tau) / gain
    close(agent.quantiles(obs, action, tau), own)


def test_the_price_of_entropy_is_told_as_a_return() -> None:
    agent, obs = normalizing("sac"), make_batch().obs
    agent.observe(obs[0].numpy(), 5000.0)
    with agent._streams.kept():
        boot = agent.bootstrap(obs)
    own = agent.actor.bootstrap(agent.normalizer.normalize_obs(obs), agent.critic.q_rank)
    assert torch.equal(boot.action, own.action)
    torch.testing.assert_close(boot.entropy_cost, 500 * own.entropy_cost.detach())


@pytest.mark.parametrize(("kappa", "warned"), [(1.0, True), (1e-9, False)])
def test_kappa_is_compared_with_the_spread_that_the_critic_sees(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kappa: float,
    warned: bool,
) -> None:
    monkeypatch.setattr(health, "SETTLED", 0)
    monkeypatch.setattr(health, "Q_ALARM", 1e9)
    config = small("toy_envs:Point-v0", tmp_path, critic="iqn", return_unit=1e-3)
    config = config.changed(critic={"kappa": kappa})
    train(config, quiet=True)
    assert ("--train.return-unit" in capsys.readouterr().err) == warned


@pytest.mark.parametrize("critic", ["vf", "vdrl"])
def test_bounds_of_returns_follow_the_gain(critic: str) -> None:
    agent, batch = normalizing("td3", critic, bounded=True), make_batch()
    for reward in (1.0, -2.0):
        agent.observe(batch.obs[0].numpy(), reward)
    agent.update(batch)

    def limits() -> Tensor:
        bounds: Any = agent.critic.bounds
        return torch.stack(bounds.limits()) / moments(agent)[2]

    before, gain = limits(), moments(agent)[2]
    assert torch.isfinite(before).all()
    for _ in range(100):
        agent.observe(batch.obs[0].numpy(), 300.0)
    assert moments(agent)[2] < gain / 100
    torch.testing.assert_close(limits(), before, rtol=1e-4, atol=0)
