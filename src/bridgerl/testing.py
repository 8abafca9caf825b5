"""The contract that every critic, actor and pair keeps, as pytest tests over the registries.

A package with a critic or an actor of its own registers it by an entry point and tests it by
`from bridgerl.testing import *` in a file test_contract.py; `pytest -k NAME` runs its part.
"""

import copy
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from bridgerl.actors import ACTORS
from bridgerl.agent import Agent, build_agent
from bridgerl.config import decode, encode
from bridgerl.critics import CRITICS
from bridgerl.errors import UserError
from bridgerl.ops import quantile
from bridgerl.presets import PRESETS, resolve
from bridgerl.runs.tensors import pack, unpack
from bridgerl.streams import Streams
from bridgerl.types import Batch, Bootstrap, EnvSpec

SPEC = EnvSpec("contract", 3, 2)
PAIRS = [(actor, critic) for actor in ACTORS for critic in CRITICS]

for_critics = pytest.mark.parametrize("name", list(CRITICS))
for_actors = pytest.mark.parametrize("name", list(ACTORS))
for_pairs = pytest.mark.parametrize(("actor", "critic"), PAIRS)
assert_same = partial(torch.testing.assert_close, rtol=0, atol=0)


def make_agent(actor: str, critic: str, streams: Streams | None = None, **values: Any) -> Agent:
    """A pair under the preset `lite`; keywords change the critic's settings."""
    config = resolve("contract", actor, critic, "lite")
    return build_agent(config.actor, replace(config.critic, **values), SPEC, streams or Streams(0))


def make_batch(n: int = 64, seed: int = 0, discount: float = 0.99) -> Batch:
    g = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn(n, 3, generator=g), torch.randn(n, 3, generator=g)
    action = torch.rand(n, 2, generator=g) * 2 - 1
    return Batch(obs, action, torch.randn(n, generator=g), torch.full((n,), discount), next_obs)


def make_boot(n: int = 64) -> Bootstrap:
    """Random next actions without an entropy cost."""
    g = torch.Generator().manual_seed(9)
    return Bootstrap(torch.rand(n, 2, generator=g) * 2 - 1, torch.zeros(n))


def learn(agent: Agent, seeds: Iterable[int], n: int = 8) -> Agent:
    for seed in seeds:
        agent.update(make_batch(n, seed))
    return agent


def play(agent: Agent, obs: Tensor, seed: int = 0, *, explore: bool = False) -> Tensor:
    rank, draws = agent.critic.q_rank, torch.Generator().manual_seed(seed)
    with torch.no_grad():
        return agent.actor.act(obs, rank, explore=explore, generator=draws)


