"""Quantiles of every critic: with a graph when asked for, and of fitting arguments alone."""

from typing import Any

import numpy as np
import pytest
import torch

from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.nn.normalize import Normalizer, ObsMoments
from bridgerl.testing import learn, make_agent, make_batch

TAU = torch.tensor([[0.1, 0.5, 0.9]])
for_critics = pytest.mark.parametrize("name", list(CRITICS))


@for_critics
def test_a_graph_leads_to_observation_and_action_and_changes_no_value(name: str) -> None:
    agent, batch = learn(make_agent("sac", name), (0, 1)), make_batch(4)
    obs, action = (x.clone().requires_grad_() for x in (batch.obs, batch.action))
    plain = agent.critic.quantiles(obs, action, TAU)
    assert not plain.requires_grad
    z = agent.critic.quantiles(obs, action, TAU, graph=True)
    torch.testing.assert_close(z, plain, rtol=0, atol=0)
    for x in torch.autograd.grad(z.sum(), [obs, action]):
        assert x.abs().sum() > 0


@pytest.mark.parametrize("name", ["dbc", "iqn", "dsac", "vf"])
def test_critics_that_read_levels_have_the_density_in_their_graph(name: str) -> None:
    critic, batch = learn(make_agent("sac", name), (0, 1)).critic, make_batch(4)
    tau = TAU.clone().requires_grad_()
    z = critic.quantiles(batch.obs, batch.action, tau, graph=True)
    (slope,) = torch.autograd.grad(z.sum(), tau)
    assert slope.abs().sum() > 0


def test_an_agents_graph_goes_through_its_normaliser() -> None:
    agent, batch = learn(make_agent("sac", "dbc"), (0, 1)), make_batch(4)
    agent.normalizer = Normalizer(ObsMoments(3))
    for row in 5 * make_batch(32).obs.numpy():
        agent.begin_episode(row)
    obs = batch.obs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(agent.quantiles(obs, batch.action, TAU, graph=True).sum(), obs)
    h = 1e-2 * torch.nn.functional.one_hot(torch.tensor(0), 3)
    ahead, behind = (agent.quantiles(batch.obs + s * h, batch.action, TAU).sum() for s in (1, -1))
    torch.testing.assert_close(slope[:, 0].sum(), (ahead - behind) / 2e-2, rtol=0.05, atol=1e-3)


@pytest.mark.parametrize(
    "tau",
    [[0.1, 0.5, 0.9], (0.1, 0.5, 0.9), np.array([0.1, 0.5, 0.9]), [[0.1, 0.5, 0.9]] * 4, TAU[0]],
    ids=["list", "tuple", "array", "rows", "vector"],
)
def test_levels_are_taken_as_people_write_them(tau: Any) -> None:
    agent, batch = make_agent("sac", "dbc"), make_batch(4)
    agent.shifts = torch.tensor([-1.0, 2.0])
    for calibrated in (False, True):
        z, wanted = (
            agent.quantiles(batch.obs, batch.action, levels, calibrated=calibrated)
            for levels in (tau, TAU)
        )
        torch.testing.assert_close(z, wanted, rtol=1e-6, atol=1e-6)


def test_one_level_is_a_column() -> None:
    agent, batch = make_agent("sac", "dbc"), make_batch(4)
    z = agent.quantiles(batch.obs, batch.action, 0.5)
    assert torch.equal(z, agent.quantiles(batch.obs, batch.action, torch.tensor([[0.5]])))


BAD: dict[str, tuple[Any, str]] = {
    "zero": ((None, None, [[0.0]]), "levels must be within (0, 1), got 0"),
    "one": ((None, None, [[0.5, 1.0, 2.0]]), "within (0, 1), got 1"),
    "one in float32": ((None, None, [[1 - 1e-12]]), "within (0, 1), got 1"),
    "nan": ((None, None, [[float("nan")]]), "within (0, 1), got nan"),
    "per cent": ((None, None, 5), "within (0, 1), got 5"),
    "too many rows": ((None, None, [[0.5]] * 3), "or, with 4 observations, (4, k), got (3, 1)"),
    "too many axes": ((None, None, [[[0.5]]]), "must be of shape (k,), (1, k) or"),
    "words": ((None, None, ["half"]), "levels must be numbers, e.g. [0.1, 0.5, 0.9]: "),
    "rows of two lengths": ((None, None, [[0.5], [0.1, 0.2]]), "levels must be numbers"),
    "one observation": (((3,), None, [[0.5]]), "of shape (b, o) and actions of shape (b, a), got"),
    "other batches": ((None, (3, 2), [[0.5]]), "got (4, 3) and (3, 2)"),
}


@for_critics
@pytest.mark.parametrize("case", BAD)
def test_arguments_that_do_not_fit_are_refused_in_words(name: str, case: str) -> None:
    (obs, action, tau), fragment = BAD[case]
    critic = make_agent("sac", name).critic
    with pytest.raises(UserError) as caught:
        critic.quantiles(torch.zeros(obs or (4, 3)), torch.zeros(action or (4, 2)), tau)
    assert fragment in str(caught.value)
