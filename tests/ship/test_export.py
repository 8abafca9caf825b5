"""A policy as one file: equal to torch, without this library, and never over another file."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from bridgerl import EnvSpec, Streams, build_agent, resolve
from bridgerl.actors import ACTORS
from bridgerl.agent import Agent
from bridgerl.cli.main import main
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.nn.normalize import Normalizer, ObsMoments, ReturnScale
from bridgerl.ship.export import CLOSE, READERS, WRITERS, Format, compare, read_levels
from bridgerl.ship.policy import SEED, Shipped
from conftest import TINY, finished

ROOT = Path(__file__).parents[2]

OBSERVATION = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
ACTION = gym.spaces.Box(np.array([-2, 0], np.float32), np.array([0.5, 7], np.float32))
LEVELS = torch.tensor([0.05, 0.5, 0.95])

# Every actor and every critic once; the steps of their walks are cut short, not left out.
PAIRS = ["sac+dbc", "td3+iqn", "qvpo+tqc", "sac+vf", "td3+vdrl", "sac+dsac", "qvpo+cdq"]
SHORT = {"diffusion_steps": 3, "flow_steps": 2, "bridge_steps": 2, "n_play": 8, "hidden": (16, 16)}


def _short(config: Any, **more: Any) -> Any:
    return replace(config, **{k: v for k, v in SHORT.items() if hasattr(config, k)}, **more)


def _policy(pair: str, trunk: str = "plain") -> Shipped:
    """A policy that has learnt nothing but the size of observations and returns."""
    actor, critic = pair.split("+")
    config = resolve("Hopper-v5", actor=actor, critic=critic)
    moments, scale = ObsMoments(3), ReturnScale(0.99, 10.0)
    for row in np.random.default_rng(0).normal([0, 5, -3], [1, 0.1, 9], (50, 3)):
        moments.add(row)
        scale.add(2.0, 0)
    ours, theirs = (_short(part, trunk=trunk) for part in (config.actor, config.critic))
    spec, normalizer = EnvSpec("x", 3, 2), Normalizer(moments, scale)
    agent = build_agent(ours, theirs, spec, Streams(0), normalizer)
    known = config.critic.distributional
    return Shipped(agent, OBSERVATION, ACTION, LEVELS if known else None)


def test_every_actor_and_every_critic_is_exported_here() -> None:
    actors, critics = zip(*(pair.split("+") for pair in PAIRS), strict=True)
    assert (set(actors), set(critics)) == (set(ACTORS), set(CRITICS))


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_file_equals_torch_on_a_thousand_observations(pair: str, form: Format) -> None:
    policy = _policy(pair)
    played = READERS[form](WRITERS[form](policy, {}))
    observations = policy.observations(1000)
    assert compare(policy, played, observations).max() < CLOSE
    assert compare(policy, played, observations[:1]).max() < CLOSE


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_a_file_is_held_to_a_share_of_the_output_however_small_that_is(unit: float) -> None:
    outputs = torch.tensor([[0.0, 0.5], [1.0, -4.0]]) * unit

    def policy(_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (outputs,)

    def played(_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (outputs + torch.tensor([[0.0, 0.04], [0.0, 0.0]]) * unit,)

    found = compare(policy, played, torch.zeros(2, 3))  # pyright: ignore[reportArgumentType]
    assert found == pytest.approx([0.01, 0.0], rel=1e-3)
    assert (compare(policy, policy, torch.zeros(2, 3)) == 0).all()  # pyright: ignore[reportArgumentType]


def test_outputs_of_zeros_can_be_compared() -> None:
    def policy(_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(2, 1),)

    assert (compare(policy, policy, torch.zeros(2, 3)) == 0).all()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("trunk", ["layernorm", "simba", "batchnorm"])
def test_every_kind_of_network_can_be_written_down(trunk: str) -> None:
    policy = _policy("sac+dbc", trunk)
    played = READERS["onnx"](WRITERS["onnx"](policy, {}))
    assert compare(policy, played, policy.observations(100)).max() < CLOSE


def test_a_diffusion_policy_plays_as_its_agent_does_from_the_documented_seed() -> None:
    policy = _policy("qvpo+tqc")
    obs = policy.observations(5)
    action, quantiles = READERS["onnx"](WRITERS["onnx"](policy, {}))(obs)
    generator = torch.Generator().manual_seed(SEED)
    wanted = policy.agent.actions(obs.float(), explore=False, generator=generator)
    low, high = torch.tensor(ACTION.low), torch.tensor(ACTION.high)
    torch.testing.assert_close(action, low + (high - low) * (wanted + 1) / 2)
    torch.testing.assert_close(
        quantiles, policy.agent.quantiles(obs.float(), wanted, LEVELS[None]), rtol=1e-5, atol=1e-5
    )


def test_actions_of_one_meet_the_bounds_exactly() -> None:
    policy = _policy("td3+iqn")
    for sign, bound in ((1, ACTION.high), (-1, ACTION.low)):
        last = [p for p in policy.agent.actor.net.parameters() if p.dim() == 1][-1]
        last.fill_(sign * 100.0)
        file = WRITERS["torchscript"](policy, {})
        action, _ = READERS["torchscript"](file)(policy.observations(4))
        assert np.array_equal(action.numpy(), np.broadcast_to(bound, (4, 2)))


# What a reader of the page would run, where this library cannot be imported.
BLOCK = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto/export.md").read_text(), re.S)
BARE = "import sys\nsys.modules['bridgerl'] = sys.modules['torch'] = None\n"
GAINS = [0.5, 6.0, 0.7, 1.2]


def _balancing() -> tuple[Agent, gym.Env[Any, Any]]:
    """A policy that balances the pole by a rule known beforehand: the actor's net is linear."""
    config = resolve("InvertedPendulum-v5", actor="td3", critic="dbc")
    moments = ObsMoments(4)
    for sign in (-0.25, 0.25):  # Observations are seen four times as large.
        moments.add(sign * np.ones(4))
    spec = EnvSpec("InvertedPendulum-v5", 4, 1)
    actor = replace(config.actor, hidden=(2,))
    agent = build_agent(actor, config.critic, spec, Streams(0), Normalizer(moments))
    first, bias, last, end = agent.actor.net.parameters()
    with torch.no_grad():
        rule = torch.tensor(GAINS) / 4 / 3  # Of bounds of -3 and 3.
        for weight, value in ((first, torch.stack([rule, -rule])), (last, [[1.0, -1.0]])):
            weight.copy_(torch.as_tensor(value))
        bias.zero_()
        end.zero_()
    return agent, gym.make("InvertedPendulum-v5")


