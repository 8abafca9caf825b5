"""Acting on a measure of risk: what actors are handed, what is refused, and exact resume."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bridgerl import Agent, Streams, build_agent, resolve
from bridgerl.actors import ACTORS
from bridgerl.config import decode, encode
from bridgerl.critics import CRITICS
from bridgerl.critics.cdq import CDQ, CDQConfig
from bridgerl.errors import UserError
from bridgerl.nn.normalize import Normalizer, ReturnScale
from bridgerl.ops.risk import add_distortion
from bridgerl.runs.verify import compare, verify
from bridgerl.settings.measures import OWN
from bridgerl.testing import SPEC, learn, make_batch, snapshot
from conftest import TINY
from warm_process import WarmProcess

KNOW = [name for name, kind in CRITICS.items() if kind.distributional]


def agent_of(
    actor: str, critic: str, risk: str = "mean", normalizer: Normalizer | None = None
) -> Agent:
    config = resolve("contract", actor, critic)
    part = replace(config.actor, risk=risk)
    return build_agent(part, config.critic, SPEC, Streams(0), normalizer)


def test_all_critics_but_the_point_valued_one_know_their_risk() -> None:
    assert set(CRITICS) - set(KNOW) == {"cdq"}


@pytest.mark.parametrize("actor", list(ACTORS))
def test_the_mean_is_taken_from_the_critic_as_ever(
    actor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(actor, "dbc")

    def fail(*_: object, **__: object) -> Tensor:
        raise AssertionError("a neutral policy must not ask for risk")

    monkeypatch.setattr(agent.critic, "risk", fail)
    learn(agent, range(2))
    obs = make_batch(4).obs
    agent.actions(obs, explore=False, generator=torch.Generator().manual_seed(0))
    agent.bootstrap(obs)


@pytest.mark.parametrize("actor", list(ACTORS))
@pytest.mark.parametrize("critic", KNOW)
def test_an_averse_policy_learns_otherwise_than_a_neutral_one(actor: str, critic: str) -> None:
    neutral, averse = agent_of(actor, critic), agent_of(actor, critic, "cvar:0.1")
    start = snapshot(averse.actor)
    for agent in (neutral, averse):
        learn(agent, range(3))
    assert all(torch.isfinite(v).all() for v in averse.state_dict().values())
    changed = snapshot(averse.actor)
    assert any(not torch.equal(start[k], changed[k]) for k in start)
    other = snapshot(neutral.actor)
    assert any(not torch.equal(other[k], changed[k]) for k in other)


def test_qvpo_explores_plays_and_bootstraps_by_its_measure() -> None:
    agent, seen = agent_of("qvpo", "tqc", "cvar:0.1"), []
    risk = agent.critic.risk

    def spy(obs: Tensor, action: Tensor, measure: object, **how: bool) -> Tensor:
        seen.append((str(measure), how["fixed"], how["target"]))
        return risk(obs, action, "cvar:0.1", **how)

    agent.critic.risk = spy
    obs, draws = make_batch(4).obs, torch.Generator()
    agent.actions(obs, explore=True, generator=draws)
    agent.actions(obs, explore=False, generator=draws)
    agent.bootstrap(obs)
    assert seen == [("cvar:0.1", True, t) for t in (False, False, True)]


def test_the_mean_as_a_measure_is_that_of_the_same_draws_as_the_value() -> None:
    agent, batch = learn(agent_of("sac", "vdrl"), range(3)), make_batch(16)
    told = agent.risk(batch.obs, batch.action, "mean")
    assert torch.allclose(told, agent.q(batch.obs, batch.action), atol=1e-5)


class Drawing(CDQ):
    """A critic without a distribution whose value is random."""

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        raise AssertionError("what draws must not be asked for what is fixed")

    def q_rank(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        return torch.zeros(len(obs))


def test_the_fixed_mean_of_a_random_value_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CDQConfig, "build", lambda config, spec, _: Drawing(config, spec))
    agent, batch = agent_of("sac", "cdq"), make_batch(4)
    assert agent.risk(batch.obs, batch.action, "mean").tolist() == [0.0] * 4


def test_an_agents_risk_is_in_the_units_of_the_task() -> None:
    scale = ReturnScale(0.99, 10.0)
    for _ in range(5):
        scale.add(200.0, 0)
    scaled = agent_of("sac", "dsac", normalizer=Normalizer(returns=scale))
    batch, gain = make_batch(8), scale.gain
    assert gain != 1
    z = scaled.particles(batch.obs, batch.action, 4_000).double()
    for beta in (0.001, 0.02):
        expected = -torch.log(torch.exp(-beta * z).mean(1)) / beta
        found = scaled.risk(batch.obs, batch.action, f"entropic:{beta}")
        torch.testing.assert_close(found.double(), expected, rtol=0.01, atol=0.05)


def test_a_named_distortion_is_a_setting_like_any_other() -> None:
    config = resolve("contract")
    try:
        add_distortion("worst-half", lambda tau: (2 * tau).clamp(max=1))
        own = replace(config, actor=replace(config.actor, risk="worst-half"))
        assert decode(encode(own)) == own
        learn(agent_of("td3", "dbc", "worst-half"), range(2))
    finally:
        OWN.clear()
    with pytest.raises(UserError, match="unknown risk measure 'worst-half'"):
        decode(encode(own))


def test_a_critic_without_a_distribution_is_refused_with_those_that_have_one() -> None:
    config = resolve("contract", "sac", "cdq")
    with pytest.raises(UserError, match=r"needs a critic .* dsac, iqn, tqc, vf, vdrl, dbc"):
        replace(config, actor=replace(config.actor, risk="cvar:0.1"))
    with pytest.raises(UserError, match="did you mean cvar"):
        replace(config.actor, risk="cvr:0.1")


def test_the_drop_in_takes_a_measure_and_keeps_it_in_its_file(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("bridgerl.sb3")
    small = {"learning_starts": 10, "batch_size": 16, "actor_kwargs": {"risk": "cvar:0.1"}}
    model = sb3.DBC("MlpPolicy", "Pendulum-v1", seed=0, **small).learn(20)
    model.save(tmp_path / "model")
    assert sb3.DBC.load(tmp_path / "model").config.actor.risk == "cvar:0.1"
    with pytest.raises(UserError, match="needs a critic that knows"):
        sb3.CDQ("MlpPolicy", "Pendulum-v1", actor_kwargs={"risk": "cvar:0.1"})


def test_refusals_are_a_line_and_leave_nothing(warm: WarmProcess, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "runs"))
    for risk, says in (("cvar:0.1", "--critic dsac, iqn"), ("cvr:0.1", "did you mean cvar?")):
        ended = warm.run(*TINY, "--actor.risk", risk, *out)
        assert ended.code == 2
        assert says in ended.err
        assert ended.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("actor", "critic"), [("sac", "dbc"), ("qvpo", "iqn")])
def test_a_killed_averse_run_ends_with_the_very_same_bits(
    warm: WarmProcess, tmp_path: Path, actor: str, critic: str
) -> None:
    flags = "--steps 200 --log.every 50 --save.every 40 --eval.every 100 --actor.risk cvar:0.1"
    command = [w if w != "cdq" else critic for w in TINY]
    for flag, value in zip(flags.split()[::2], flags.split()[1::2], strict=True):
        if flag in command:
            command[command.index(flag) + 1] = value
        else:
            command += [flag, value]
    command += ["--actor", actor, "--out"]
    folders = []
    for name, failpoint in (("whole", ""), ("killed", "ckpt.after_rename:3:kill")):
        out = str(tmp_path / name)
        if failpoint:
            assert warm.run(*command, out, failpoint=failpoint).code == -signal.SIGKILL
        ended = warm.run(*command, out)
        assert ended.code == 0, ended
        folders.append(next(iter((tmp_path / name).glob("*/*/seed0"))))
        verify(folders[-1])
    assert compare(*folders) is None
    assert '"risk": "cvar:0.1"' in (folders[0] / "config.json").read_text()
