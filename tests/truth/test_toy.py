"""The degradation toy: its truth is the truth, its flow a fair opponent, its figures repeat."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bridgerl.cli.main import main
from bridgerl.critics import CRITICS
from bridgerl.critics.base import Critic
from bridgerl.errors import NumericFault, UserError
from bridgerl.streams import Streams
from bridgerl.truth import toy
from bridgerl.truth.flow import Flow, FlowConfig, normal_quantiles
from bridgerl.truth.problems import draw_mixture
from bridgerl.truth.settings import ToyConfig
from bridgerl.truth.toy import critic_config, draw_toy, join_toys, run_toy, show_toy
from bridgerl.types import Batch, Bootstrap, EnvSpec

TINY = ToyConfig(
    seeds=(0,), fit_steps=3, iterations=2, steps_per_iteration=2, batch=4, flow_steps=3
)
ENTRANTS = ("flow", *CRITICS)
OBS, ACTION = torch.ones(1, 1), torch.zeros(1, 1)


def _flow(**changes: object) -> Flow:
    config = dataclasses.replace(FlowConfig(hidden=(32, 32), lr=3e-3, polyak=1.0), **changes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return config.build(EnvSpec("toy", 1, 1), Streams(0))


def _batch(reward: Tensor, discount: float) -> tuple[Batch, Bootstrap]:
    b = len(reward)
    obs, action = OBS.expand(b, 1), ACTION.expand(b, 1)
    batch = Batch(obs, action, reward, torch.full((b,), discount), obs)
    return batch, Bootstrap(action, torch.zeros(b))


def _still(flow: Flow, online: float, target: float) -> None:
    """Make each network answer one velocity everywhere."""
    for net, velocity in ((flow.online, online), (flow.target, target)):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
            list(net.parameters())[-1].fill_(velocity)


def test_the_exact_law_is_that_of_rolled_out_backups() -> None:
    config = ToyConfig(reward=7, discount=0.9)
    z = np.sort(draw_mixture(len(toy.Z_0), np.random.default_rng(0)))
    for k in range(5):
        assert np.abs(z - config.exact(k)(toy.Z_0)).mean() < 3
        z = 7 + 0.9 * z


def test_an_undiscounted_backup_only_moves_the_law() -> None:
    assert ToyConfig(reward=3, discount=1).exact(4) == (12, 1)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_a_constant_velocity_moves_every_particle_by_it(steps: int) -> None:
    flow = _flow(sampler_steps=steps, z_scale=10.0)
    _still(flow, 2.5, -1.0)
    for target, velocity in ((False, 2.5), (True, -1.0)):
        z = flow.particles(OBS, ACTION, 5, target=target)
        torch.testing.assert_close(z, 10 * (normal_quantiles(5) + velocity), rtol=1e-5, atol=1e-4)


def test_the_sampler_evaluates_the_velocity_at_the_start_of_every_step() -> None:
    """V = t makes Euler's sum (N - 1) / 2N of the unit interval."""
    flow = _flow(sampler_steps=4, z_scale=1.0)
    flow.online.forward = lambda x, t, z: t.expand_as(z)
    torch.testing.assert_close(flow.particles(OBS, ACTION, 3), normal_quantiles(3) + 3 / 8)


def test_targets_are_backups_of_the_frozen_networks_samples() -> None:
    """A still target network: y = r + discount z_scale (eps' + v), so the mean target is known."""
    flow = _flow(n_draws=4096)
    _still(flow, 0.0, 2.0)
    target = flow.targets(*_batch(torch.full((4,), 30.0), 0.5)).mean()
    assert float(target) == pytest.approx(30 + 0.5 * 100 * 2.0, abs=2)


def test_terminal_targets_are_the_reward_alone() -> None:
    flow = _flow()
    _still(flow, 0.0, 2.0)
    assert float(flow.targets(*_batch(torch.full((4,), 30.0), 0.0)).mean()) == pytest.approx(30)


