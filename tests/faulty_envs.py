"""Environments that are odd or broken in one way each: `faulty_envs:NanObservation-v0`."""

import contextlib
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

FAULT_STEP = 5
Box = gym.spaces.Box


class Healthy(gym.Env[Any, Any]):
    """Observes the action it received; the others change one thing about it."""

    observation_space: gym.Space[Any] = Box(-np.inf, np.inf, (2,), np.float64)
    action_space: gym.Space[Any] = Box(
        np.array([-3.0, 0.1]), np.array([-1.0, 0.7]), dtype=np.float64
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.observe(self.np_random.normal(size=2)), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        self.received = action
        return self.observe(action), self.pay(), False, False, {}

    def observe(self, value: Any) -> Any:
        return value

    def pay(self) -> Any:
        return 1.0

    @property
    def at_fault(self) -> bool:
        return self.count == FAULT_STEP


class InPlace(Healthy):
    """Returns its own float32 state and goes on counting in it."""

    def observe(self, value: Any) -> Any:
        if self.count == 0:
            self.state = np.zeros(2, np.float32)
        else:
            self.state += 1
        return self.state


class NanAtReset(Healthy):
    def observe(self, value: Any) -> Any:
        return np.array([0.0, np.nan]) if self.count == 0 else value


class Returns(Healthy):
    """Returns one odd value at the faulty step; `ODD` has its children."""

    place: int
    odd: Any

    def step(self, action: Any) -> Any:
        values = list(super().step(action))
        if self.at_fault:
            values[self.place] = self.odd
        return tuple(values)


ODD: dict[str, tuple[int, Any]] = {
    "NanObservation": (0, np.array([0.0, np.nan])),
    "InfObservation": (0, np.array([-np.inf, 0.0])),
    "OverflowingObservation": (0, np.array([0.0, 1e300])),
    "WrongSize": (0, np.zeros(3)),
    "TextObservation": (0, "left"),
    "ComplexObservation": (0, np.array([1.0 + 2.0j, 0.0])),
    "MaskedObservation": (0, np.ma.array([1.0, 2.0], mask=[False, True])),
    "HugeIntegerObservation": (0, [10**5000, 0]),
    "DigitsObservation": (0, ["1", "2"]),  # Which NumPy would take for numbers.
    "RaggedObservation": (0, [[1.0], [2.0, 3.0]]),
    "ColumnObservation": (0, np.zeros((2, 1))),
    "NoObservation": (0, None),
    "NanReward": (1, np.nan),
    "InfReward": (1, np.inf),
    "OverflowingReward": (1, 1e300),
    "TextReward": (1, "much"),
    "HugeIntegerReward": (1, 10**5000),
    "ComplexReward": (1, 1.0 + 2.0j),
    "ArrayReward": (1, np.ones(3)),
    "MaskedReward": (1, np.ma.masked),
    "DigitsReward": (1, "1.5"),
    "ArrayTerminated": (2, np.array([True, False])),
    "TextTerminated": (2, "no"),
    "NoneTerminated": (2, None),
    "NumpyTerminated": (2, np.bool_(True)),
    "ArrayTruncated": (3, np.array([False])),
}
ODD_CLASSES = [type(n, (Returns,), {"place": i, "odd": odd}) for n, (i, odd) in ODD.items()]


class FourValues(Healthy):
    """Speaks the step of an older Gym."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class BareReset(Healthy):
    """Speaks the reset of an older Gym."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class UnseededReset(Healthy):
    """Takes no seed, as in an older Gym."""

    def reset(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().reset()


class LeavesInStep(Healthy):
    def pay(self) -> Any:
        return sys.exit() if self.at_fault else 1.0


class LeavesInReset(Healthy):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        sys.exit("no licence")


class LeavesWhenMade(Healthy):
    def __init__(self) -> None:
        sys.exit(0)


class RaisesInClose(Healthy):
    def close(self) -> None:
        raise RuntimeError("the window\nis gone")


class Hangs(Healthy):
    """Waits for ever for something that does not come."""

    def pay(self) -> Any:
        while self.at_fault:
            time.sleep(0.01)
        return 1.0


class HangsInReset(Healthy):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        while True:
            time.sleep(0.01)


class Stubborn(Healthy):
    """Hangs and lets no exception out."""

    def pay(self) -> Any:
        while self.at_fault:
            with contextlib.suppress(Exception):
                time.sleep(60)
        return 1.0


class Late(Healthy):
    """Comes back after all, as if nothing had happened."""

    def pay(self) -> Any:
        if self.at_fault:
            with contextlib.suppress(Exception):
                time.sleep(60)
        return 1.0


class RaisesInStep(Healthy):
    def pay(self) -> Any:
        if self.at_fault:
            raise RuntimeError("the simulator\nis gone")
        return 1.0


class RaisesInReset(Healthy):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        raise OSError("no licence")


class RaisesWhenMade(Healthy):
    def __init__(self) -> None:
        raise OSError("no display")


class Irreproducible(Healthy):
    """Remembers how often it was reset, whatever the seed."""

    resets = 0

    def observe(self, value: Any) -> Any:
        if self.count == 0:
            self.resets += 1
        return np.array([self.resets, 0.0])


class Unseeded(Healthy):
    """Draws from a generator that no seed reaches."""

    def observe(self, value: Any) -> Any:
        return np.random.default_rng().normal(size=2)


class Matrix(Healthy):
    """Two-dimensional float32 observations and actions."""

    observation_space = Box(-np.inf, np.inf, (2, 3), np.float32)
    action_space = Box(-1.0, 3.0, (2, 2), np.float32)

    def observe(self, value: Any) -> Any:
        return np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(np.sum(value))


class Terminates(Healthy):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.at_fault, truncated, info


class GraphObservation(Healthy):
    observation_space = gym.spaces.Graph(Box(-1.0, 1.0, (2,)), None)


class TextInDict(Healthy):
    observation_space = gym.spaces.Dict({"a": Box(-1.0, 1.0, (2,)), "b": gym.spaces.Text(3)})


class FailsToBeMade(Healthy):
    def __init__(self) -> None:
        assert self.observation_space.shape == (0,)


class EmptyObservation(Healthy):
    observation_space = Box(-1.0, 1.0, (0,))


class DiscreteAction(Healthy):
    action_space = gym.spaces.Discrete(2)


class MultiDiscreteAction(Healthy):
    action_space = gym.spaces.MultiDiscrete([2, 2])


class TupleAction(Healthy):
    action_space = gym.spaces.Tuple([Box(-1.0, 1.0, (2,))])


class NoActionSpace(Healthy):
    action_space: Any = None


class NoObservationSpace(gym.Env[Any, Any]):
    action_space = Box(-1.0, 1.0, (2,))


class EmptyAction(Healthy):
    action_space = Box(-1.0, 1.0, (0,))


class UnboundedAction(Healthy):
    action_space = Box(-np.inf, np.inf, (2,))


class IntegerAction(Healthy):
    action_space = Box(-1, 1, (2,), np.int64)


class FlatAction(Healthy):
    action_space = Box(1.0, 1.0, (2,))


class NanAction(Healthy):
    """Gymnasium refuses NaN bounds in the constructor, so they are written later."""

    action_space = Box(-1.0, 1.0, (2,))
    action_space.low[0] = np.nan


def _register(cls: type[Healthy]) -> None:
    gym.register(f"{cls.__name__}-v0", cls, max_episode_steps=20)
    for child in cls.__subclasses__():
        _register(child)


_register(Healthy)
gym.register("NoObservationSpace-v0", "faulty_envs:NoObservationSpace")
