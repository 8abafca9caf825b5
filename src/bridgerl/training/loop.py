"""The training loop: steps, and between them logs, evaluations, checkpoints that disturb none."""

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bridgerl.config import RunConfig, checked
from bridgerl.envs.probe import changes, trace_env
from bridgerl.envs.recipe import MakeEnv, Recipe, name_of
from bridgerl.envs.task import MakeTask, Task, task_maker
from bridgerl.errors import StorageFault, UserError
from bridgerl.runs import checkpoint, store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.log import RunLog
from bridgerl.runs.records import evaluations_of
from bridgerl.training.callbacks import Callback, Callbacks, Progress
from bridgerl.training.display import Display
from bridgerl.training.evaluate import play_episodes
from bridgerl.training.health import Health
from bridgerl.training.lanes import ProcessTask, open_tasks
from bridgerl.training.process import Stopped, StopSignal, check_device, tuned_process
from bridgerl.training.replay import check_memory
from bridgerl.training.state import ENVIRONMENT, Counters, RunState
from bridgerl.training.step import TrainStep
from bridgerl.training.threads import settle_threads

FAILED_SAVES_IN_A_ROW = 3


def train(
    config: RunConfig,
    *,
    make_env: MakeEnv | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> Path:
    """Train, or resume, one run; returns its folder. Nothing is written before all fits.

    `make_env` makes the environment in place of the config's id, anew at every call.
    """
    config = checked(config)
    if make_env is not None:
        config = replace(config, env_factory=name_of(make_env))
    run = RunFolder(config.folder)
    check_device(config.train.device)
    make = task_maker(Recipe.of(config, make_env), config.seed)
    with open_tasks(config, make) as tasks:
        spec = tasks[0].spec
        config = settle_threads(settle_warmup(config), spec)
        rows, fine = min(config.train.buffer_size, config.steps), config.train.normalize_returns
        check_memory(spec, rows, fine_rewards=fine)
        run.check(config, spec)
        trainer = Trainer(config, make, tasks, callbacks)
        with contextlib.closing(trainer.eval_task), tuned_process(config.train.threads):
            lock = run.open(config, spec)
            try:
                with Display(config.steps, quiet=quiet) as display, StopSignal() as stop:
                    trainer.run(display, stop)
            except (UserError, Stopped):
                raise
            except Exception as error:
                run.note_failure(traceback.format_exc())
                ours = error is not trainer.callbacks.failure
                if ours and isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                    raise StorageFault(f"{run.path} cannot be written: {error}") from error
                raise
            finally:
                lock.release()
    return run.path


def settle_warmup(config: RunConfig) -> RunConfig:
    """Put a number for a warm-up left open: the run's own if it began before."""
    if config.train.warmup is not None:
        return config
    run = RunFolder(config.folder)
    begun = run.read_config() if os.path.isfile(run.config_file) else config
    return config.changed(train={"warmup": begun.warmup})


class Trainer:
    """One run: its parts, its counters, its loop. Building one touches no file."""

    log: RunLog
    display: Display
    stop: StopSignal

    def __init__(
        self,
        config: RunConfig,
        make: MakeTask,
        tasks: Sequence[Task | ProcessTask],
        callbacks: Sequence[Callback],
    ) -> None:
        self.config, self.folder, self._make = config, RunFolder(config.folder), make
        self.state = RunState(config, *tasks, length=self.folder.length(config))
        self.agent = self.state.agent
        self.callbacks = Callbacks(callbacks, Progress(config, self.state))
        self.step = TrainStep(self.state, config.train, config.warmup)
        self.eval_task = make("eval", config.env_timeout)
        self.health, self._failed_saves = Health(self.state, config.train), 0
        self._clock = (time.monotonic(), 0)
        self._overhead = {"eval_seconds": 0.0, "checkpoint_seconds": 0.0}

    def _reached_end(self) -> bool:
        """Evaluated at this very step, and all steps are done or the wanted return is reached."""
        last, goal = self.log.evaluations[-1:], self.config.eval.stop_at
        if not last or last[0]["step"] != self.counters.step:
            return False
        at_goal = goal is not None and last[0]["eval/return_mean"] >= goal
        return at_goal or self.counters.step >= self.config.steps

    @property
    def counters(self) -> Counters:
        return self.state.counters

    def run(self, display: Display, stop: StopSignal) -> None:
        self.display, self.stop = display, stop
        log = RunLog(self.folder, tensorboard=self.config.log.tensorboard)
        told = self.callbacks.until_stop(self._save_anew, display.warn)
        with contextlib.closing(log) as self.log, told:
            self._resume()
            if fault := self.folder.changed_timing():
                self.display.warn(f"{fault}; it is taken as it is now")
            ended = self._reached_end() and os.path.lexists(self.folder.done_file)
            if not ended:  # Or nothing is added to logs that are sealed.
                self.folder.forget_done()
                self.log.timing(self.counters.step, start=1.0)
            self.folder.write_config(self.config, self.state.task.spec)
            finished = self._loop()
            if not ended:
                self.log.timing(self.counters.step, **self._overhead)
            if finished:
                self._finish()

    def _loop(self) -> bool:
        """Whether the run came to its end; else a callback stopped it."""
        config, c, calls = self.config, self.counters, self.callbacks
        known = len(self.log.evaluations)
        self._evaluate()  # Due at the checkpoint's step, if a signal came in between.
        finished, stopping = self._reached_end(), self._stopping()
        if finished and len(self.log.evaluations) > known:
            self._save(must=True)  # In place of the one that lacks this evaluation.
        while not finished and not stopping:
            diagnostics = (c.step + 1) % config.log.every == 0
            episode = calls.run.episode = self.step(diagnostics=diagnostics)
            if episode is not None:
                values = {"episode/return": episode.total, "episode/length": episode.length}
                values |= {"episode/diverged": True} if episode.diverged else {}
                values |= {"episode/env": episode.env} if config.train.n_envs > 1 else {}
                self.log.record("episode", c.step, values)
            self.display.show(c.step, c.recent[-1][0] if c.recent else None)
            if c.step % config.log.every == 0:
                self._log()
            self._evaluate()
            if calls.each_step:
                calls.tell("on_step")
            finished, stopping = self._reached_end(), self._stopping()
            ending = finished or stopping
            if c.step % config.save_every == 0 or ending:
                self._save(must=ending)
        if not finished and self.stop.number is not None:
            self.log.timing(c.step, **self._overhead)
            raise Stopped(self.stop.number, c.step)
        if not finished:
            self.display.say(f"a callback stopped it at step {c.step:,}; the same call goes on")
        return finished

    def _stopping(self) -> bool:
        return self.stop.number is not None or self.callbacks.run.stopping

    def _log(self) -> None:
        c = self.counters
        told = self.state.metrics | self.state.diagnostics
        # As float32, which a checkpoint keeps: a resumed run then logs the same digits.
        values: dict[str, Any] = {k: float(v.float()) for k, v in sorted(told.items())}
        if self.agent.updates > 0:
            self.health.judge(values, self.display.warn)
        if c.recent:
            values["episode/return_mean"] = float(np.mean([r for r, _ in c.recent]))
            values["episode/length_mean"] = float(np.mean([n for _, n in c.recent]))
        self.log.record("train", c.step, values)
        now, (then, before) = time.monotonic(), self._clock
        self._clock = (now, c.step)
        # A clock may stand still: in a virtual machine that was stopped, or by a coarse tick.
        speed = {"steps_per_second": (c.step - before) / (now - then)} if now > then else {}
        self.log.timing(c.step, **speed, **self._overhead)
        self.callbacks.tell("on_log", values)

    def _evaluate(self) -> None:
        """Play the evaluation that is due at this step, if there is one."""
        c, config = self.counters, self.config
        due = c.step > 0 and (c.step % config.eval.every == 0 or c.step >= config.steps)
        if not due or (self.log.evaluations and self.log.evaluations[-1]["step"] == c.step):
            return
        started = time.monotonic()
        play = partial(play_episodes, self.agent, self.eval_task, config.eval)
        result = play(seed=config.seed, key=c.step, stopped=lambda: self.stop.number is not None)
        if result is None:  # Evaluated again when the run goes on.
            return
        values = result.figures(config.eval.risk)
        self.log.record("eval", c.step, values)
        if c.best_return is None or result.mean > c.best_return:
            c.best_return, c.best_step = result.mean, c.step
        if c.best_step == c.step or c.step % config.save.weights_every == 0:
            try:
                checkpoint.save_weights(self.folder, c.step, self.state.weights())
            except OSError as error:
                self.display.warn(f"best weights not saved: {error}")
        worth = f"  {config.eval.risk} {values['eval/risk']:.1f}" if config.eval.risk else ""
        self.display.say(
            f"step {c.step:>9,}  eval return {result.mean:10.1f} +- {result.std:.1f}{worth}"
            f"  best {c.best_return:.1f}"
        )
        self._overhead["eval_seconds"] += time.monotonic() - started
        self.callbacks.tell("on_evaluation", values)

    def _save(self, *, must: bool) -> None:
        """Publish a checkpoint. A full disk is survived twice, unless the run ends here."""
        self.step.check_numbers()
        started = time.monotonic()
        try:
            state, keep = self.state, self.config.save.keep
            snap = state.snapshot(self.log.mark())
            checkpoint.save(self.folder, snap, state.replay, state.segments, keep)
            for step, path in self.folder.checkpoints("weights"):
                if step != state.counters.best_step and step % self.config.save.weights_every:
                    store.discard(path)
            self._failed_saves = 0
        except OSError as error:
            self._failed_saves += 1
            what = f"checkpoint at step {self.counters.step} not written: {error}"
            if must or self._failed_saves >= FAILED_SAVES_IN_A_ROW:
                there = "the one before is intact" if self.folder.checkpoints() else "none is there"
                raise StorageFault(f"{what}; {there}; the same command goes on") from error
            self.display.warn(f"{what}; trying again in {self.config.save_every} steps")
        self._overhead["checkpoint_seconds"] += time.monotonic() - started

    def _save_anew(self) -> None:
        """Save where the run stands, unless a checkpoint of this step is there."""
        if not self.folder.checkpoint("step", self.counters.step).exists():
            self._save(must=False)

    def _resume(self) -> None:
        config, say = self.config, self.display.say
        say(
            f"{config.env}: {config.actor_name}+{config.critic_name} ({config.preset}), "
            f"seed {config.seed}, {config.steps:,} steps -> {self.folder.path}"
        )
        found = checkpoint.newest(self.folder, self.state.replay, self.display.warn)
        if found is None:
            self._watch_environment(None)
            self.log.resume({"bytes": 0}, 0)
            for lane in self.state.lanes:
                lane.start()
            return
        snap, segments = found
        reasons = self._watch_environment(snap.fingerprint.get(ENVIRONMENT))
        for reason in reasons + self.state.restore(snap, segments):
            if config.save.require_exact:
                raise UserError(f"resume would not be bit-exact: {reason}")
            self.counters.inexact.append(f"step {self.counters.step}: {reason}")
            self.display.warn(f"resumed run is not bit-exact: {reason}")
        self.log.resume(snap.metrics, snap.step)
        self._clock = (time.monotonic(), snap.step)
        say(f"{'already finished' if self._reached_end() else 'resuming'} at step {snap.step:,}")

    def _watch_environment(self, known: Any) -> list[str]:
        """Compare the environment with what is known of it; a change is told once, then known."""
        what = None if known is None else self._of_a_copy(partial(changes, known=known))
        self.state.sample = known if known and not what else self._of_a_copy(trace_env)
        before = "the environment is not the one that the run had before"
        return [f"{before}: {what}"] if what else []

    def _of_a_copy(self, ask: Callable[[Task], Any]) -> Any:
        """What a fresh copy of the environment answers."""
        with contextlib.closing(self._make("sample", self.config.env_timeout)) as copy:
            return ask(copy)

    def _finish(self) -> None:
        c = self.counters
        figures: dict[str, Any] = {"step": c.step, **evaluations_of(self.log.evaluations).summary()}
        figures |= {"diverged_episodes": c.diverged, "exact": not c.inexact}
        self.folder.write_done(figures)
        self.callbacks.run.stopping = False  # It is asked for too late.
        self.display.finish(c.step)
        if "best_return" in figures:
            self.display.say(
                f"done: best {figures['best_return']:.1f} at step {figures['best_step']:,}, "
                f"final {figures['final_return']:.1f}, average {figures['average_return']:.1f}"
            )
        self.display.say(f"run folder: {self.folder.path}")
