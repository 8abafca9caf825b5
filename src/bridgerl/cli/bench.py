"""The verb bench."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from bridgerl.bench.clock import Setting
from bridgerl.bench.table import contenders, describe, draw_parts, run_bench, show
from bridgerl.cli.entrants import read_pair
from bridgerl.cli.output import make_folder, progress, writing
from bridgerl.envs.task import Task
from bridgerl.errors import require, require_some
from bridgerl.plots import check_plotting
from bridgerl.runs import store

PAIRS = (
    *("sac+cdq", "td3+cdq", "sac+dsac", "sac+iqn", "sac+tqc", "sac+vf", "sac+vdrl", "sac+dbc"),
    "tqc of the paper = sac+tqc --preset paper",
)


@dataclass(frozen=True)
class Bench:
    """Measure what a step costs, part by part, beside other libraries when they are installed.

    A pair may carry a label and its critic's flags: --pairs "big = sac+dbc --preset paper".
    Example: bridgerl bench --pairs sac+cdq sac+dbc --threads 1 2
    """

    env: str = "HalfCheetah-v5"
    """Environment to step."""
    pairs: tuple[str, ...] = PAIRS
    """Actors and critics, each pair quoted with its flags; ratios are to the first."""
    batch: int = 256
    """Transitions per update."""
    threads: tuple[int, ...] = (1,)
    """CPU threads, each number in turn."""
    seconds: float = 4.0
    """How long a measurement lasts."""
    repeats: int = 3
    """Turns that everybody gets; medians are reported."""
    peers: Path = Path(sys.executable)
    """Python interpreter that has stable-baselines3, sb3-contrib or sbx."""
    out: Path = Path("runs/bench")
    """Folder for results and pictures."""
    plot: bool = True
    """Draw pictures."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        require(self.batch >= 1, "batch", self.batch, "must be at least 1")
        require(self.repeats >= 1, "repeats", self.repeats, "must be at least 1")
        require(0 < self.seconds < 3600, "seconds", self.seconds, "must be in (0, 3600)")
        require_some("pairs", self.pairs)
        require_some("threads", self.threads)
        require(min(self.threads) >= 1, "threads", self.threads, "must be at least 1")
        listed = [read_pair(text, self.env) for text in self.pairs]
        require_some("pairs", tuple(label for label, _ in listed))
        settings = [Setting(self.env, self.batch, n, self.seconds) for n in self.threads]
        for setting in settings:
            _ = setting.cores
        if self.plot:
            check_plotting()
        Task(self.env, 0).close()
        rivals = contenders(dict(listed), self.peers)
        make_folder(self.out)
        with progress(len(rivals) * len(settings) * self.repeats, "measuring") as bar:
            rows = run_bench(rivals, settings, self.repeats, bar.tick)
        result = {"rows": rows, "versions": describe()}
        with writing(self.out):
            store.publish_file(self.out / "bench.json", store.to_json(result))
            if self.plot:
                draw_parts(rows, self.out / "bench.png")
        print(json.dumps(result)) if self.json else show(rows)
        return 0
