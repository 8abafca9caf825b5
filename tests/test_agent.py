"""What an agent tells about values from outside, and what it refuses to be asked."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bridgerl.actors import ACTORS
from bridgerl.agent import Agent, build_agent, build_critic, build_normalizer
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.nn.normalize import Normalizer
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.testing import make_agent, make_batch
from bridgerl.types import EnvSpec

TAU = torch.tensor([[0.1, 0.9]])
DISTRIBUTIONAL = [name for name in CRITICS if name != "cdq"]


def agent_of(critic: str) -> Agent:
    config = resolve("Hopper-v5", "sac", critic, "lite")
    return build_agent(config.actor, config.critic, EnvSpec("Hopper-v5", 11, 3), Streams(0))


@pytest.mark.parametrize("critic", CRITICS)
def test_swapped_and_misshapen_inputs_are_refused_by_every_public_value(critic: str) -> None:
    agent = agent_of(critic)
    obs, action = torch.zeros(4, 11), torch.zeros(4, 3)
    asked = [agent.q] if critic == "cdq" else [agent.q, lambda s, a: agent.quantiles(s, a, TAU)]
    asked += [] if critic == "cdq" else [lambda s, a: agent.particles(s, a, 5)]
    wrong: list[tuple[Tensor, Tensor]] = [(action, obs), (obs[0], action[0]), (obs, action[:1])]
    wrong += [(obs[:, :10], torch.zeros(4, 4)), (obs[None], action[None])]
    for value in asked:
        assert value(obs, action).shape[0] == 4
        for s, a in wrong:
            with pytest.raises(UserError, match=r"must be of shape \(b, "):
                value(s, a)


def test_observations_as_environments_give_them_are_played_and_others_refused() -> None:
    agent, obs = agent_of("cdq"), np.linspace(-1, 1, 11)
    played = agent.actions(obs[None])
    assert played.shape == (1, 3)
    assert torch.equal(played, agent.actions(torch.tensor(obs[None], dtype=torch.float64)))
    assert agent.act(obs) == pytest.approx(played[0].numpy())
    for wrong in (obs, obs[None, :10], obs[None, None]):
        with pytest.raises(UserError, match=r"must be of shape \(b, 11\)"):
            agent.actions(wrong)
    with pytest.raises(UserError, match=r"must be of shape \(b, 11\)"):
        agent.act(obs[:10])


@pytest.mark.parametrize("critic", DISTRIBUTIONAL)
@pytest.mark.parametrize("tau", [-1.0, 2.0, float("nan")])
def test_levels_that_are_none_are_refused(critic: str, tau: float) -> None:
    agent = agent_of(critic)
    with pytest.raises(UserError, match="quantile levels must be within"):
        agent.quantiles(torch.zeros(1, 11), torch.zeros(1, 3), torch.tensor([[tau]]))


@pytest.mark.parametrize("critic", CRITICS)
def test_numbers_of_an_environment_are_taken_as_they_are(critic: str) -> None:
    agent = agent_of(critic)
    obs, action = torch.zeros(2, 11), torch.zeros(2, 3)
    double = obs.double(), action.double()
    assert torch.equal(agent.q(*double), agent.q(obs, action))
    assert torch.equal(agent.particles(*double, 5), agent.particles(obs, action, 5))
    assert np.array_equal(agent.act(obs[0].numpy()), agent.act(np.zeros(11)))


@pytest.mark.parametrize("actor", ACTORS)
def test_without_a_generator_play_repeats_itself_and_exploring_is_refused(actor: str) -> None:
    agent = make_agent(actor, "cdq")
    obs = make_batch(5).obs
    fixed = torch.Generator().manual_seed(0)
    assert torch.equal(agent.actions(obs), agent.actions(obs, generator=fixed))
    assert torch.equal(agent.actions(obs), agent.actions(obs))
    for explore in (agent.actions, lambda x, **how: agent.act(x[0].numpy(), **how)):
        with pytest.raises(UserError, match="pass generator="):
            explore(obs, explore=True)


@pytest.mark.parametrize("critic", DISTRIBUTIONAL)
def test_the_mean_return_is_that_of_the_distribution_that_is_told(critic: str) -> None:
    agent, g = agent_of(critic), torch.Generator().manual_seed(0)
    obs, action = torch.randn(16, 11, generator=g), torch.randn(16, 3, generator=g).tanh()
    told = agent.particles(obs, action, 500)
    off = (agent.q(obs, action) - told.mean(1)).abs()
    # VDRL draws: 64 of its returns have an error of their own.
    most = 0.5 if critic == "vdrl" else 0.05
    assert float((off / told.std(1).clamp(min=1e-6)).max()) < most


def test_names_are_enough_for_the_agent_of_a_preset() -> None:
    spec = EnvSpec("Hopper-v5", 11, 3)
    config = resolve("Hopper-v5", "td3", "cdq")
    named = build_agent("td3", "cdq", spec, Streams(0))
    moments = build_normalizer(config.train, spec)
    typed = build_agent(config.actor, config.critic, spec, Streams(0), moments)
    mixed = (
        build_agent("td3", config.critic, spec, Streams(0)),
        build_agent(config.actor, "cdq", spec, Streams(0)),
    )
    obs = np.linspace(-3, 30, 11)
    for agent in (named, typed, *mixed):
        agent.begin_episode(obs)
        agent.observe(2 * obs, 1.0)
    for agent in (named, *mixed):
        assert torch.equal(agent.critic.optimizer.flat, typed.critic.optimizer.flat)
        assert agent.critic._actor_q == "first"  # As a preset says of this pair.
        assert np.array_equal(agent.act(obs), typed.act(obs))
    plain = build_agent("td3", "cdq", spec, Streams(0), Normalizer())
    assert plain.normalizer.obs is None
    printed = build_agent("td3", "cdq", spec, Streams(0), preset="paper")
    assert printed.normalizer.obs is None
    assert len(printed.critic.optimizer.flat) > len(named.critic.optimizer.flat)
    with pytest.raises(UserError, match="did you mean dbc"):
        build_agent("td3", "dbcc", spec, Streams(0))


def test_all_but_what_optimisers_keep_is_played_whatever_modules_are_called() -> None:
    agent = make_agent("sac", "cdq")
    agent.critic.held = nn.Linear(2, 2)
    agent.critic.held.optimizer = nn.Linear(2, 2)
    state = agent.state_dict()
    left_out = state.keys() - agent.played(state).keys()
    owners = ("actor.optimizer.", "actor.temperature.optimizer.", "critic.optimizer.")
    assert left_out == {name for name in state if name.startswith(owners)}
    assert len(left_out) == 15


def test_a_critic_by_its_name_is_that_of_a_preset() -> None:
    spec = EnvSpec("Hopper-v5", 11, 3)
    for preset in ("lite", "paper"):
        wanted = build_critic(resolve("Hopper-v5", preset=preset).critic, spec, Streams(0))
        found = build_critic("dbc", spec, Streams(0), preset=preset)
        assert torch.equal(found.optimizer.flat, wanted.optimizer.flat)


@pytest.mark.parametrize("n", [0, -3])
def test_no_particles_are_refused(n: int) -> None:
    with pytest.raises(UserError, match="particles must be at least 1"):
        agent_of("dbc").particles(torch.zeros(1, 11), torch.zeros(1, 3), n)


def test_a_seed_in_place_of_streams_is_refused() -> None:
    seed: Any = 0
    for build in (partial(build_critic, "dbc"), partial(build_agent, "sac", "dbc")):
        with pytest.raises(
            UserError, match=r"streams must be made of a seed, e.g. Streams\(0\), g"
        ):
            build(EnvSpec("Hopper-v5", 11, 3), seed)
