"""What a critic of one's own has from the base class alone."""

import re
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from bridgerl.agent import build_agent
from bridgerl.critics.base import Critic, CriticConfig, QuantileCritic
from bridgerl.critics.cdq import CDQConfig
from bridgerl.errors import UserError
from bridgerl.nn.heads import Heads
from bridgerl.ops.quantile import QuantileCost, quantile_huber
from bridgerl.ops.risk import risk_of_gaussian
from bridgerl.ops.targets import bellman
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.testing import SPEC, learn, make_agent, make_batch, make_boot
from bridgerl.types import Batch, Bootstrap, EnvSpec


@dataclass(frozen=True)
class ShapeConfig(CriticConfig):
    """A mean and normal quantiles around it."""

    distributional = True

    def build(self, spec: EnvSpec, streams: Streams) -> "Shape":
        return Shape(self, spec)


class Shape(QuantileCritic):
    """Z_tau = mean + tau's normal quantile, the mean learnt: little, but all that must be."""

    kappa = 1.0

    def __init__(self, config: ShapeConfig, spec: EnvSpec) -> None:
        super().__init__(config, Heads(1, (spec.obs_dim + spec.action_dim, 16, 1)))

    def loss(self, batch: Batch, boot: Bootstrap, cost: QuantileCost = quantile_huber) -> Tensor:
        with torch.no_grad():
            y = bellman(batch, boot, self.q(batch.next_obs, boot.action, target=True)[:, None])
        z = self.q(batch.obs, batch.action)[:, None, None]
        return cost(z, y, torch.full((1, 1), 0.5), self.kappa).mean()

    def q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        return self._net(target=target)(torch.cat([obs, action], -1))[:, 0, 0]

    def _quantiles(self, obs: Tensor, action: Tensor, tau: Tensor, *, target: bool) -> Tensor:
        return self.q(obs, action, target=target)[:, None] + torch.special.ndtri(tau)


@pytest.mark.parametrize("measure", ["mean", "cvar:0.2", "wang:0.75", "mean-std:0.5"])
def test_a_critic_with_quantiles_has_every_measure_of_risk(measure: str) -> None:
    critic, batch = ShapeConfig().build(SPEC, Streams(0)), make_batch(8)
    action = batch.action.clone().requires_grad_()
    risk = critic.risk(batch.obs, action, measure)
    q = critic.q(batch.obs, action)
    wanted = risk_of_gaussian(measure, q, torch.ones_like(q))
    torch.testing.assert_close(risk, wanted, rtol=0, atol=0.05)
    slopes = (torch.autograd.grad(value.sum(), action)[0] for value in (risk, q))
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_a_policy_can_act_on_the_risk_of_quantiles() -> None:
    actor = replace(resolve("contract").actor, risk="cvar:0.2")
    agent = learn(build_agent(actor, ShapeConfig(), SPEC, Streams(0)), range(3))
    batch = make_batch(8)
    worse = agent.q(batch.obs, batch.action) - agent.risk(batch.obs, batch.action, "cvar:0.2")
    torch.testing.assert_close(worse, torch.full((8,), 1.4), rtol=0, atol=0.05)


class Silent(Shape):
    """Says that it knows a distribution, and has none."""

    _quantiles = Critic._quantiles


@pytest.mark.parametrize("kind", ["point", "silent"])
def test_without_quantiles_the_mean_is_the_only_measure(kind: str) -> None:
    points = CDQConfig(hidden=(8,)).build(SPEC, Streams(0))
    critic, batch = Silent(ShapeConfig(), SPEC) if kind == "silent" else points, make_batch(8)
    mean = critic.risk(batch.obs, batch.action, "mean", fixed=True)
    assert torch.equal(mean, critic.q(batch.obs, batch.action))
    with pytest.raises(UserError, match=r"knows no distribution, so it has no cvar:0.1; take dbc"):
        critic.risk(batch.obs, batch.action, "cvar:0.1")


def test_rows_of_numbers_that_would_broadcast_are_refused() -> None:
    """Replay buffers elsewhere give rewards as (b, 1)."""
    critic = make_agent("sac", "cdq").critic
    batch, boot = make_batch(8), make_boot(8)
    critic.update(batch, boot)
    wrong = {
        "reward must be of shape (8,), got (8, 1)": (
            batch._replace(reward=batch.reward[:, None]),
            boot,
        ),
        "discount must be": (batch._replace(discount=batch.discount[:, None]), boot),
        "entropy_cost must be": (batch, boot._replace(entropy_cost=boot.entropy_cost[:, None])),
        "next_obs must be": (batch._replace(next_obs=batch.next_obs[:7]), boot),
        "bootstrap must be": (batch, boot._replace(action=boot.action[:1])),
    }
    for says, (rows, ahead) in wrong.items():
        with pytest.raises(UserError, match=re.escape(says)):
            critic.update(rows, ahead)
