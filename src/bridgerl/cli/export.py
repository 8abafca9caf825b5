"""The verb `export`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bridgerl.cli.output import check_file, writing
from bridgerl.cli.runs import Run, TrustEnv
from bridgerl.runs.trust import import_module
from bridgerl.ship.export import CHECKED, SUFFIX, Format, export

Levels = Annotated[tuple[float, ...], tyro.conf.arg(metavar="LEVEL...")]


@dataclass(frozen=True)
class Export:
    """Write a run's policy to one file that plays without this library.

    It takes observations as the environment gives them and returns actions within its bounds.
    Example: bridgerl export runs/Hopper-v5/sac-dbc-lite/seed0 --quantiles 0.05 0.5 0.95
    """

    run: Run
    """Run folder."""
    format: Format = "onnx"
    """ONNX, or TorchScript for programs that have torch."""
    out: Path | None = None
    """File to write; None means policy.onnx or policy.pt here."""
    quantiles: Levels = ()
    """Also give the return's quantiles at these levels, or at so many: 0.05 0.5 0.95, or 32."""
    weights: Literal["best", "last"] = "best"
    """Which weights to load."""
    force: bool = False
    """Write over a file of that name."""
    trust_env: TrustEnv = None
    """Module to import for the environment, if the run is of one like my_module:MyEnv-v0."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        path = self.out or Path(f"policy{SUFFIX[self.format]}")
        check_file("--out", path, {SUFFIX[self.format]}, force=self.force)
        if self.trust_env is not None:
            import_module(self.trust_env)
        with writing(path.parent):
            made = export(self.run, path, self.format, levels=self.quantiles, weights=self.weights)
        text = (
            f"{path}: {made['env']}, {self.weights} weights, step {made['step']:,}, "
            f"{made['bytes'] / 1e6:.2f} MB; {made['difference']:.0e} from torch "
            f"in the median of {CHECKED} observations"
        )
        print(json.dumps(made) if self.json else text)
        return 0
