"""Trials that Optuna chooses: what was chosen lies in one file, what came of it in the run folders.

So a tuning that was killed knows all that it knew, and asks Optuna for the missing trials only.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgerl.errors import StorageFault, UserError, install
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.streams import derive_seed
from bridgerl.studies.jobs import Job

TRIALS = "trials.json"
DIGITS = 4
"""Digits of a number that is drawn, so that it can be read and typed."""
Value = str | int | float
MakeJobs = Callable[[int, dict[str, str]], list[Job]]


class Space(NamedTuple):
    """What a flag may be: one of some values, or a number from low to high."""

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    def distribution(self, optuna: Any) -> Any:
        kinds = optuna.distributions
        if self.choices:
            return kinds.CategoricalDistribution(self.choices)
        if self.whole:
            return kinds.IntDistribution(int(self.low), int(self.high), log=self.log)
        return kinds.FloatDistribution(self.low, self.high, log=self.log)

    def rounded(self, value: Value) -> Value:
        if self.choices or self.whole or isinstance(value, str):
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def has(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return type(value) is (int if self.whole else float) and self.low <= value <= self.high


def import_optuna() -> Any:
    """The library, silent: trials are told of by their runs."""
    try:
        import optuna
    except ImportError:
        raise UserError(f"tune needs Optuna: {install('tune')}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Tuning:
    """Trials in the order they were chosen; each is a setting that is trained with some seeds."""

    def __init__(
        self, folder: Path, spaces: Sequence[Space], make_jobs: MakeJobs, measure: str, seed: int
    ) -> None:
        self._optuna = import_optuna()
        self._path, self._spaces, self._make_jobs = folder / TRIALS, spaces, make_jobs
        self._measure, self._seed = measure, seed
        self.trials: list[dict[str, Value]] = self._read()
        self.failed: set[Job] = set()

    def missing(self, count: int, chosen: Callable[[], None]) -> Iterator[Job]:
        """The jobs of so many trials that are not done; `chosen` is called after each choice.

        A trial is chosen when its first job is asked for, and then knows of all that have ended.
        """
        for number in range(count):
            if number == len(self.trials):
                self.trials.append(self._choose())
                self._write()
                chosen()
            yield from (job for job in self.jobs_of(number) if not job.done())

    def jobs_of(self, number: int) -> list[Job]:
        trial = self.trials[number]  # By the order of the search: a file sorts its keys.
        chosen = {space.key: str(trial[space.key]) for space in self._spaces}
        return self._make_jobs(number, chosen)

    def jobs(self, count: int) -> list[Job]:
        """The jobs of the trials that were chosen, up to so many trials."""
        numbers = range(min(count, len(self.trials)))
        return [job for number in numbers for job in self.jobs_of(number)]

    def score(self, number: int) -> float | None:
        """The mean score over a trial's seeds, once all of them have ended."""
        jobs = self.jobs_of(number)
        if not all(job.done() for job in jobs):
            return None
        figures = [RunFolder(job.folder).done() or {} for job in jobs]
        return float(np.mean([f[f"{self._measure}_return"] for f in figures]))

    def best(self) -> tuple[int, float] | None:
        """The trial with the largest score."""
        scores = {n: s for n in range(len(self.trials)) if (s := self.score(n)) is not None}
        return max(scores.items(), key=lambda item: item[1]) if scores else None

    def _choose(self) -> dict[str, Value]:
        """What Optuna suggests after all trials so far, by a generator of this trial's own."""
        optuna, states = self._optuna, self._optuna.trial.TrialState
        seed = derive_seed(self._seed, "tune", len(self.trials)) % 2**32
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        kinds = {space.key: space.distribution(optuna) for space in self._spaces}
        for number, params in enumerate(self.trials):
            score, state = self.score(number), states.RUNNING
            if score is not None:
                state = states.COMPLETE
            elif self.failed & set(self.jobs_of(number)):
                state = states.FAIL
            past = {"params": params, "distributions": kinds, "value": score, "state": state}
            study.add_trial(optuna.trial.create_trial(**past))
        drawn = study.ask(kinds).params
        return {space.key: space.rounded(drawn[space.key]) for space in self._spaces}

    def _read(self) -> list[dict[str, Value]]:
        if not os.path.lexists(self._path):
            return []
        data = store.open_sealed_json(store.read_json_bytes(self._path), str(self._path))
        if data.get("search") != self._search():
            what = f"{self._path.parent} holds trials of another --search or --sampler-seed"
            raise UserError(f"{what}; type the same ones, or give this one another --name")
        trials = data.get("trials")
        if not isinstance(trials, list) or not all(map(self._fits, trials)):
            raise StorageFault(f"{self._path} is damaged: no list of trials of this search")
        return trials

    def _fits(self, trial: Any) -> bool:
        """Whether values are of this search: a stranger's file must not choose other flags."""
        known = isinstance(trial, dict) and trial.keys() == {space.key for space in self._spaces}
        return known and all(space.has(trial[space.key]) for space in self._spaces)

    def _search(self) -> dict[str, Any]:
        return store.plain({"spaces": [s._asdict() for s in self._spaces], "seed": self._seed})

    def _write(self) -> None:
        sealed = store.to_sealed_json({"search": self._search(), "trials": self.trials})
        try:
            store.publish_file(self._path, sealed)
        except OSError as error:
            raise StorageFault(f"{self._path} not written: {error}") from error
