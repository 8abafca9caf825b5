"""Many environments at once: each with its own episode, in this process or in one of its own."""

import contextlib
import ctypes
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bridgerl.config import RunConfig
from bridgerl.envs.task import MakeTask, Outcome, Task
from bridgerl.errors import BridgeError, EnvFault
from bridgerl.streams import derive_seed
from bridgerl.training.n_step import PendingRows
from bridgerl.types import EnvSpec

GRACE = 5.0
"""Seconds that a process has to close its environment."""
_PR_SET_PDEATHSIG = 1


class ProcessTask:
    """A task in a process of its own: it steps while others do, and while the learner learns.

    The process is a fork, so that it knows every environment that this one knows.
    """

    spec: EnvSpec

    def __init__(self, make: MakeTask, seed: int, purpose: str, timeout: float | None) -> None:
        """Begin to make it; `wait_until_made` must come before all else."""
        self._seed, self._purpose, self._timeout = seed, purpose, timeout
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        args = (lambda: make(purpose, None), (self._pipe, theirs), os.getpid())
        self._process = context.Process(target=_serve, args=args)
        self._process.start()
        theirs.close()
        self.actions: list[np.ndarray] = []
        self.reward = 0.0
        self._obs = np.zeros(0, np.float32)
        self._asked: str | None = None
        """The call whose answer is still to come."""
        self._episode_seed, self._due = 0, math.inf

    def wait_until_made(self) -> None:
        """Learn its sizes, or why it cannot be made."""
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise EnvFault(f"an environment could not be made: {self._death()}") from None
        self.spec = _unless_error(answer)

    def reset(self, *key: int) -> None:
        """Begin the episode with this key; who looks at `obs` waits for it."""
        self.actions, self.reward = [], 0.0
        self._episode_seed = derive_seed(self._seed, self._purpose, *key) % 2**32
        self._ask("reset", *key)

    @property
    def obs(self) -> np.ndarray:
        """The last observation, float32: (o,)."""
        if self._asked == "reset":
            self._obs = self._answer()
        return self._obs

    def begin(self, action: np.ndarray) -> None:
        """Let a step begin; `step` with the same action waits for its end."""
        if self._asked == "reset":
            self._obs = self._answer()
        self._ask("step", action)

    def step(self, action: np.ndarray) -> Outcome:
        """Apply an action in [-1, 1], unless that has begun; returns what came of it."""
        if self._asked != "step":
            self.begin(action)
        self.actions.append(action)
        out: Outcome = self._answer()
        self._obs, self.reward = out.obs, out.reward
        return out

    def replay(self, key: tuple[int, ...], actions: np.ndarray) -> bool:
        """Rebuild an episode under way from its key and its actions; False if it ended by then."""
        self.reset(*key)
        outcomes = [self.step(action) for action in actions]
        return not any(out.terminated or out.truncated for out in outcomes)

    def close(self) -> None:
        """Close the environment and end its process, by force if it hangs."""
        with contextlib.suppress(OSError):  # It has died before.
            self._pipe.send(None)
        self._process.join(GRACE)
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _ask(self, call: str, *args: Any) -> None:
        self._asked = call
        if self._timeout is not None:
            self._due = time.monotonic() + self._timeout
        with contextlib.suppress(OSError):  # Its death shows when the answer is missing.
            self._pipe.send((call, args))

    def _answer(self) -> Any:
        left = None if self._timeout is None else max(0.0, self._due - time.monotonic())
        try:
            if not self._pipe.poll(left):
                self._process.kill()
                raise self._fault(f"no answer within --env-timeout {self._timeout:g} seconds")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._fault(self._death()) from None
        self._asked = None
        return _unless_error(answer)

    def _death(self) -> str:
        self._process.join(GRACE)
        code = self._process.exitcode or 0
        return f"its process died ({f'signal {-code}' if code < 0 else f'exit code {code}'})"

    def _fault(self, what: str) -> EnvFault:
        step, seed = len(self.actions), self._episode_seed
        return EnvFault(f"{self.spec.env_id}: {what} at step {step} of the episode seeded {seed}")


def _unless_error(answer: Any) -> Any:
    if isinstance(answer, BridgeError):
        raise answer
    return answer


