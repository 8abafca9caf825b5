"""A step never waits for the device: no update reads a number, a shape or a choice off it."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bridgerl.actors import ACTORS
from bridgerl.agent import Agent, build_agent
from bridgerl.critics import CRITICS
from bridgerl.presets import resolve
from bridgerl.streams import Streams
from bridgerl.types import Batch, EnvSpec

SPEC = EnvSpec("toy", 3, 2)
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")
"""What makes a CUDA program wait: item(), float(), bool(), and shapes that depend on numbers."""


class NeverWait(TorchDispatchMode):
    """Refuses every operator that a device would have to be waited for."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = str(func).split(".")[1]
        masks = args[1] if name.startswith("index") and isinstance(args[1], list) else []
        by_mask = any(m is not None and m.dtype == torch.bool for m in masks)
        waits = by_mask or name.startswith(WAITS)
        assert not waits, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


def _agent(actor: str, critic: str) -> Agent:
    config = resolve(SPEC.env_id, actor, critic)
    return build_agent(config.actor, config.critic, SPEC, Streams(0))


def _batch(n: int = 8) -> Batch:
    draws = torch.Generator().manual_seed(0)
    obs, next_obs = (torch.randn(n, 3, generator=draws) for _ in range(2))
    action = torch.randn(n, 2, generator=draws).tanh()
    return Batch(obs, action, torch.randn(n, generator=draws), torch.full((n,), 0.99), next_obs)


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("actor", ACTORS)
def test_no_update_waits_for_the_device(actor: str, critic: str) -> None:
    agent, batch = _agent(actor, critic), _batch()
    with NeverWait():
        agent.update(batch)


def test_the_guard_sees_a_wait() -> None:
    with NeverWait(), pytest.raises(AssertionError, match="waits for the device"):
        float(torch.ones(()))
    with NeverWait(), pytest.raises(AssertionError, match="waits for the device"):
        _ = torch.ones(3)[torch.tensor([True, False, True])]


@pytest.mark.parametrize("critic", ["cdq", "tqc", "dbc"])
def test_compiled_losses_are_the_plain_ones(critic: str) -> None:
    plain, fused, batch = _agent("sac", critic), _agent("sac", critic), _batch()
    # Traces, differentiates and runs the graph as on CUDA, without a compiler for this machine.
    fused.compile_losses(backend="aot_eager")
    for _ in range(3):
        ours, theirs = (a.update(batch) for a in (plain, fused))
        for name, value in ours.items():
            torch.testing.assert_close(theirs[name], value, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(
        fused.critic.optimizer.flat, plain.critic.optimizer.flat, rtol=1e-5, atol=1e-6
    )