def test_a_file_balances_the_pole_without_this_library(tmp_path: Path) -> None:
    agent, env = _balancing()
    policy = Shipped(agent, env.observation_space, env.action_space, LEVELS)  # pyright: ignore[reportArgumentType]
    (tmp_path / "policy.onnx").write_bytes(WRITERS["onnx"](policy, {}))
    ended = finished([sys.executable, "-c", BARE + BLOCK[0]], cwd=tmp_path, env={})
    assert (ended.stdout, ended.stderr) == ("return 1000\n", "")


def _trained(critic: str, out: Path) -> Path:
    line = [critic if word == "cdq" else word for word in TINY]
    assert main([*line, "--quiet", "--out", str(out)]) == 0
    (found,) = out.glob("*/*/seed0")
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of a critic that knows a distribution."""
    return _trained("tqc", tmp_path_factory.mktemp("runs"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_verb_writes_a_file_that_says_what_it_is(
    run: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx

    assert main(["export", str(run), "--quantiles", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    model = onnx.load(here / "policy.onnx")
    facts = {prop.key: json.loads(prop.value) for prop in model.metadata_props}
    assert facts == {k: said[k] for k in facts}
    assert facts["levels"] == [0.125, 0.375, 0.625, 0.875]
    assert said["difference"] < CLOSE


def test_a_file_that_is_there_stays_unless_it_is_forced(
    run: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "policy.pt").write_text("precious")
    line = ["export", str(run), "--format", "torchscript"]
    assert main(line) == 2
    assert "policy.pt is there already; choose another name or add --force" in _error(capsys)
    assert (here / "policy.pt").read_text() == "precious"
    assert main([*line, "--force"]) == 0
    assert [p.name for p in here.iterdir()] == ["policy.pt"]
    action, *rest = torch.jit.load(here / "policy.pt")(torch.zeros(7, 3, dtype=torch.float64))
    assert (action.shape, rest) == ((7, 2), [])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--quantiles 0.5 1.0", "--quantiles must be levels within (0, 1), or one count up to"),
        ("--quantiles 2.5", "--quantiles must be levels within (0, 1), or one count up to"),
        ("--quantiles 100000", "--quantiles must be levels within (0, 1), or one count up to"),
        ("--out policy.pt", "--out policy.pt must end in .onnx"),
        ("--out no/policy.onnx", "there is no folder no"),
        ("--format onxx", "invalid choice 'onxx'"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(
    flags: str, message: str, run: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), *flags.split()]) == 2
    assert message in _error(capsys)
    assert list(here.iterdir()) == []


def test_quantiles_of_a_critic_without_a_distribution_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _trained("cdq", here / "runs")
    assert main(["export", str(run), "--quantiles", "0.5"]) == 2
    assert "the critic CDQ knows no distribution; leave --quantiles out" in _error(capsys)


def test_a_missing_package_is_said_with_what_to_type(
    run: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["export", str(run)]) == 2
    assert "ONNX files need onnx: pip install -c constraints.txt -e '.[export]'" in _error(capsys)


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    err = capsys.readouterr().err
    assert err.startswith("bridgerl: error: ")
    assert err.count("\n") == 1
    return err


def test_no_quantiles_at_all_are_refused() -> None:
    critic = resolve("Pendulum-v1", critic="dbc").critic
    with pytest.raises(UserError, match="must be levels within"):
        read_levels([0.0], critic)
