"""Settings of everything that learns, checked under the names of their flags; free of torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bridgerl.errors import require

TrunkName = Literal["plain", "layernorm", "simba", "batchnorm"]


@dataclass(frozen=True)
class LearnerConfig:
    """Settings of everything that learns, by Adam."""

    section: ClassVar[str]
    trunk_widths: ClassVar[str] = "hidden"
    """The field with the widths of the trunk."""

    trunk: TrunkName = "plain"
    """How the layers that read observations (and actions) are built."""
    lr: float = 3e-4
    """Adam learning rate."""
    adam_eps: float = 1e-8
    """Adam epsilon."""
    beta1: float = 0.9
    """Adam's decay rate of the mean gradient."""
    beta2: float = 0.999
    """Adam's decay rate of the mean squared gradient."""
    weight_decay: float = 0.0
    """Share, times the learning rate, that every parameter loses per update, as in AdamW."""
    grad_clip: float | None = 1.0
    """Largest gradient norm over all parameters jointly; None turns clipping off."""

    def __post_init__(self) -> None:
        """Refuse what cannot train or cannot be built."""
        lr, eps, clip = self.lr, self.adam_eps, self.grad_clip
        self.require(0 < lr < 1, "lr", "must be in (0, 1)")
        self.require(0 < eps < 1, "adam_eps", "must be in (0, 1)")
        self.require(0 <= self.beta1 < 1, "beta1", "must be in [0, 1)")
        self.require(0 <= self.beta2 < 1, "beta2", "must be in [0, 1)")
        # From 1 / lr on, an update would take more of a parameter than there is.
        ok = 0 <= self.weight_decay < 1 / lr
        self.require(ok, "weight_decay", "must be from 0 to below 1 / lr")
        ok = clip is None or 0 < clip < float("inf")
        self.require(ok, "grad_clip", "must be positive and finite, or None")
        if self.trunk != "plain":
            self._require_trunk()

    def require(self, ok: bool, field: str, rule: str) -> None:
        """Refuse a field of this config under the name of its flag."""
        flag = f"{self.section}.{field.replace('_', '-')}"
        require(ok, flag, getattr(self, field), rule)

    def require_widths(self, *fields: str, fewest: int = 1) -> None:
        """Refuse lists of layer widths that cannot be built, or are fewer than a network needs."""
        some = "one or more widths" if fewest else "widths"
        for field in fields:
            widths: tuple[int, ...] = getattr(self, field)
            ok = len(widths) >= fewest and all(1 <= n <= 65536 for n in widths)
            self.require(ok, field, f"must be {some} from 1 to 65536")

    def _require_trunk(self) -> None:
        """Refuse a trunk other than plain where there is none, or for whose kind widths are odd."""
        field = self.trunk_widths
        widths: tuple[int, ...] | None = getattr(self, field, None)
        flag = f"--{self.section}.{field}"
        self.require(bool(widths), "trunk", f"needs widths: set {flag}, e.g. {flag} 128 128")
        if self.trunk == "simba" and widths:
            ok = len(widths) > 1 and len(set(widths)) == 1
            self.require(ok, "trunk", f"needs two or more equal widths in {flag}")

    def require_counts(self, *fields: str) -> None:
        """Refuse numbers of things that cannot be built; None is a choice of its own."""
        for field in fields:
            value = getattr(self, field)
            ok = value is None or 1 <= value <= 65536
            self.require(ok, field, "must be from 1 to 65536")

    def require_positive(self, *fields: str) -> None:
        """Refuse scales that are no scales."""
        for field in fields:
            ok = 0 < getattr(self, field) < float("inf")
            self.require(ok, field, "must be positive and finite")

    def require_not_negative(self, *fields: str) -> None:
        """Refuse weights that are no weights."""
        for field in fields:
            ok = 0 <= getattr(self, field) < float("inf")
            self.require(ok, field, "must be finite and not negative")
