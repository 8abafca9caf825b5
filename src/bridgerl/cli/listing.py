"""The verb `list`."""

import json
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bridgerl.actors import ACTORS
from bridgerl.critics import CRITICS
from bridgerl.presets import PRESETS, environments
from bridgerl.settings.measures import KINDS
from bridgerl.studies import SCALES, STUDIES


@dataclass(frozen=True)
class Listing:
    """List actors, critics, presets, studies, measures, and environments with a preset.

    Example: bridgerl list
    """

    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        tables = {
            "actors": {k: (v.__doc__ or "").splitlines()[0] for k, v in ACTORS.items()},
            "critics": {k: (v.__doc__ or "").splitlines()[0] for k, v in CRITICS.items()},
            "presets": dict.fromkeys(PRESETS, ""),
            "studies": {k: v.title for k, v in STUDIES.items()},
            "risk": {f"{k}:{v.example:g}": v.says for k, v in KINDS.items()},
            "scales": {k: v.says for k, v in SCALES.items()},
            "environments": dict.fromkeys(environments(), ""),
        }
        if self.json:
            print(json.dumps({k: list(v) for k, v in tables.items()}))
            return 0
        grid = Table(show_header=False, box=None, padding=(0, 2))
        for overflow in ("fold", "fold", "ellipsis"):
            grid.add_column(overflow=overflow, min_width=9)
        for kind, rows in tables.items():
            for i, (name, text) in enumerate(rows.items()):
                grid.add_row("" if i else kind, name, text)
        Console(highlight=False).print(grid)
        return 0
