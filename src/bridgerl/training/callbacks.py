"""Code of one's own that `train` calls while a run goes on."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from bridgerl.agent import Agent
from bridgerl.config import RunConfig
from bridgerl.errors import BridgeError, UserError
from bridgerl.training.process import Stopped
from bridgerl.training.state import RunState
from bridgerl.training.step import Episode

Reason = Literal["finished", "callback", "signal", "error"]


class Progress:
    """A run as callbacks see it; what they change in it is no longer the run of its seed."""

    def __init__(self, config: RunConfig, state: RunState) -> None:
        self.config: RunConfig = config
        self.folder: Path = config.folder
        self.agent: Agent = state.agent
        self.episode: Episode | None = None
        """The episode that ended with the last step, if one did."""
        self.stopping = False
        self._state = state

    @property
    def step(self) -> int:
        """The number of environment steps so far."""
        return self._state.counters.step

    def stop(self) -> None:
        """End the run after this step with a checkpoint; the same call of `train` goes on."""
        self.stopping = True


class Callback:
    """Is told what a run does. Override what you need; what it raises ends the run."""

    def on_step(self, run: Progress) -> None:
        """Called after every environment step and its updates."""

    def on_log(self, run: Progress, values: dict[str, Any]) -> None:
        """Called every `config.log.every` steps with losses and mean returns, by name."""

    def on_evaluation(self, run: Progress, values: dict[str, Any]) -> None:
        """Called after every evaluation with `eval/return_mean`, `eval/returns` and so on."""

    def on_stop(self, run: Progress, reason: Reason) -> None:
        """Called once, when the run ends here, for whatever reason."""


EVENTS = [name for name in vars(Callback) if name.startswith("on_")]


class Callbacks:
    """All callbacks of a run; those that a callback does not override are never called."""

    def __init__(self, callbacks: Sequence[Callback], run: Progress) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                hint = "instances of subclasses of bridgerl.Callback"
                raise UserError(f"callbacks must be {hint}, not {callback!r}")
        self.run = run
        self.failure: Exception | None = None
        """The exception that a callback raised, if one did."""
        self._calls: dict[str, list[Callable[..., None]]] = {
            event: [
                getattr(callback, event)
                for callback in callbacks
                if getattr(type(callback), event) is not getattr(Callback, event)
            ]
            for event in EVENTS
        }
        self.each_step = bool(self._calls["on_step"])
        """Whether anybody wants to know of steps."""

    def tell(self, event: str, *about: Any) -> None:
        """Call every callback that listens to an event."""
        for call in self._calls[event]:
            try:
                call(self.run, *about)
            except Exception as error:
                self.failure = error
                raise

    @contextlib.contextmanager
    def until_stop(self, save: Callable[[], None], warn: Callable[[str], None]) -> Iterator[None]:
        """Tell of the end of this block; save before, if a callback's own error is the reason."""
        try:
            yield
        except Exception as error:
            failure = self.failure
            if error is failure:
                with contextlib.suppress(BridgeError):  # The checkpoint before is there.
                    save()
            try:
                self.tell("on_stop", "signal" if isinstance(error, Stopped) else "error")
            except Exception as another:  # Said, but not in place of the reason.
                self.failure = failure
                warn(f"on_stop raised {type(another).__name__}: {another}")
            raise
        self.tell("on_stop", "callback" if self.run.stopping else "finished")