def test_an_update_moves_the_online_network_alone_until_it_is_tracked() -> None:
    flow = _flow()
    before = [p.clone() for p in flow.target.parameters()]
    flow.update(*_batch(torch.full((4,), 30.0), 0.9))
    pairs = list(zip(flow.target.parameters(), before, flow.online.parameters(), strict=True))
    assert all(torch.equal(target, old) for target, old, _ in pairs)
    assert any(not torch.equal(old, new) for _, old, new in pairs)
    flow.update_target()
    assert all(torch.equal(target, new) for target, _, new in pairs)


def test_the_flow_learns_both_values_of_a_coin() -> None:
    flow, generator = _flow(sampler_steps=20), torch.Generator().manual_seed(0)
    for _ in range(400):
        coin = torch.randint(0, 2, (64,), generator=generator)
        flow.update(*_batch(200.0 * coin - 100, 0.0))
    z = flow.particles(OBS, ACTION, 1000)[0]
    assert 0.4 < float((z > 0).float().mean()) < 0.6
    assert float((z.abs() - 100).abs().mean()) < 25


def test_q_is_the_mean_return_with_a_graph_to_the_action() -> None:
    flow, action = _flow(), ACTION.clone().requires_grad_()
    q = flow.q(OBS, action)
    torch.testing.assert_close(q, flow.particles(OBS, ACTION, flow.config.n_draws).mean(1))
    (slope,) = torch.autograd.grad(q.sum(), action)
    assert float(slope.abs()) > 0


def test_every_entrant_gets_one_learning_rate_and_a_frozen_previous_self() -> None:
    for name in ENTRANTS:
        critic = critic_config(ToyConfig(lr=2e-3), name)
        assert (critic.lr, critic.polyak) == (2e-3, 1.0)
        assert getattr(critic, "drop", 0) == 0


def test_the_exact_law_itself_has_no_error_and_a_gaussian_loses_the_valleys() -> None:
    exact = ToyConfig().exact(5)
    truth = toy.distance_to(exact(toy.Z_0), exact)
    assert truth["w1"] == 0
    assert truth["std_share"] == pytest.approx(1)
    assert truth["valley"] < 0.01
    assert sum(truth["density"]) * exact.scale * np.diff(toy.EDGES)[0] == pytest.approx(1)
    gaussian = toy.shape_of(5 + 3 * normal_quantiles(10_000)[0].double().numpy())
    assert gaussian["kurtosis"] == pytest.approx(0, abs=0.02)
    assert gaussian["bimodality"] == pytest.approx(1 / 3, abs=0.01)
    assert gaussian["valley"] == pytest.approx(0.41, abs=0.01)


def test_w1_sees_a_shift_and_the_shape_does_not() -> None:
    exact = ToyConfig().exact(0)
    moved = toy.distance_to(toy.Z_0 + 9, exact)
    assert moved["w1"] == pytest.approx(9)
    assert moved["valley"] == toy.shape_of(toy.Z_0)["valley"]


@pytest.mark.parametrize("name", ENTRANTS)
def test_every_critic_can_be_a_row(name: str) -> None:
    result = run_toy(dataclasses.replace(TINY, critics=(name,)))
    (run,) = result["runs"]
    assert [i["k"] for i in run["iterations"]] == [0, 1, 2]
    json.dumps(result, allow_nan=False)
    for figures in run["iterations"]:
        assert figures["w1"] > 0


def test_a_run_fits_draws_of_the_first_law_then_backs_up_a_self_frozen_once_per_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[Batch | None] = []
    monkeypatch.setattr(Critic, "update", lambda _, batch, boot: events.append(batch))
    monkeypatch.setattr(Critic, "update_target", lambda _: events.append(None))
    run_toy(dataclasses.replace(TINY, critics=("cdq", "dbc"), seeds=(0, 1)))
    runs = [events[at : at + 10] for at in range(0, 40, 10)]
    for run in runs:
        assert [i for i, batch in enumerate(run) if batch is None] == [3, 6, 9]
        fit, backups = [b for b in run[:3] if b], [b for b in run[3:] if b]
        assert all(not b.discount.any() and b.reward.std() > 1 for b in fit)
        assert all((b.discount == TINY.discount).all() for b in backups)
        assert all((b.reward == TINY.reward).all() for b in backups)
    first, other_seed, other_critic, _ = (batch.reward for run in runs if (batch := run[0]))
    assert torch.equal(first, other_critic)
    assert not torch.equal(first, other_seed)