def snapshot(module: torch.nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


@for_critics
def test_q_is_one_number_per_row_and_differentiable_in_the_action(name: str) -> None:
    critic, batch = make_agent("sac", name).critic, make_batch()
    action = batch.action.clone().requires_grad_()
    q = critic.q(batch.obs, action)
    assert q.shape == (64,)
    (gradient,) = torch.autograd.grad(q.sum(), action)
    assert gradient.abs().sum(-1).gt(0).all()


@for_critics
def test_ranking_gives_equal_candidates_equal_values(name: str) -> None:
    critic, batch = make_agent("sac", name).critic, make_batch()
    critic.update(batch, make_boot())
    # The same candidate in other company, at another place of the batch.
    obs, action = batch.obs.flip(0), batch.action.flip(0)
    ranks = {t: critic.q_rank(batch.obs, batch.action, target=t) for t in (False, True)}
    for target, rank in ranks.items():
        assert rank.shape == (64,)
        assert not rank.requires_grad
        assert torch.equal(rank, critic.q_rank(batch.obs, batch.action, target=target))
        torch.testing.assert_close(rank, critic.q_rank(obs, action, target=target).flip(0))
    assert not torch.equal(ranks[False], ranks[True])


@for_critics
def test_critic_loss_reaches_every_online_and_no_target_weight(name: str) -> None:
    critic = make_agent("sac", name).critic
    loss = critic.loss(make_batch(), make_boot())
    assert loss.shape == ()
    assert torch.isfinite(loss)
    loss.backward()
    for key, weight in critic.online.named_parameters():
        assert weight.grad is not None, key
        assert weight.grad.any(), key
    assert all(p.grad is None and not p.requires_grad for p in critic.target.parameters())


@for_critics
@pytest.mark.parametrize("few", [quantile.FEW_TARGETS, 0], ids=["few targets", "many"])
def test_what_an_update_differentiates_has_the_gradient_of_the_loss(
    name: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From some number of targets on they must ascend; here they count as many, whatever theirs is.
    monkeypatch.setattr(quantile, "FEW_TARGETS", few)
    streams = Streams(0)
    critic, batch = make_agent("sac", name, streams).critic, make_batch()
    batch = batch._replace(reward=30 * batch.reward)  # Beyond the parabola of a Huber loss, too.
    critic.update(batch, make_boot())
    weights, grads = list(critic.online.parameters()), []
    for form in (critic.loss, critic.objective):
        with streams.kept():
            grads.append(torch.autograd.grad(form(batch, make_boot()), weights))
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


@for_critics
def test_diagnostics_are_numbers_for_the_log_and_change_nothing(name: str) -> None:
    streams, batch = Streams(0), make_batch()
    agent = learn(make_agent("sac", name, streams), (0,), 64)
    state, draws, diagnostics = snapshot(agent), streams.state(), agent.diagnostics(batch)
    assert "critic/loss" in diagnostics
    assert all(v.shape == () and not v.requires_grad for v in diagnostics.values())
    assert_same(draws, streams.state())
    assert_same(state, snapshot(agent))
    assert torch.equal(diagnostics["critic/loss"], agent.diagnostics(batch)["critic/loss"])


@for_critics
def test_target_starts_equal_and_follows_by_polyak(name: str) -> None:
    critic = make_agent("sac", name, polyak=0.25).critic
    online, target = list(critic.online.parameters()), list(critic.target.parameters())
    assert_same(online, target)
    before = [p.clone() for p in target]
    critic.update(make_batch(), make_boot())
    assert_same(before, target)
    critic.update_target()
    follows = [0.75 * old + 0.25 * new for old, new in zip(before, online, strict=True)]
    torch.testing.assert_close(target, follows)


@for_critics
def test_terminal_transitions_ignore_what_comes_after(name: str) -> None:
    batch, boot = make_batch(discount=0.0), make_boot()
    other = batch._replace(next_obs=batch.next_obs + 5)
    other_boot = Bootstrap(-boot.action, boot.entropy_cost + 100)
    loss = make_agent("sac", name).critic.loss(batch, boot)
    assert torch.equal(loss, make_agent("sac", name).critic.loss(other, other_boot))


@for_critics
def test_entropy_cost_lowers_the_learnt_value(name: str) -> None:
    def learnt(cost: float) -> Tensor:
        critic, batch = make_agent("sac", name, lr=3e-3).critic, make_batch()
        boot = make_boot()._replace(entropy_cost=torch.full((64,), cost))
        for _ in range(100):
            critic.update(batch, boot)
        return critic.q_rank(batch.obs, batch.action).mean()

    assert learnt(5.0) < learnt(0.0) - 1.0


@for_critics
def test_risk_has_a_graph_and_fixed_values_or_is_refused(name: str) -> None:
    critic, batch = make_agent("sac", name).critic, make_batch()
    if not CRITICS[name].distributional:
        with pytest.raises(UserError, match="knows no distribution"):
            critic.risk(batch.obs, batch.action, "cvar:0.1")
        mean = critic.risk(batch.obs, batch.action, "mean", fixed=True)
        assert torch.equal(mean, critic.q(batch.obs, batch.action))
        return
    critic.update(batch, make_boot())
    action = batch.action.clone().requires_grad_()
    for fixed in (False, True):
        value = critic.risk(batch.obs, action, "cvar:0.1", fixed=fixed)
        assert value.shape == (64,)
        (gradient,) = torch.autograd.grad(value.sum(), action)
        assert gradient.abs().sum() > 0

    def fixed_values(measure: str, *, target: bool = False) -> Tensor:
        return critic.risk(batch.obs, action, measure, fixed=True, target=target)

    assert torch.equal(fixed_values("cvar:0.1"), fixed_values("cvar:0.1"))
    assert not torch.equal(fixed_values("cvar:0.1"), fixed_values("mean"))
    assert not torch.equal(fixed_values("cvar:0.1"), fixed_values("cvar:0.1", target=True))


@for_critics
def test_particles_and_quantiles_describe_one_law(name: str) -> None:
    critic, batch = make_agent("sac", name).critic, make_batch(8)
    critic.update(batch, make_boot(8))
    particles = critic.particles(batch.obs, batch.action, 400)
    # At uneven levels in no order: what lies between them must not matter.
    tau = torch.rand((1, 400), generator=torch.Generator().manual_seed(0))
    quantiles = critic.quantiles(batch.obs, batch.action, tau)
    for spread in (particles, quantiles):
        assert spread.shape == (8, 400)
        assert torch.isfinite(spread).all()
        assert not spread.requires_grad
    apart = (particles.mean(1) - quantiles.mean(1)).abs()
    assert (apart <= 0.25 * particles.std(1) + 1e-4).all()


@for_critics
@pytest.mark.parametrize(("discount", "rel"), [(0.99, 0.2), (0.0, 0.03)])
def test_a_self_loop_is_worth_the_geometric_sum(name: str, discount: float, rel: float) -> None:
    critic = make_agent("sac", name, polyak=0.5).critic
    obs, action, one = torch.ones(16, 3), torch.ones(16, 2), torch.ones(16)
    worth, learnt = 1 / (1 - discount), 0.0
    # A loop multiplies every error of a backup by 1 / (1 - discount), above all what a minimum
    # over noisy heads takes off: end with small steps, and allow for it. IQN ends at 84.
    for lr in (1e-3, 2e-4, 3e-5):
        critic.optimizer.lr = lr
        for update in range(1, 1001 if discount else 201):
            critic.update(Batch(obs, action, one, discount * one, obs), Bootstrap(action, 0 * one))
            critic.update_target()
            if update % 100 == 0:
                learnt = critic.particles(obs[:1], action[:1], 64, target=True).mean().item()
                if update >= 200 and abs(learnt - worth) < 0.02 * worth:
                    break  # Settled at this step size.
    assert learnt == pytest.approx(worth, rel=rel)


@for_critics
def test_a_critic_starts_the_same_under_every_actor(name: str) -> None:
    first, *others = (make_agent(actor, name).critic.optimizer.flat for actor in ACTORS)
    assert all(torch.equal(first, other) for other in others)


@for_actors
@pytest.mark.parametrize("explore", [True, False])
def test_actions_stay_in_range_and_repeat_with_their_generator(name: str, explore: bool) -> None:
    obs = make_batch(512).obs * 10
    # A new agent each time: noise may be held from one action to the next.
    a, b, c = (play(make_agent(name, "cdq"), obs, seed, explore=explore) for seed in (1, 1, 2))
    assert a.shape == (512, 2)
    assert a.abs().max() <= 1
    assert torch.equal(a, b)
    # A policy that draws while it plays must draw from the generator it is given.
    assert not explore or not torch.equal(a, c)


@for_actors
def test_equal_observations_are_played_equally(name: str) -> None:
    action = play(make_agent(name, "cdq"), make_batch(1).obs.expand(8, -1))
    torch.testing.assert_close(action, action[:1].expand(8, -1))


@for_actors
def test_bootstrap_is_a_legal_action_with_a_cost_per_row(name: str) -> None:
    agent = make_agent(name, "cdq")
    with torch.no_grad():
        boot = agent.actor.bootstrap(make_batch().next_obs, agent.critic.q_rank)
    assert boot.action.shape == (64, 2)
    assert boot.action.abs().max() <= 1
    assert boot.entropy_cost.shape == (64,)


@for_actors
def test_an_actor_maximises_a_known_value(name: str) -> None:
    agent, batch = make_agent(name, "cdq"), make_batch()

    def known(obs: Tensor, action: Tensor) -> Tensor:
        return -50 * (action - 0.5).square().sum(-1)

    for _ in range(600):
        agent.actor.update(batch, known)
    action = agent.actor.act(batch.obs, known, explore=False, generator=torch.Generator())
    assert (action - 0.5).abs().mean() < 0.1


@for_pairs
def test_a_new_pair_survives_its_json_and_can_be_saved_and_played(actor: str, critic: str) -> None:
    for preset in PRESETS:
        config = resolve("Hopper-v5", actor, critic, preset)
        assert decode(json.loads(json.dumps(encode(config)))) == config
    agent = make_agent(actor, critic)
    assert all(torch.isfinite(v).all() for v in agent.state_dict().values())
    action = agent.act(make_batch(1).obs[0].numpy(), explore=True, generator=torch.Generator())
    assert action.shape == (2,)


@for_pairs
def test_training_draws_from_named_streams_and_playing_from_none(actor: str, critic: str) -> None:
    streams, batch = Streams(0), make_batch(8)
    agent = make_agent(actor, critic, streams)
    everywhere = torch.get_rng_state()
    learn(agent, (0, 0))
    trained = streams.state()
    for explore in (True, False):
        agent.act(batch.obs[0].numpy(), explore=explore, generator=torch.Generator())
    agent.q(batch.obs, batch.action)
    agent.particles(batch.obs, batch.action, 4)
    agent.quantiles(batch.obs, batch.action, torch.tensor([[0.5]]))
    assert_same(trained, streams.state())
    assert torch.equal(everywhere, torch.get_rng_state())


@for_pairs
def test_actor_and_critic_draw_from_streams_of_their_own(actor: str, critic: str) -> None:
    config, one, other = resolve("contract", actor, critic, "lite"), Streams(0), Streams(0)
    config.actor.build(SPEC, one)
    config.critic.build(SPEC, other)
    assert not set(one.state()) & set(other.state())


@for_pairs
def test_bootstrap_values_come_from_the_target_network(actor: str, critic: str) -> None:
    agent, batch = make_agent(actor, critic), make_batch()
    with torch.no_grad():
        before = agent._target_q(batch.obs, batch.action)
        agent.critic.optimizer.flat.mul_(0.5)
        assert torch.equal(before, agent._target_q(batch.obs, batch.action))
        agent.critic.follower.flat.mul_(0.5)
        assert not torch.equal(before, agent._target_q(batch.obs, batch.action))


@for_pairs
def test_a_copy_learns_the_same_and_apart(actor: str, critic: str) -> None:
    agent = learn(make_agent(actor, critic), (0,))
    before = agent.actor.optimizer.flat.clone()
    other = learn(copy.deepcopy(agent), (0, 0))
    assert torch.equal(before, agent.actor.optimizer.flat)
    assert_same(snapshot(learn(agent, (0, 0))), snapshot(other))


@for_pairs
def test_an_agent_refuses_to_move_and_is_whole_after_it(actor: str, critic: str) -> None:
    agent = learn(make_agent(actor, critic), (0,))
    before, other = snapshot(agent), copy.deepcopy(agent)
    for part in (agent, agent.actor, agent.critic, agent.critic.optimizer):
        for move in (part.double, partial(part.to, "meta")):
            with pytest.raises(TypeError, match="built with"):
                move()
    assert_same(before, snapshot(agent))
    assert agent.float().to(agent.device) is agent
    assert_same(snapshot(learn(agent, (1,))), snapshot(learn(other, (1,))))


@for_pairs
def test_actor_update_moves_the_policy_and_leaves_the_critic_alone(actor: str, critic: str) -> None:
    agent, batch = make_agent(actor, critic), make_batch(16)
    policy, value = agent.actor.optimizer.flat.clone(), snapshot(agent.critic)
    metrics = agent.actor.update(batch, agent._actor_q)
    assert all(v.shape == () and not v.requires_grad for v in metrics.values())
    assert not torch.equal(policy, agent.actor.optimizer.flat)
    assert_same(snapshot(agent.critic), value)
    assert all(p.grad is None for p in agent.critic.parameters())


@for_pairs
def test_equal_seeds_learn_equal_bits_and_other_seeds_do_not(actor: str, critic: str) -> None:
    agents = [learn(make_agent(actor, critic, Streams(seed)), range(3)) for seed in (0, 0, 1)]
    first, again, other = (snapshot(agent) for agent in agents)
    assert_same(first, again)
    assert any(not torch.equal(v, other[k]) for k, v in first.items() if "weight" in k)


@for_pairs
def test_updates_are_bit_equal_with_a_save_and_load_in_between(actor: str, critic: str) -> None:
    streams, later = Streams(0), Streams(123)
    agent = learn(make_agent(actor, critic, streams), range(50), 4)
    other = make_agent(actor, critic, later)
    other.load_state_dict(unpack(pack(agent.state_dict()), "agent"))
    later.load(unpack(pack(streams.state()), "streams"))
    for each in (agent, other):
        assert learn(each, range(50, 100), 4).updates == 100
    assert_same(snapshot(agent), snapshot(other))


@for_pairs
def test_a_one_step_bandit_is_solved(actor: str, critic: str) -> None:
    """Reward 40 (1 - |a - 0.5|^2), then the end: the policy finds 0.5 through the critic."""
    agent = make_agent(actor, critic, lr=3e-3)
    agent.actor.optimizer.lr = 5e-4
    for step in range(500):
        batch = make_batch(64, seed=step, discount=0.0)
        batch = batch._replace(reward=40 * (1 - (batch.action - 0.5).square().sum(-1)))
        if step < 300:  # The slopes of a critic that knows nothing push a tanh into its corner.
            agent.critic.update(batch, make_boot())
        else:
            agent.update(batch)
    # A uniform action is 0.625 away on average.
    assert (play(agent, make_batch(64, seed=999).obs) - 0.5).abs().mean() < 0.2
