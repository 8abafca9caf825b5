"""What a paper says of its results, as statements that scores can confirm or refute.

A claim is a contrast: a number that is positive if it is true, and its slope in every mean, from
which the uncertainty of the means becomes that of the contrast.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log
from typing import NamedTuple


class Cell(NamedTuple):
    """The scores of a setting on a task, summed up; an exact one has no spread at all."""

    mean: float
    std: float
    n: int
    exact: bool = False


Cells = dict[tuple[str, str], Cell]
"""Scores by setting and task."""


class Contrast(NamedTuple):
    """A claim in numbers: positive if true."""

    value: float
    terms: tuple[tuple[float, str, str], ...]
    """How it moves with a mean: slope, setting, task."""


class SpreadContrast(NamedTuple):
    """A claim about two variances: the log of their ratio, positive if true."""

    value: float
    wide: Cell
    narrow: Cell


class Claim(ABC):
    """A statement about settings on one task."""

    task: str
    says: str
    """The claim in words, where the formula is not enough."""
    bound: float = 0.0

    @property
    def text(self) -> str:
        return self.says

    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The settings it speaks of: positive the more of it makes the claim true."""

    def cells(self) -> tuple[tuple[str, str], ...]:
        return tuple((setting, self.task) for setting in self.weights())

    def contrast(self, cells: Cells) -> Contrast | SpreadContrast:
        """The weighted sum of means, above the bound."""
        terms = tuple((weight, key, self.task) for key, weight in self.weights().items())
        return Contrast(sum((w * cells[k, t].mean for w, k, t in terms), -self.bound), terms)


@dataclass(frozen=True)
class Beats(Claim):
    """One setting's score is larger than another's, or than `factor` times it."""

    better: str
    worse: str
    task: str
    factor: float = 1.0
    says: str = ""

    @property
    def text(self) -> str:
        times = "" if self.factor == 1 else f"{self.factor:g} x "
        return self.says or f"{self.better} > {times}{self.worse} on {self.task}"

    def weights(self) -> dict[str, float]:
        return {self.better: 1.0, self.worse: -self.factor}


@dataclass(frozen=True)
class GainsMore(Claim):
    """Going from `worse` to `better` gains more, in per cent, than another such change."""

    better: str
    worse: str
    than_better: str
    than_worse: str
    task: str
    says: str

    def weights(self) -> dict[str, float]:
        return {self.better: 1, self.worse: -1, self.than_better: -1, self.than_worse: 1}

    def contrast(self, cells: Cells) -> Contrast:
        """Difference of log ratios; NaN unless all means are positive."""
        parts = [(cells[k, self.task].mean, sign, k) for k, sign in self.weights().items()]
        if min(parts)[0] <= 0:
            return Contrast(float("nan"), ())
        terms = tuple((sign / mean, key, self.task) for mean, sign, key in parts)
        return Contrast(sum(sign * log(mean) for mean, sign, _ in parts), terms)


@dataclass(frozen=True)
class Exceeds(Claim):
    """A score is above a number."""

    setting: str
    task: str
    bound: float = 0.0
    says: str = ""

    def weights(self) -> dict[str, float]:
        return {self.setting: 1.0}


@dataclass(frozen=True)
class StaysBelow(Claim):
    """A score is below a number."""

    setting: str
    task: str
    most: float
    says: str = ""

    def weights(self) -> dict[str, float]:
        return {self.setting: -1.0}

    def contrast(self, cells: Cells) -> Contrast:
        """How far the mean score is below the number."""
        terms = ((-1.0, self.setting, self.task),)
        return Contrast(self.most - cells[self.setting, self.task].mean, terms)


@dataclass(frozen=True)
class Spreads(Claim):
    """One setting's seeds differ more than another's."""

    wide: str
    narrow: str
    task: str

    @property
    def text(self) -> str:
        return f"{self.wide} varies more than {self.narrow} on {self.task}"

    def weights(self) -> dict[str, float]:
        return {self.wide: 1.0, self.narrow: -1.0}

    def contrast(self, cells: Cells) -> SpreadContrast:
        """Log ratio of variances; NaN where one has none."""
        wide, narrow = (cells[cell] for cell in self.cells())
        known = wide.std > 0 and narrow.std > 0
        value = 2 * (log(wide.std) - log(narrow.std)) if known else float("nan")
        return SpreadContrast(value, wide, narrow)


@dataclass(frozen=True)
class Alike(Claim):
    """Two settings' scores differ by less than a share of their mean: a test of equivalence."""

    one: str
    other: str
    task: str
    within: float = 0.1

    @property
    def text(self) -> str:
        return f"{self.one} and {self.other} differ by less than {self.within:.0%} on {self.task}"

    def weights(self) -> dict[str, float]:
        return {self.one: 1.0, self.other: -1.0}

    def margin(self, cells: Cells) -> float:
        """The difference up to which they are alike."""
        one, other = (cells[cell].mean for cell in self.cells())
        return self.within * abs(one + other) / 2


@dataclass(frozen=True)
class BeatsOverall(Claim):
    """One setting's score is larger than another's on the mean of tasks, each in its own unit."""

    better: str
    worse: str
    units: tuple[tuple[str, float], ...]
    """Tasks and what their scores are divided by."""

    task: str = "all tasks"

    @property
    def text(self) -> str:
        return f"{self.better} > {self.worse} over {len(self.units)} tasks"

    def weights(self) -> dict[str, float]:
        return {self.better: 1.0, self.worse: -1.0}

    def cells(self) -> tuple[tuple[str, str], ...]:
        return tuple((setting, task) for task, _ in self.units for setting in self.weights())

    def contrast(self, cells: Cells) -> Contrast:
        """The mean over tasks of the difference in units of each."""
        terms = tuple(
            (weight / unit / len(self.units), setting, task)
            for task, unit in self.units
            for setting, weight in self.weights().items()
        )
        return Contrast(sum(slope * cells[s, t].mean for slope, s, t in terms), terms)


def beats(better: str, rivals: tuple[str, ...], tasks: tuple[str, ...]) -> tuple[Beats, ...]:
    """One setting above each of several on every task."""
    return tuple(Beats(better, worse, task) for task in tasks for worse in rivals)
