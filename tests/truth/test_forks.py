"""Forked episodes, and what `calibrate` makes of them."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from bridgerl import load_agent
from bridgerl.agent import Agent, build_agent
from bridgerl.cli.main import main
from bridgerl.config import RunConfig
from bridgerl.envs.recipe import Recipe
from bridgerl.envs.task import Task
from bridgerl.errors import UserError
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.truth.forks import Plan, fork, horizon, policy_of, reach, returns_from
from bridgerl.truth.settings import FORK_TAIL
from bridgerl.truth.values import soft_returns
from bridgerl.types import EnvSpec

Capture = pytest.CaptureFixture[str]
RUN = (
    "train --env toy_envs:Point-v0 --critic dbc --steps 200 --train.warmup 100 "
    "--train.batch-size 32 --train.buffer-size 1000 --actor.hidden 16 --critic.hidden 16 "
    "--eval.every 200 --eval.episodes 1 --save.every 200 --log.no-tensorboard --quiet "
    "--train.discount 0.8"
).split()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("forks")
    assert main([*RUN, "--out", str(out)]) == 0
    (folder,) = out.glob("*/*/seed0")
    return folder


def config_of(env: str, actor: str = "td3") -> RunConfig:
    small = {"hidden": (8,)}
    return resolve(env, actor, "cdq").changed(actor=small, critic=small)


def agent_of(config: RunConfig) -> Agent:
    return build_agent(config.actor, config.critic, EnvSpec(config.env, 3, 2), Streams(0))


def test_returns_of_a_coin_are_uniform_whatever_the_state() -> None:
    agent = agent_of(config_of("toy_envs:Coin-v0"))
    forks = fork(policy_of(agent), Plan("toy_envs:Coin-v0", 3, 400, 0.5, seed=0))
    assert forks.obs.shape == (3, 3)
    assert forks.action.shape == (3, 2)
    for returns in forks.returns:
        assert stats.kstest(returns / 4 + 0.5, "uniform").pvalue > 0.001
    assert len(np.unique(forks.returns[0].round(6))) > 50


def test_a_certain_return_is_known_to_a_ten_thousandth() -> None:
    # Returns that vary little beside their size: a hundredth left out would be many deviations.
    config, plan = config_of("toy_envs:Point-v0"), Plan("toy_envs:Point-v0", 1, 2, 0.95, seed=0)
    short, long = (
        fork(policy_of(agent_of(config)), plan._replace(tail=tail)).returns
        for tail in (FORK_TAIL, 1e-9)
    )
    np.testing.assert_allclose(short, long, rtol=1e-3)


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_fork_sums_up_what_an_episode_sums_up(n_step: int) -> None:
    env = "toy_envs:Point-v0"
    config, plan = config_of(env, "sac"), Plan(env, 1, 1, 0.8, 5, cost_every=n_step)
    steps, task = horizon(0.8, FORK_TAIL), Task(env, 5, "fork", limited=False)
    start = reach(policy_of(agent_of(config)), task, (0,), 4, np.random.default_rng(0))
    (total,) = returns_from(policy_of(agent_of(config)), [task], start, plan)
    # The same by hand: an equal agent draws equal noise.
    agent, rewards, costs = agent_of(config), [], [0.0]
    task.replay(start.key, start.actions)
    task.reseed(*start.key, 0)
    action = start.action
    for t in range(steps):
        out = task.step(action)
        rewards.append(out.reward)
        if out.terminated or t == steps - 1:
            break
        boot = agent.bootstrap(torch.from_numpy(out.obs)[None])
        action = boot.action[0].numpy()
        costs.append(boot.entropy_cost.item())
    g = soft_returns(np.array(rewards), np.array(costs), 0.8, n_step)
    assert total == pytest.approx(g[0])
    task.close()


def test_a_state_is_one_that_the_policy_reached() -> None:
    env = "toy_envs:Point-v0"
    policy, task = policy_of(agent_of(config_of(env))), Task(env, 0, "fork")
    start = reach(policy, task, (7,), 6, np.random.default_rng(0))
    assert len(start.actions) == 6
    task.replay((7,), start.actions)
    np.testing.assert_array_equal(task.obs, start.obs)
    task.close()


def test_returns_go_on_past_the_limit_that_dm_control_keeps_inside() -> None:
    pytest.importorskip("shimmy")
    env = "dm_control/point_mass-easy-v0"
    recipe = Recipe(env, kwargs={"environment_kwargs": {"control_timestep": 1.0}})
    with closing(Task(recipe, 0)) as task:
        assert task.time_limit == 20
        spec = task.spec
    config = config_of(env)
    agent = build_agent(config.actor, config.critic, spec, Streams(0))
    # At this discount a return takes longer than an episode.
    assert horizon(0.9) > 20
    returns = fork(policy_of(agent), Plan(recipe, 2, 2, 0.9, seed=0)).returns
    assert returns.shape == (2, 2)
    # Task and policy know no chance: what is played again gets the same.
    np.testing.assert_array_equal(returns[:, 0], returns[:, 1])


def test_an_environment_that_cuts_itself_off_is_refused_with_a_way_out() -> None:
    env = "toy_envs:Cutting-v0"
    policy = policy_of(agent_of(config_of(env)))
    with pytest.raises(UserError, match="register it with max_episode_steps"):
        fork(policy, Plan(env, 2, 2, 0.9, seed=0))


def test_calibrate_tells_in_words_and_leaves_a_picture(run: Path, capsys: Capture) -> None:
    assert main(["calibrate", str(run), "--states", "3", "--returns", "8"]) == 0
    out = capsys.readouterr().out
    assert "values are" in out
    assert "80 % interval covers" in out
    assert (run / "calibration.png").read_bytes()[:4] == b"\x89PNG"
    agent, _ = load_agent(run)
    with pytest.raises(UserError, match="calibrate RUN --recalibrate"):
        agent.quantiles(
            torch.zeros(1, 3), torch.zeros(1, 2), torch.tensor([[0.5]]), calibrated=True
        )


def test_a_recalibrated_run_offers_calibrated_quantiles(run: Path, capsys: Capture) -> None:
    words = ["--states", "4", "--returns", "8", "--recalibrate", "--no-plot", "--json"]
    assert main(["calibrate", str(run), *words]) == 0
    shifts = np.array(json.loads(capsys.readouterr().out)["shifts"])
    agent, _ = load_agent(run)
    tau = torch.tensor([[0.9, 0.1, 0.5]])
    obs, action = torch.zeros(2, 3), torch.zeros(2, 2)
    plain = agent.quantiles(obs, action, tau)
    z = agent.quantiles(obs, action, tau, calibrated=True)
    levels = (np.arange(len(shifts)) + 0.5) / len(shifts)
    wanted = plain.numpy() + np.interp(tau.numpy(), levels, shifts)
    np.testing.assert_allclose(np.sort(z.numpy()), np.sort(wanted), rtol=1e-4, atol=1e-4)
    assert (z[:, 1] <= z[:, 2]).all()
    assert (z[:, 2] <= z[:, 0]).all()


def test_measuring_again_keeps_a_correction(run: Path, capsys: Capture) -> None:
    words = ["--states", "4", "--returns", "4", "--no-plot"]
    assert main(["calibrate", str(run), *words, "--recalibrate"]) == 0
    assert main(["calibrate", str(run), *words]) == 0
    agent, _ = load_agent(run)
    assert agent.shifts is not None
    assert not (run / "calibration.png").exists()


def test_a_damaged_calibration_is_told_and_replaced(run: Path, capsys: Capture) -> None:
    (run / "calibration.json").write_text("{garbage")
    assert main(["verify", str(run)]) == 5
    with pytest.warns(UserWarning, match="run bridgerl calibrate again"):
        agent, _ = load_agent(run)
    assert agent.shifts is None
    with pytest.warns(UserWarning, match="calibrate again"):
        assert main(["calibrate", str(run), "--states", "1", "--returns", "2", "--no-plot"]) == 0
    assert main(["verify", str(run)]) == 0
    assert "calibration.json" in capsys.readouterr().out


@pytest.mark.parametrize("tau", [[[-1.0, 0.5]], [[0.5, 2.0]], [[float("nan")]], [[0.5]] * 3])
def test_levels_that_are_none_are_refused(run: Path, tau: list) -> None:
    agent, _ = load_agent(run)
    with pytest.raises(UserError, match="quantile levels must be "):
        agent.quantiles(torch.zeros(2, 3), torch.zeros(2, 2), torch.tensor(tau))


def test_calibrate_gives_the_same_figures_again(run: Path, capsys: Capture) -> None:
    words = ["--states", "2", "--returns", "4", "--no-plot", "--json"]
    found = []
    for _ in range(2):
        assert main(["calibrate", str(run), *words]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--states", "0"], "--states must be from 1 to 10000, got 0"),
        (
            ["--states", "2", "--recalibrate"],
            "--states must be from 4 to 10000, half of them to fit, got 2",
        ),
        (["--returns", "1"], "--returns must be from 2 to 10000, got 1"),
    ],
)
def test_calibrate_refuses_in_one_line(
    run: Path, words: list[str], says: str, capsys: Capture
) -> None:
    assert main(["calibrate", str(run), *words]) == 2
    assert says in capsys.readouterr().err
