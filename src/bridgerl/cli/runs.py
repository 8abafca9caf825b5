"""The verbs of a run folder: evaluate, verify and compare."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bridgerl.errors import require, require_seeds
from bridgerl.runs.verify import compare, verify
from bridgerl.training.play import play
from bridgerl.truth.calibration import calibrate, describe

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Evaluate:
    """Play deterministic episodes with a run's best or last weights.

    Example: bridgerl evaluate runs/Hopper-v5/sac-dbc-lite/seed0 --episodes 20
    """

    run: Run
    """Run folder."""
    episodes: int = 10
    """Episodes to play."""
    weights: Literal["best", "last"] = "best"
    """Which weights to load."""
    seed: int = 0
    """Seed of the episodes."""
    values: bool = False
    """Compare the critic's values with returns of the policy they are meant for."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        require(self.episodes >= 1, "episodes", self.episodes, "must be at least 1")
        require_seeds("seed", self.seed)
        how = (self.run, self.weights, self.episodes, self.seed)
        result = play(*how) | ({"values": calibrate(*how)} if self.values else {})
        text = (
            f"{result['env']}: return {result['mean']:.1f} +- {result['std']:.1f} over "
            f"{self.episodes} episodes ({self.weights} weights, step {result['step']:,})"
        )
        text += f"\n{describe(result['values'])}" if self.values else ""
        print(json.dumps(result) if self.json else text)
        return 0


@dataclass(frozen=True)
class Verify:
    """Check every checksum of a run folder.

    Example: bridgerl verify runs/Hopper-v5/sac-dbc-lite/seed0
    """

    run: Run
    """Run folder."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when all is intact, 5 at the first damaged file."""
        checked = verify(self.run)
        print(json.dumps({"intact": checked}) if self.json else f"intact: {', '.join(checked)}")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare two runs byte for byte: metrics, weights, generators, replay.

    Example: bridgerl compare runs/a/seed0 runs/b/seed0
    """

    run_a: Run
    """Run folder."""
    run_b: Run
    """Run folder."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        """Exit 0 when equal, 1 when not."""
        difference = compare(self.run_a, self.run_b)
        facts = {"equal": difference is None, "difference": difference}
        text = "equal" if difference is None else f"different: {difference}"
        print(json.dumps(facts) if self.json else text)
        return 0 if difference is None else 1