def _serve(make: Callable[[], Task], pipes: tuple[Connection, Connection], parent: int) -> None:
    """Make a task and do what is asked of it, in a process that ends with its parent."""
    theirs, pipe = pipes
    theirs.close()
    if sys.platform == "linux":  # Also when a call hangs, and reads no end of the pipe.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whether to stop is the learner's to say. Not SIG_IGN, which programs started here inherit.
        signal.signal(number, lambda *_: None)
    torch.set_num_threads(1)  # A fork has none of its parent's threads, and must not wait for them.
    with contextlib.suppress(EOFError, OSError):
        try:
            task = make()
        except BridgeError as error:
            pipe.send(error)
            return
        with contextlib.closing(task):
            pipe.send(task.spec)
            for call, args in iter(pipe.recv, None):
                try:
                    answer: Any = getattr(task, call)(*args)
                except BridgeError as error:
                    answer = error
                pipe.send(answer)


@contextlib.contextmanager
def open_tasks(config: RunConfig, make: MakeTask) -> Iterator[list[Task | ProcessTask]]:
    """The environments of a run; the first has the seeds that it has alone."""
    with contextlib.ExitStack() as stack:
        tasks: list[Task | ProcessTask] = []
        for purpose in ["env", *(f"env-{i}" for i in range(1, config.train.n_envs))]:
            if config.env_processes:
                task = ProcessTask(make, config.seed, purpose, config.env_timeout)
            else:
                task = make(purpose, config.env_timeout)
            stack.callback(task.close)
            tasks.append(task)
        for task in tasks:  # All are being made by now.
            if isinstance(task, ProcessTask):
                task.wait_until_made()
        yield tasks


class Lane:
    """One of a run's environments, the episode under way there, and rows that wait for rewards."""

    def __init__(self, task: Task | ProcessTask, pending: PendingRows, name: str = "") -> None:
        self.task, self.pending, self._name = task, pending, name
        self.episode, self.total = 0, 0.0
        """Number of the episode under way, and its return so far."""
        self.chosen: np.ndarray | None = None
        """The action that it takes next, once it is chosen."""

    @property
    def obs(self) -> np.ndarray:
        with self._naming_faults():
            return self.task.obs

    def begin(self, action: np.ndarray) -> None:
        """Take an action in; an environment in a process of its own begins its step."""
        self.chosen = action
        if isinstance(self.task, ProcessTask):
            self.task.begin(action)

    def step(self) -> Outcome:
        """What came of the chosen action, added to the rows and to the return."""
        assert self.chosen is not None
        obs, action, self.chosen = self.task.obs, self.chosen, None
        with self._naming_faults():
            out = self.task.step(action)
        self.pending.add(obs, action, out)
        self.total += out.reward
        return out

    def start_next(self) -> None:
        """Begin the next episode."""
        self.episode, self.total = self.episode + 1, 0.0
        self.start()

    def start(self) -> None:
        with self._naming_faults():
            self.task.reset(self.episode)

    def state(self) -> dict[str, Tensor]:
        """What rebuilds the episode under way, but for its number and return."""
        actions = self.task.actions or [np.zeros((0, self.task.spec.action_dim), np.float32)]
        state = {
            "actions": torch.from_numpy(np.vstack(actions)),
            "obs": torch.from_numpy(self.obs),
            "reward": torch.tensor(self.task.reward, dtype=torch.float64),
        }
        if self.pending:  # So that runs without n-step returns are written as ever.
            state["pending"] = self.pending.state()
        if self.chosen is not None:
            state["chosen"] = torch.from_numpy(self.chosen)
        return state

    def restore(self, state: dict[str, Tensor], episode: int, total: float) -> str | None:
        """Rebuild the episode; if that cannot be, begin the next one and return the reason."""
        self.episode, self.total, self.chosen = episode, total, None
        if "pending" in state:
            self.pending.load(state["pending"])
        if self._rebuild(state):
            if "chosen" in state:
                self.begin(state["chosen"].numpy())
            return None
        self.pending.break_off(state["obs"].numpy())
        self.start_next()
        return f"{self._name}the environment is not reproducible, a new episode begins"

    def _rebuild(self, state: dict[str, Tensor]) -> bool:
        """Replay the episode's actions; True when the environment stands where it stood."""
        try:
            under_way = self.task.replay((self.episode,), state["actions"].numpy())
        except EnvFault:
            return False
        same_obs = np.array_equal(self.obs, state["obs"].numpy())
        return under_way and same_obs and self.task.reward == float(state["reward"])

    @contextlib.contextmanager
    def _naming_faults(self) -> Iterator[None]:
        try:
            yield
        except EnvFault as fault:
            raise EnvFault(f"{self._name}{fault}") from fault
