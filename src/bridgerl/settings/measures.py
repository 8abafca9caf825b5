"""Measures of risk as data: a name and a parameter, read from text. Free of torch.

Positive parameters are averse, always; negative ones, where there are any, seek risk.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from bridgerl.errors import UserError, choose

Mass = Callable[[Any], Any]
"""A distortion g: levels, a float64 tensor within [0, 1], to what the levels below weigh."""


@dataclass(frozen=True)
class Measure:
    """What is made of a return's distribution: its mean, or something that minds the spread."""

    name: str
    parameter: float | None = None
    mass: Mass | None = None
    """The distortion of a measure that a user made."""

    @property
    def is_mean(self) -> bool:
        return self.name == "mean"

    def rescaled(self, gain: float) -> "Measure":
        """The same measure for returns that come so many times as large."""
        if self.name != "entropic" or self.parameter is None or gain == 1:
            return self  # All others grow with the returns.
        return Measure(self.name, self.parameter / gain)

    def __str__(self) -> str:
        return self.name if self.parameter is None else f"{self.name}:{self.parameter:g}"


MEAN = Measure("mean")


class Kind(NamedTuple):
    """A family of measures: which parameters it takes."""

    example: float
    low: float
    high: float
    says: str
    open_low: bool = False
    """Whether the lowest parameter itself is left out."""

    def takes(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.open_low and value == self.low)


KINDS = {
    "cvar": Kind(0.1, 0, 1, "mean of the worst share", open_low=True),
    "wang": Kind(0.75, -5, 5, "mean after so many deviations' shift of the normal score"),
    "cpw": Kind(0.71, 0.5, 1, "both tails weigh more, as in prospect theory, the lower one most"),
    "power": Kind(2, -100, 100, "mean of the worst of so many more draws"),
    "mean-std": Kind(0.75, -1e6, 1e6, "mean less so many standard deviations"),
    "entropic": Kind(0.01, -1e6, 1e6, "certainty equivalent of an exponential utility"),
}
OWN: dict[str, Mass] = {}
"""Distortions that users gave a name, see `add_distortion` in ops/risk.py."""


def parse(text: str | Measure) -> Measure:
    """`mean`, `cvar:0.1`, `wang:0.75` and the like as a measure, or refuse in a line."""
    if isinstance(text, Measure):
        return text
    name, colon, number = text.partition(":")
    examples = {"mean": "mean", **{key: f"{key}:{kind.example:g}" for key, kind in KINDS.items()}}
    examples |= {own: own for own in OWN}
    example = choose("risk measure", name, examples)
    if name not in KINDS:
        if colon:
            raise UserError(f"risk measure {text!r} takes no parameter; write {name}")
        return Measure(name, mass=OWN.get(name))
    kind, value = KINDS[name], _number(number)
    if value is None or not kind.takes(value):
        low = f"{'above' if kind.open_low else 'from'} {kind.low:g}"
        rule = f"needs a parameter {low} to {kind.high:g}"
        raise UserError(f"risk measure {text!r} {rule}, e.g. {example}")
    return Measure(name, value)


def _number(text: str) -> float | None:
    plain = re.fullmatch(r"-?(\d+(\.\d*)?|\.\d+)(e-?\d{1,3})?", text)
    return float(text) if plain else None
