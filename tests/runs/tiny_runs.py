"""Whole runs in a second, in processes that may be killed, and what they must be equal in."""

import signal
from pathlib import Path

from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare, verify
from warm_process import Ended, WarmProcess

# Small enough that the ring of 64 rows wraps, segments are sealed, shared and pruned.
SEGMENT_ROWS = 16
FLAGS = {
    "--env": "toy_envs:Point-v0",
    "--steps": "160",
    "--train.warmup": "100",
    "--train.batch-size": "16",
    "--train.buffer-size": "64",
    "--actor.hidden": "8",
    "--critic.hidden": "8",
    "--eval.every": "50",
    "--eval.episodes": "2",
    "--log.every": "20",
    "--save.every": "40",
}


class Runs:
    """Training commands in processes of their own, with small replay segments."""

    def __init__(
        self, warm: WarmProcess, out: Path, actor: str = "sac", critic: str = "cdq"
    ) -> None:
        self.warm = warm
        self.out = out
        self.pair = {"--actor": actor, "--critic": critic}

    def command(self, **changed: str) -> list[str]:
        """The command of this run; `save_every="10"` changes a flag."""
        flags = {**FLAGS, "--out": str(self.out), **self.pair}
        flags |= {f"--{k.replace('__', '.').replace('_', '-')}": v for k, v in changed.items()}
        return ["train", *(w for flag in flags.items() for w in flag if w), "--log.no-tensorboard"]

    def train(self, failpoint: str = "", **changed: str) -> Ended:
        """Run the command to its end, or to its failpoint."""
        command = self.command(**changed)
        return self.warm.run(*command, failpoint=failpoint, segment_rows=SEGMENT_ROWS)

    def kill(self, failpoint: str, **changed: str) -> None:
        """Run the command until kill -9 hits at the failpoint; what is left must be intact."""
        ended = self.train(f"{failpoint}:kill", **changed)
        assert ended.code == -signal.SIGKILL, f"{failpoint} was never reached: {ended}"
        if (self.folder / "config.json").exists():
            verify(self.folder)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return next(iter(self.out.glob("*/*/seed*")), self.out / "none")


def difference(run: Path, reference: Path) -> str | None:
    """What is not as in the reference, or damaged, or left over; None if all is well."""
    if found := compare(run, reference):
        return found
    if RunFolder(run).checkpoint("step", int(FLAGS["--steps"])).name not in verify(run):
        return "the last checkpoint is missing"
    if leftovers := [p for p in run.rglob("*") if p.name.startswith((".tmp-", ".trash-"))]:
        return f"{leftovers[0].name} is left over"
    same = [(r / "evaluations.npz").read_bytes() for r in (run, reference)]
    return None if same[0] == same[1] else "evaluations.npz differs"


def assert_same(run: Path, reference: Path) -> None:
    """Byte-equal to the reference, intact, and without leftovers."""
    assert difference(run, reference) is None
