"""Kill real runs with kill -9 at random moments, resume them, and compare with unbroken ones.

Example: python tests/runs/kill_runs.py --kills 20 --env Hopper-v5 --env Humanoid-v5 --steps 1500
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare, verify

# Where a kill hurts most; each is hit at a random visit.
AIMED = (
    "write.tensors.safetensors.half",
    "write.replay-tail.safetensors.half",
    "write.manifest.json.half",
    "ckpt.before_manifest",
    "ckpt.after_manifest",
    "ckpt.after_rename",
    "prune.mid",
    "metrics.mid_line",
    "eval.mid",
    "resume.loaded",
    "log.truncated",
)

STARTING = 3.0
"""Seconds of importing, in which a kill proves little."""


class Failed(Exception):
    """The promise was broken; the message says how."""


@dataclass
class Tally:
    """What happened to one environment's run."""

    env: str
    random_kills: int = 0
    aimed_kills: int = 0
    in_a_row: int = 0
    """Kills that hit before the run had written a new checkpoint."""
    redone: list[int] = field(default_factory=list)
    """Steps a resumed run had to repeat at most: from its checkpoint to the last log line."""
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        return self.random_kills + self.aimed_kills


def main() -> int:
    """Run the trial on every environment and print a table; 1 when any differs."""
    args = _arguments()
    draws = random.Random(args.seed)
    rows, failed = [], False
    share = [args.kills // len(args.env)] * len(args.env)
    share[0] += args.kills - sum(share)
    with tempfile.TemporaryDirectory(prefix="kill-runs-") as scratch:
        for env, kills in zip(args.env, share, strict=True):
            tally = Tally(env)
            started = time.monotonic()
            try:
                verdict = _trial(args, Path(scratch) / env, tally, kills, draws)
            except Failed as error:
                verdict, failed = f"FAILED: {error}", True
            tally.seconds = time.monotonic() - started
            rows.append((tally, verdict))
    header = ("env", "kills", "random", "aimed", "in a row", "most redone", "seconds", "verdict")
    print(" | ".join(header))
    for t, verdict in rows:
        most = max(t.redone, default=0)
        figures = (t.kills, t.random_kills, t.aimed_kills, t.in_a_row, most, f"{t.seconds:.0f}")
        print(" | ".join([t.env, *map(str, figures), verdict]))
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", action="append", required=True)
    parser.add_argument("--kills", type=int, default=20, help="over all environments")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--actor", default="sac")
    parser.add_argument("--critic", default="cdq")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    return parser.parse_args()


def _command(args: argparse.Namespace, env: str, out: Path) -> list[str]:
    steps = args.steps
    flags = {
        "--env": env,
        "--actor": args.actor,
        "--critic": args.critic,
        "--out": str(out),
        "--steps": steps,
        "--train.warmup": max(1, steps // 10),
        "--train.batch-size": 64,
        "--train.buffer-size": max(64, steps // 2),
        "--actor.hidden": 64,
        "--critic.hidden": 64,
        "--eval.every": max(1, steps // 5),
        "--eval.episodes": 1,
        "--log.every": max(1, steps // 30),
        "--save.every": max(1, steps // 15),
    }
    words = [str(w) for flag in flags.items() for w in flag]
    return [sys.executable, "-m", "bridgerl", "train", *words, "--log.no-tensorboard"]


def _environment(failpoint: str = "") -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "BRIDGERL_FAILPOINT": failpoint}


def _finish(command: list[str]) -> None:
    """Let a run come to its end."""
    ended = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise Failed(f"exit {ended.returncode}: {ended.stderr.strip()}")


def _trial(
    args: argparse.Namespace, scratch: Path, tally: Tally, kills: int, draws: random.Random
) -> str:
    """An unbroken run, a run killed so many times, and their comparison."""
    started = time.monotonic()
    _finish(_command(args, tally.env, scratch / "unbroken"))
    length = time.monotonic() - started
    runs = 0
    while tally.kills < kills:
        runs += 1
        out = scratch / f"broken-{runs}"
        broken = _command(args, tally.env, out)
        while tally.kills < kills:
            aimed = draws.random() < 0.4
            point = f"{draws.choice(AIMED)}:{draws.randint(1, 3)}:kill" if aimed else ""
            # Some come right after the start, so that a run is hit twice before it gets anywhere.
            delay = draws.uniform(STARTING, length) if draws.random() < 0.7 else STARTING
            if not _kill(broken, point, delay, out, tally):
                break
        _finish(broken)
        difference = compare(_folder(scratch / "unbroken"), _folder(out))
        if difference is not None:
            raise Failed(f"different after {tally.kills} kills: {difference}")
        verify(_folder(out))
    return f"equal ({runs} runs)"


def _kill(command: list[str], point: str, delay: float, out: Path, tally: Tally) -> bool:
    """Start or resume a run and kill it; False when it came to its end before."""
    save_every = int(command[command.index("--save.every") + 1])
    before = _newest_step(out)
    process = subprocess.Popen(
        command, env=_environment(point), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        _, err = process.communicate(timeout=600 if point else delay)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
    if process.returncode == 0:
        return False
    if process.returncode != -signal.SIGKILL:
        raise Failed(f"exit {process.returncode}: {err.strip()}")
    tally.aimed_kills += bool(point)
    tally.random_kills += not point
    after = _newest_step(out)
    tally.in_a_row += before == after
    if after < before:
        raise Failed(f"the checkpoint of step {before} is lost, {after} is the newest")
    folder = _folder(out)
    if (folder / "config.json").exists():
        verify(folder)
        tally.redone.append(_last_logged(folder) - after)
        if tally.redone[-1] > save_every:
            raise Failed(f"{tally.redone[-1]} steps are lost, checkpoints come every {save_every}")
    print(f"{tally.env}: killed {point or f'after {delay:.1f} s'}, checkpoint {after}", flush=True)
    return True


def _folder(out: Path) -> Path:
    return next(iter(out.glob("*/*/seed0")), out / "none")


def _newest_step(out: Path) -> int:
    return max([step for step, _ in RunFolder(_folder(out)).checkpoints()], default=0)


def _last_logged(folder: Path) -> int:
    run = RunFolder(folder)
    records = run.records() if run.metrics_file.exists() else []
    return max([r["step"] for r in records], default=0)


if __name__ == "__main__":
    sys.exit(main())