def test_a_point_mass_is_measured_without_a_shape() -> None:
    assert set(toy.shape_of(np.full(10, 0.1)).values()) == {None}


def test_same_seed_same_result_other_seed_other_result() -> None:
    one, same = run_toy(TINY), run_toy(TINY)
    other = run_toy(dataclasses.replace(TINY, seeds=(1,)))
    assert one == same
    for a, b in zip(one["runs"], other["runs"], strict=True):
        assert a["iterations"][0]["w1"] != b["iterations"][0]["w1"]


def test_a_run_leaves_the_global_generator_alone_and_does_not_read_it() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = run_toy(TINY)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert run_toy(TINY) == one


def test_a_critic_is_the_same_whatever_its_company() -> None:
    together = run_toy(dataclasses.replace(TINY, critics=("flow", "dbc"), seeds=(0, 1)))
    alone = run_toy(dataclasses.replace(TINY, critics=("dbc",), seeds=(1,)))
    assert alone["runs"][0] in together["runs"]


def test_progress_counts_every_update_of_every_run() -> None:
    ticks: list[None] = []
    run_toy(TINY, lambda: ticks.append(None))
    assert len(ticks) == TINY.total == 14


def test_returns_that_are_not_finite_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flow, "_walk", lambda *_, **__: torch.full((1, 1), float("nan")))
    with pytest.raises(NumericFault, match="flow: returns are not finite after iteration 0"):
        run_toy(TINY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"critics": ()}, "--critics needs at least one"),
        ({"critics": ("dbc", "dbc")}, "--critics names one twice"),
        ({"critics": ("flwo",)}, "did you mean flow"),
        ({"seeds": (-1,)}, "--seeds must be from 0"),
        ({"fit_steps": 0}, "--fit-steps must be from 1"),
        ({"iterations": 0}, "--iterations must be from 1"),
        ({"steps_per_iteration": 0}, "--steps-per-iteration must be from 1"),
        ({"batch": 0}, "--batch must be from 1"),
        ({"seeds": (2**32,)}, "--seeds must be from 0"),
        ({"lr": float("nan")}, "--lr must be in"),
        ({"reward": float("nan")}, "--reward must be from"),
        ({"discount": 1.5}, "--discount must be in"),
        ({"flow_steps": 0}, "--flow-steps must be from 1"),
        ({"flow_width": 10**6}, "--flow-width must be from 1 to 65536"),
    ],
)
def test_bad_values_are_refused_in_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        dataclasses.replace(TINY, **changes)
    assert "\n" not in str(refusal.value)


def test_the_picture_and_the_table_are_made_from_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    result = json.loads(json.dumps(run_toy(dataclasses.replace(TINY, critics=("flow", "cdq")))))
    draw_toy(result, tmp_path / "toy.png")
    assert [p.name for p in tmp_path.iterdir()] == ["toy.png"]
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG\r\n")
    show_toy(result)
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("flow", "cdq", "gaussian", "valley"))


def test_the_flow_is_no_critic_for_agents() -> None:
    assert "flow" not in CRITICS


def test_the_command_prints_what_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        "--seeds 0 --fit-steps 2 --iterations 1 --steps-per-iteration 1 --batch 4 --flow-steps 2"
    )
    assert main(["toy", *flags.split(), "--json", "--out", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "toy.json").read_text())
    assert printed["config"]["flow_steps"] == 2
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")


def test_runs_of_their_own_join_to_what_one_command_gives() -> None:
    both = run_toy(dataclasses.replace(TINY, critics=("cdq", "dbc"), seeds=(0, 1)))
    alone = [
        run_toy(dataclasses.replace(TINY, critics=(critic,), seeds=(seed,)))
        for critic in ("cdq", "dbc")
        for seed in (0, 1)
    ]
    assert json.dumps(join_toys(alone)) == json.dumps(both)
