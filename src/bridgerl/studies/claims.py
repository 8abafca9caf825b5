"""What a paper says of its results, as statements that scores can confirm or refute.

A claim is a contrast: a number that is positive if it is true, and its slope in every mean, from
which the uncertainty of the means becomes that of the contrast.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple


class Cell(NamedTuple):
    """The scores of a setting on a task, summed up; an exact one has no spread at all."""

    mean: float
    std: float
    n: int
    exact: bool = False


Cells = dict[tuple[str, str], Cell]
"""By setting and task."""


class Term(NamedTuple):
    """How a contrast moves with one mean."""

    slope: float
    setting: str
    task: str


class Contrast(NamedTuple):
    """A claim in numbers: positive if true."""

    value: float
    terms: tuple[Term, ...]


class SpreadContrast(NamedTuple):
    """A claim about two variances: the log of their ratio, positive if true."""

    value: float
    wide: Cell
    narrow: Cell


@dataclass(frozen=True)
class Claim(ABC):
    """A statement about settings and tasks."""

    says: str = field(default="", kw_only=True)
    """In words, where the formula is not enough."""

    @property
    def text(self) -> str:
        """The statement in words."""
        return self.says or self.formula()

    def formula(self) -> str:
        """The statement in short."""
        raise NotImplementedError

    @abstractmethod
    def cells(self) -> tuple[tuple[str, str], ...]:
        """The settings and tasks it speaks of."""

    @abstractmethod
    def contrast(self, cells: Cells) -> Contrast | SpreadContrast:
        """The statement in numbers."""


@dataclass(frozen=True)
class Beats(Claim):
    """One setting's score is larger than another's, or than `factor` times it."""

    better: str
    worse: str
    task: str
    factor: float = 1.0

    def formula(self) -> str:
        times = "" if self.factor == 1 else f"{self.factor:g} x "
        return f"{self.better} > {times}{self.worse} on {self.task}"

    def cells(self) -> tuple[tuple[str, str], ...]:
        return ((self.better, self.task), (self.worse, self.task))

    def contrast(self, cells: Cells) -> Contrast:
        """Better - factor x worse."""
        terms = (Term(1.0, self.better, self.task), Term(-self.factor, self.worse, self.task))
        return Contrast(sum(t.slope * cells[t.setting, t.task].mean for t in terms), terms)


@dataclass(frozen=True)
class GainsMore(Claim):
    """Going from `worse` to `better` gains more, in per cent, than another such change."""

    better: str
    worse: str
    than_better: str
    than_worse: str
    task: str

    def cells(self) -> tuple[tuple[str, str], ...]:
        settings = (self.better, self.worse, self.than_better, self.than_worse)
        return tuple((setting, self.task) for setting in settings)

    def contrast(self, cells: Cells) -> Contrast:
        """Difference of log ratios; NaN unless all means are positive."""
        signs = dict(zip(self.cells(), (1, -1, -1, 1), strict=True))
        means = {cell: cells[cell].mean for cell in signs}
        if min(means.values()) <= 0:
            return Contrast(float("nan"), ())
        value = sum(sign * log(means[cell]) for cell, sign in signs.items())
        return Contrast(value, tuple(Term(sign / means[c], *c) for c, sign in signs.items()))


@dataclass(frozen=True)
class Exceeds(Claim):
    """A score is above a number."""

    setting: str
    task: str
    bound: float

    def cells(self) -> tuple[tuple[str, str], ...]:
        return ((self.setting, self.task),)

    def contrast(self, cells: Cells) -> Contrast:
        """Score - bound."""
        value = cells[self.setting, self.task].mean - self.bound
        return Contrast(value, (Term(1.0, self.setting, self.task),))


@dataclass(frozen=True)
class Spreads(Claim):
    """One setting's seeds differ more than another's."""

    wide: str
    narrow: str
    task: str

    def formula(self) -> str:
        return f"{self.wide} varies more than {self.narrow} on {self.task}"

    def cells(self) -> tuple[tuple[str, str], ...]:
        return ((self.wide, self.task), (self.narrow, self.task))

    def contrast(self, cells: Cells) -> SpreadContrast:
        """Log ratio of variances; NaN where one has none."""
        wide, narrow = (cells[cell] for cell in self.cells())
        known = wide.std > 0 and narrow.std > 0
        value = 2 * (log(wide.std) - log(narrow.std)) if known else float("nan")
        return SpreadContrast(value, wide, narrow)


def beats(better: str, rivals: tuple[str, ...], tasks: tuple[str, ...]) -> tuple[Beats, ...]:
    """One setting above each of several on every task."""
    return tuple(Beats(better, worse, task) for task in tasks for worse in rivals)
