"""One run folder: the name of every file in it, and all that needs no tensors to read or write."""

import contextlib
import errno
import os
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bridgerl.config import RunConfig, decode, encode, identity
from bridgerl.errors import BridgeError, StorageFault, Unregistered, UserError, choose, printable
from bridgerl.presets import command_of
from bridgerl.runs import ending, findings, records, store
from bridgerl.runs.lock import RunLock
from bridgerl.runs.versions import versions
from bridgerl.settings.lengths import warmup_of

if TYPE_CHECKING:
    from bridgerl.types import EnvSpec

SIZES = {"observation size": int, "action size": int}
CORE = {"env": str, "seed": int, "steps": int, "actor": dict, "critic": dict, "train": dict}
"""What every release has written of a config."""
PARTS = ("ckpt", "replay", "tb")
"""Folders inside a run folder."""
NEAR = ("*/", "*/*/", "*/*/*/")
"""Where a run is looked for if the folder named is none."""

Which = Literal["best", "last"]


class RunFolder:
    """The files of one run; making one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.metrics_file = path / "metrics.jsonl"
        self.timing_file = path / "timing.jsonl"
        self.evaluations_file = path / "evaluations.npz"
        self.values_file = path / "values.json"
        self.calibration_file = path / "calibration.json"
        self.calibration_picture = path / "calibration.png"
        self.done_file, self.failures_file = path / "DONE", path / "run.log"
        self.lock_file = path / "run.lock"
        self.ckpt, self.replay, self.tensorboard = (path / part for part in PARTS)

    def check(self, config: RunConfig, spec: "EnvSpec") -> None:
        """Refuse a folder that cannot be written or belongs to another config; writes nothing."""
        try:
            path = next((p for p in (self.path, *self.path.parents) if p.exists()), None)
            if path and not path.is_dir():
                raise UserError(f"{path} is a file where a folder is needed; change --out")
            if path and not os.access(path, os.W_OK | os.X_OK):
                raise UserError(f"{path} is not writable; change --out")
            for part in PARTS:
                store.refuse_links(self.path / part, config.out)
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path} cannot be used: {error}; change --out") from None
        if self.config_file.exists():
            self._refuse_other(config, spec)
        elif self.checkpoints():
            raise StorageFault(f"{self.config_file} is missing, though there are checkpoints")

    def _refuse_other(self, config: RunConfig, spec: "EnvSpec") -> None:
        stored = self.stored()
        then = identity_of(self._decoded(stored["config"])) | stored["sizes"]
        now = identity_of(config) | dict(zip(SIZES, spec.sizes, strict=True))
        names = sorted(n for n in then | now if then.get(n) != now.get(n))
        changed = [f"{n} was {then.get(n)!r}, now {now.get(n)!r}" for n in names]
        if changed:
            what = f"{self.path} holds a run with another config ({'; '.join(changed)})"
            raise UserError(f"{what}; use the same flags to resume it, or --name for a new one")

    def open(self, config: RunConfig, spec: "EnvSpec") -> RunLock:
        """Make the folder, lock it, sweep leftovers, write the config of a new run."""
        try:
            for part in (self.ckpt, self.replay):
                store.make_folder(part)
            with contextlib.ExitStack() as on_failure:
                lock = self.lock()
                on_failure.callback(lock.release)
                self.check(config, spec)  # Another process may have made it its own meanwhile.
                for part in (self.path, self.ckpt, self.replay):
                    store.sweep(part)
                if not self.config_file.exists():
                    self.write_config(config, spec)
                on_failure.pop_all()
                return lock
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = f"{self.path} cannot be written: {error.strerror}"
            raise (StorageFault if full else UserError)(f"{what}; change --out") from None

    def lock(self) -> RunLock:
        return RunLock(self.lock_file)

    def write_config(self, config: RunConfig, spec: "EnvSpec") -> None:
        """Write config, sizes, versions and command, if that is not what is there."""
        sizes = dict(zip(SIZES, spec.sizes, strict=True))
        data = {"config": encode(config), "sizes": sizes, "versions": versions()}
        data |= {"length": self.length(config)} | ({"spaces": spec.spaces} if spec.spaces else {})
        with contextlib.suppress(UserError):  # A preset of one's own has no command.
            data["command"] = command_of(config)
        sealed = store.to_sealed_json(data)
        if not self.config_file.exists() or self.config_file.read_bytes() != sealed:
            store.publish_file(self.config_file, sealed)

    def stored(self) -> dict[str, Any]:
        """What `write_config` wrote, proven unchanged; older releases wrote no command."""
        path = self.config_file
        data = store.open_sealed_json(store.read_json_bytes(path), str(path))
        for part, types in {"config": CORE, "sizes": SIZES}.items():
            held = data.get(part)
            ok = isinstance(held, dict) and all(type(held.get(k)) is t for k, t in types.items())
            store.require_intact(ok, path, f"no {part} inside")
        store.require_intact(store.is_count(data.get("length", 0)), path, "no length inside")
        return data

    def length(self, config: RunConfig) -> int:
        """Steps the run was begun with, over which its schedules go; a new one has its config's."""
        if not os.path.isfile(self.config_file) or not self.checkpoints():
            return config.steps
        stored = self.stored()  # Earlier releases wrote down the latest steps alone.
        return stored.get("length", stored["config"]["steps"])

    def read_config(self) -> RunConfig:
        if not os.path.isfile(self.config_file):  # Unlike Path.is_file, False for impossible names.
            what = f"{self.path} is not a run folder: it has no {self.config_file.name}"
            with contextlib.suppress(OSError, ValueError):
                below = (p for d in NEAR for p in self.path.glob(d + self.config_file.name))
                what += "".join(f"; did you mean {p.parent}?" for p in islice(below, 1))
            raise UserError(what)
        return self._decoded(self.stored()["config"])

    def command(self) -> str:
        """What repeats it; worked out for runs that have not written it down, if it can be."""
        stored = self.stored()
        with contextlib.suppress(BridgeError):
            return stored.get("command") or command_of(self._decoded(stored["config"]))
        return ""

    def sizes(self) -> tuple[int, int]:
        """Numbers in an observation and in an action of the task it was trained on."""
        obs, action = (self.stored()["sizes"][name] for name in SIZES)
        return obs, action

    def spaces(self) -> dict[str, Any] | None:
        """The task's own spaces as JSON values; earlier releases wrote none."""
        return self.stored().get("spaces")

    def holds(self, config: RunConfig | dict[str, Any]) -> bool:
        """Whether this is the run of a config, given as such or encoded."""
        wanted = config if isinstance(config, dict) else store.plain(encode(config))
        pair = [self.stored()["config"], wanted]
        with contextlib.suppress(KeyError):  # Left open, it is the run's own.
            if wanted["train"]["warmup"] is None:
                own = warmup_of(pair[0]["train"]["warmup"], pair[0]["steps"])
                pair[1] = wanted | {"train": wanted["train"] | {"warmup": own}}
        with contextlib.suppress(KeyError):
            ours, theirs = map(identity, pair)
            if set(ours) == set(theirs):
                return ours == theirs
        # Another release wrote one of them: what is missing there has a default.
        ours, theirs = (identity_of(self._decoded(data)) for data in pair)
        return ours == theirs

    def _decoded(self, data: dict[str, Any]) -> RunConfig:
        try:
            return decode(data)
        except Unregistered as error:
            raise UserError(f"{self.path}: {error}") from None
        except (UserError, ValueError, TypeError, OverflowError) as error:
            raise StorageFault(f"{self.config_file} is damaged: {error}") from None

    def records(self) -> list[records.Record]:
        return records.read_metrics(store.read_log(self.metrics_file), str(self.metrics_file))

    def progress(self) -> int:
        """The last step that timing knows of; 0 if there is none."""
        return int(records.last_value(self.timing_file, "step") or 0)

    def last_return(self) -> float | None:
        return records.last_value(self.metrics_file, "eval/return_mean")

    def done(self) -> dict[str, Any] | None:
        """Last step and scores, once the run has ended."""
        if not os.path.lexists(self.done_file):
            return None
        done = ending.read_ending(self.done_file)
        if ending.OWNER in done:
            ok = done[ending.OWNER] == self._owner()
            store.require_intact(ok, self.done_file, "it is of another run")
        return done

    def write_done(self, figures: dict[str, Any]) -> None:
        """Write the last figures, sealed with all logs as they are now."""
        ending.write_ending(self.done_file, figures, self.logs(), self._owner())

    def forget_done(self) -> None:
        """Remove the figures of the end, because the run goes on."""
        try:
            self.done_file.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFault(f"{self.done_file} cannot be removed: {error.strerror}") from None

    def logs(self) -> tuple[Path, Path, Path]:
        """What grows while it trains, and is sealed when it has ended."""
        return self.metrics_file, self.timing_file, self.evaluations_file

    def changed_timing(self) -> str | None:
        """What is wrong with the timing of a run that had ended; a resume mends the other logs."""
        with contextlib.suppress(StorageFault):  # Or the figures are lost, and written anew.
            return ending.changed(self.timing_file, self.done() or {})
        return None

    def _owner(self) -> str:
        """What ties figures to this very run: a checksum of all that decides its trajectory."""
        if not os.path.lexists(self.config_file):
            return ""
        try:
            return store.sha256(store.to_json(identity(self.stored()["config"])))
        except (KeyError, TypeError) as error:
            raise StorageFault(f"{self.config_file} is damaged: {error!r}") from None

    def note_failure(self, text: str) -> None:
        """Keep a traceback, if the disk takes it."""
        data = "".join(f"{printable(line)}\n" for line in text.splitlines()).encode()
        path = self.failures_file
        with contextlib.suppress(StorageFault, OSError), store.open_owned(path, "ab") as file:
            file.write(data)

    def is_done(self, config: RunConfig | dict[str, Any]) -> bool:
        """Whether the very run of a config, given as such or encoded, ended as it should."""
        wanted = config if isinstance(config, dict) else encode(config)
        with contextlib.suppress(BridgeError, OSError):
            done = self.done()
            return done is not None and ending.is_whole(done, wanted) and self.holds(config)
        return False

    def checkpoint(self, kind: str, step: int) -> Path:
        """`step-000000050000` for a full checkpoint, `weights-...` for weights alone."""
        return self.ckpt / f"{kind}-{step:012d}"

    def checkpoints(self, kind: str = "step") -> list[tuple[int, Path]]:
        """Published checkpoints of one kind, oldest first, intact or not."""
        found = [p for p in self.ckpt.glob(f"{kind}-*") if re.fullmatch("[a-z]+-[0-9]{12}", p.name)]
        return sorted((step_of(path), path) for path in found)

    def weights(self, which: Which) -> Path:
        return choose("weights", which, {"best": self.best_weights, "last": self.last_weights})()

    def best_weights(self) -> Path:
        """The checkpoint with the best evaluation whose weights are on disk."""
        kept = dict(self.checkpoints("weights"))
        scores = {
            r["step"]: r["eval/return_mean"]
            for r in self.records()
            if r["kind"] == "eval" and r["step"] in kept
        }
        return kept[max(scores, key=scores.__getitem__)] if scores else self.last_weights()

    def last_weights(self) -> Path:
        """The newest full checkpoint."""
        if not (found := self.checkpoints()):
            raise UserError(f"{self.path} has no checkpoint yet")
        return found[-1][1]

    def write_values(self, which: Which, step: int, figures: dict[str, Any]) -> None:
        """Leave figures of the critic's values with the weights they are of."""
        findings.write_values(self.values_file, {"weights": which, "step": step, **figures})

    def values(self) -> dict[str, Any] | None:
        """What was left there last, and whether the run still has these weights."""
        if not self.values_file.is_file():
            return None
        found, current = findings.read_values(self.values_file), False
        with contextlib.suppress(BridgeError):  # Of a run without checkpoints, nothing is current.
            current = found["step"] == step_of(self.weights(found["weights"]))
        return found | {"current": current}

    def write_calibration(self, result: dict[str, Any]) -> None:
        """Leave what `bridgerl calibrate` found."""
        findings.write_calibration(self.calibration_file, result)

    def shifts(self) -> dict[str, list[float]]:
        """What corrects the quantiles of weights, by their step, as far as it was measured."""
        path = self.calibration_file
        return findings.read_shifts(path) if path.is_file() else {}


def step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    return int(checkpoint.name.rpartition("-")[2])


def identity_of(config: RunConfig) -> dict[str, Any]:
    """What decides a trajectory, flat by flag name, as it reads back from JSON."""
    return identity(store.plain(encode(config)))
