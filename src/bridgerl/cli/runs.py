"""The verbs of a run folder: evaluate, calibrate, verify and compare."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from bridgerl.cli.output import check_file, counted, progress, tell_not_kept, writing
from bridgerl.errors import UserError, printable, require, require_seeds
from bridgerl.plots import check_plotting
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.trust import import_module
from bridgerl.runs.verify import compare, verify
from bridgerl.settings.measures import parse
from bridgerl.show.film import ENDINGS, check_film, film
from bridgerl.show.screen import check_window
from bridgerl.show.watch import watch
from bridgerl.training.play import play
from bridgerl.truth import calibration, tails
from bridgerl.truth.values import describe, value_run

Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
TrustEnv = Annotated[str | None, tyro.conf.arg(metavar="MODULE")]


@dataclass(frozen=True)
class Evaluate:
    """Play deterministic episodes with a run's best or last weights.

    Example: bridgerl evaluate runs/Hopper-v5/sac-dbc-lite/seed0 --episodes 100 --risk cvar:0.1
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
    trust_env: TrustEnv = None
    """Module to import for the environment, if the run is of one like my_module:MyEnv-v0."""
    risk: str | None = None
    """A measure of the episodes' returns to print with their quantiles, e.g. cvar:0.1."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Film the first episode and its returns: .mp4, .gif, .webp, or .png for a filmstrip."""
    video_seconds: float | None = None
    """Film no more than so many seconds of play."""
    watch: bool = False
    """Show the episodes in a window while they are played."""
    force: bool = False
    """Write over a video of that name."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        require(self.episodes >= 1, "episodes", self.episodes, "must be at least 1")
        require_seeds("seed", self.seed)
        self._check_pictures()
        if self.trust_env is not None:
            import_module(self.trust_env)
        measure = None if self.risk is None else parse(self.risk)
        how = (self.run, self.weights, self.episodes, self.seed)
        if self.watch:
            watch(*how)
        filmed = None if self.video is None else self._film(self.video)
        result = play(*how)
        fault, values = None, None
        if self.values:
            try:
                values = value_run(*how)
            except UserError as error:  # The episodes were played, and are told all the same.
                fault = error
            result["values"] = values
        if measure is not None:
            result["risk"] = tails.describe_returns(result["returns"], measure, self.seed)
        text = (
            f"{result['env']}: return {result['mean']:.1f} +- {result['std']:.1f} over "
            f"{counted(self.episodes, 'episode')} ({self.weights} weights, step {result['step']:,})"
        )
        text += f"\n{tails.say(result['risk'], self.episodes)}" if measure is not None else ""
        text += f"\n{describe(values)}" if values else ""
        if filmed is not None:
            result["video"] = filmed
            text += f"\n{self.video}: {filmed['frames']:,} frames of {filmed['steps']:,} steps"
        print(json.dumps(result) if self.json else text)
        if fault is not None:
            raise fault
        if values and not os.access(self.run, os.W_OK):
            tell_not_kept(self.run)
        return 0

    def _check_pictures(self) -> None:
        ok = self.video_seconds is None or 0 < self.video_seconds < float("inf")
        require(ok, "video_seconds", self.video_seconds, "must be positive and finite")
        alone = self.video_seconds is not None and self.video is None
        require(not alone, "video_seconds", self.video_seconds, "belongs to --video FILE")
        if self.video is not None:
            check_file("--video", self.video, ENDINGS, force=self.force)
            check_film(self.video)
        if self.watch:
            check_window()

    def _film(self, path: Path) -> dict[str, Any]:
        with progress(100, "filming") as bar, writing(path.parent):
            return film(
                self.run,
                path,
                self.weights,
                self.seed,
                seconds=self.video_seconds,
                tick=bar.reach,
            )


@dataclass(frozen=True)
class Calibrate:
    """Ask whether a run's return distribution is right: episodes go on many times from one state.

    Learned quantiles are held against returns of the policy that the critic's targets follow.
    Example: bridgerl calibrate runs/Hopper-v5/sac-dbc-lite/seed0 --recalibrate
    """

    run: Run
    """Run folder."""
    states: int = 20
    """States, each of an episode of its own."""
    returns: int = 64
    """Returns that are played from each."""
    recalibrate: bool = False
    """Keep a correction fitted on half of the states; the figures are of the other half."""
    weights: Literal["best", "last"] = "best"
    """Which weights to load."""
    seed: int = 0
    """Seed of the episodes."""
    plot: bool = True
    """Draw calibration.png into the run folder."""
    trust_env: TrustEnv = None
    """Module to import for the environment, if the run is of one like my_module:MyEnv-v0."""
    json: bool = False
    """Print JSON."""

    def __call__(self) -> int:
        least = 4 if self.recalibrate else 1
        why = ", half of them to fit" if self.recalibrate else ""
        require(
            least <= self.states <= 10_000,
            "states",
            self.states,
            f"must be from {least} to 10000{why}",
        )
        require(2 <= self.returns <= 10_000, "returns", self.returns, "must be from 2 to 10000")
        require_seeds("seed", self.seed)
        folder, writable = RunFolder(self.run), os.access(self.run, os.W_OK)
        if self.plot and writable:
            check_plotting()
        if self.recalibrate and self.run.is_dir() and not writable:
            raise UserError(f"{self.run} is not writable, so no correction can be kept")
        if self.trust_env is not None:
            import_module(self.trust_env)
        with progress(2 * self.states, "calibrating") as bar:
            result = calibration.calibrate(
                self.run,
                self.weights,
                (self.states, self.returns),
                self.seed,
                recalibrate=self.recalibrate,
                tick=bar.tick,
            )
        if self.json:
            print(json.dumps({k: v for k, v in result.items() if k != "shown"}))
        else:
            self._show(result)
        if not writable:
            tell_not_kept(self.run)
            return 0
        with writing(self.run):
            # No picture of other figures may stand beside these.
            folder.calibration_picture.unlink(missing_ok=True)
            if self.plot:
                calibration.draw_calibration(result, folder.calibration_picture)
        return 0

    def _show(self, result: dict[str, Any]) -> None:
        columns = {"as trained": result["figures"]}
        columns |= {"recalibrated": result["after"]} if "after" in result else {}
        table = Table(title=f"{result['weights']} weights, step {result['step']:,}")
        table.add_column("")
        for name in columns:
            table.add_column(name, justify="right")
        rows = {"value": "value", "return": "return", "return's deviation": "deviation"}
        for label, key in rows.items():
            table.add_row(label, *(f"{figures[key]:.1f}" for figures in columns.values()))
        shares = {"W1": "w1", "W1 of a perfect critic": "w1_chance", "CRPS": "crps_excess"}
        shares |= {f"W2, part of the {key}": key for key in ("location", "scale", "shape")}
        certain = result["figures"]["certain"]
        for label, key in shares.items():
            style = ".3g" if certain else ".1%"
            table.add_row(label, *(f"{figures[key]:{style}}" for figures in columns.values()))
        for share in result["figures"]["coverage"]:
            cells = (f"{figures['coverage'][share]:.0%}" for figures in columns.values())
            table.add_row(f"{float(share):.0%} interval covers", *cells)
        Console(highlight=False).print(table)
        unit = "units of the return" if certain else "% of the return's standard deviation"
        print(f"distances in {unit}; a perfect critic has one because returns are few")
        for name, figures in columns.items():
            print(f"{name}: {calibration.say(figures)}")
        if self.plot and os.access(self.run, os.W_OK):
            print(f"picture: {RunFolder(self.run).calibration_picture}")


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
        text = "equal" if difference is None else f"different: {printable(difference)}"
        print(json.dumps(facts) if self.json else text)
        return 0 if difference is None else 1
