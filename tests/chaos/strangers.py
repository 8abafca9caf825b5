"""What strangers hand over: forged run folders, bad command lines, faulty environments."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

from bridgerl.cli.main import VERBS
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import verify
from chaos.attempt import Attempt, Silent, assert_ended, assert_refused
from chaos.kills import PAIRS
from cli.bad_lines import TABLE, TOY, snapshot, words
from envs.env_faults import FAULTS
from runs.forgeries import (
    FORGED_SIZES,
    LOOKS,
    forge_tensor_name,
    forge_value,
    is_untouched,
    make_victim,
    plant_payload,
)
from runs.strangers import COMMAND, copy_run, forge_config, make_run
from runs.tiny_runs import Runs
from warm_process import Ended


def forge_folders(attempt: Attempt) -> None:
    """A forged run folder runs no code, reaches no other file and prints no escapes."""
    original = attempt.place.once("original", make_run)
    run = copy_run(next(original.glob("*/*/seed0")), attempt.folder / "out")
    forge = [forge_module, forge_link, forge_name, forge_size, forge_number][attempt.number % 5]
    forge(attempt, run)


def _settle(attempt: Attempt, ended: Ended) -> None:
    """Either it went well or it was refused."""
    if ended.code == 0:
        assert_ended(ended)
        attempt.row.recovered += 1
    else:
        assert_refused(ended, 2, 5)
        attempt.row.refused += 1


def forge_module(attempt: Attempt, run: Path) -> None:
    """A config that names a module of the stranger's."""
    plant_payload(run, attempt.folder)
    places = {"RUN": str(run), "OUT": str(attempt.folder / "out")}
    look = attempt.rng.choice([name for name in LOOKS if name != "reproduce"])
    ended = attempt.run(*(places.get(word, word) for word in LOOKS[look]))
    if (attempt.folder / "canary").exists():
        raise Silent(f"{look} ran the module that a folder names")
    _settle(attempt, ended)


def forge_link(attempt: Attempt, run: Path) -> None:
    """A part of the run is a link to somebody's folder or file."""
    victim = make_victim(attempt.folder / "victim")
    part = attempt.rng.choice(["ckpt", "replay", "tb", ".", "run.log", "run.lock", "metrics.jsonl"])
    place = run / part
    if os.path.lexists(place):
        place.rename(attempt.folder / "moved")
    place.symlink_to(victim / "precious" if place.suffix else victim)
    ended = attempt.run(*COMMAND, str(attempt.folder / "out"))
    if not is_untouched(victim):
        raise Silent(f"{part} is a link, and what it leads to was changed")
    _settle(attempt, ended)


def forge_name(attempt: Attempt, run: Path) -> None:
    """A tensor whose name has line breaks and escapes."""
    letters = [chr(attempt.rng.choice((7, 10, 13, 27, 127, 155, 0x202E, 65))) for _ in range(20)]
    forge_tensor_name(run, "agent." + "".join(letters))
    ended = attempt.run(*COMMAND, str(attempt.folder / "out"))
    assert_refused(ended, 5)
    log = RunFolder(run).path / "run.log"
    if not log.read_text().replace("\n", "").isprintable():
        raise Silent("escapes of a tensor's name are in run.log")
    attempt.row.refused += 1


def forge_size(attempt: Attempt, run: Path) -> None:
    """Sizes that ask for all the memory there is."""
    kind = attempt.rng.choice(sorted(FORGED_SIZES))
    forge_config(run, FORGED_SIZES[kind])
    assert_refused(attempt.run("evaluate", str(run), "--episodes", "1"), 2, 5)
    attempt.row.refused += 1


def forge_number(attempt: Attempt, run: Path) -> None:
    """Odd values in the files that a report reads, with right checksums."""
    name = attempt.rng.choice(["config.json", "metrics.jsonl", "timing.jsonl", "DONE"])
    (run / name).write_bytes(forge_value(run / name, attempt.rng))
    ended = attempt.run("report", str(attempt.folder / "out"))
    if not ended.out.replace("\n", "").isprintable():
        raise Silent(f"escapes of {name} were printed")
    _settle(attempt, ended)


SMALL = f"train {TOY} --quiet --steps 3 --train.warmup 1 --train.batch-size 2 "
SMALL += "--train.buffer-size 8 --actor.hidden 4 --critic.hidden 4 --eval.every 3 "
SMALL += "--eval.episodes 1 --seed 0 --name mine --train.discount 0.9 --actor.lr 0.01 "
SMALL += "--critic.polyak 0.1 --save.keep 1 --out there --train.device cpu"
ODD = ["", "nan", "inf", "-inf", "-1", "0", "x", "1e3", "0x7", "1_0", "\u0663", "3.0", "\x1b[31m"]
ODD += ["--", "-", "None", "true", "[]", "{}", "\U0001f41f", " 3", "3 ", "9" * 400, "\u202e3"]
ODD += ["a\0b", "../x", "/proc/no", "%s", "a\nb", "\udcff", "$HOME", "~x", "*", "1e400", "1e-400"]


def type_bad_lines(attempt: Attempt) -> None:
    """A command line that makes no sense is refused in one line and changes nothing."""
    (attempt.folder / "file").write_text("precious")
    (attempt.folder / "empty").mkdir()
    if attempt.number % 2:
        line, fragment = TABLE[attempt.number // 2 % len(TABLE)]
        typed = words(line)
    else:
        typed, fragment = spoil(SMALL.split(), attempt.rng), ""
    before = snapshot(attempt.folder)
    ended = attempt.run(*typed)
    if ended.code == 0 and not fragment:  # It made sense after all.
        assert_ended(ended)
        attempt.row.recovered += 1
        return
    assert_refused(ended, 2)
    assert fragment in ended.err, (typed, ended)
    assert ended.out == "", (typed, ended)
    if snapshot(attempt.folder) != before:
        raise Silent(f"{typed} was refused but changed files")
    attempt.row.refused += 1


def spoil(typed: Sequence[str], rng: random.Random) -> list[str]:
    """Type a command wrongly in one way."""
    flags = [at for at, word in enumerate(typed) if word.startswith("--") and word != "--quiet"]
    at = rng.choice(flags)
    flag, value = typed[at], typed[at + 1]
    letter = rng.randrange(2, len(flag))
    match rng.randrange(8):
        case 0:
            changed = [flag[:letter] + flag[letter + 1 :], value]
        case 1:
            changed = [flag[:letter] + flag[letter] + flag[letter:], value]
        case 2:
            changed = [flag]
        case 3:
            changed = [flag, value, flag, value]
        case 4:
            changed = [rng.choice(ODD), flag, value]
        case 5:
            changed = [f"{flag}={rng.choice(ODD)}"]
        case _:
            changed = [flag, rng.choice(ODD)]
    verb = rng.choice(sorted(VERBS)) if rng.random() < 0.1 else typed[0]
    return [verb, *typed[1:at], *changed, *typed[at + 2 :]]


HANGING = ["Hangs", "HangsInReset", "Late", "Stubborn"]
FAULTY = [name for name, _, _ in FAULTS] + HANGING


def train_on_faulty_envs(attempt: Attempt) -> None:
    """A faulty environment is named in one line, and what was learnt before it is kept."""
    name = FAULTY[attempt.number % len(FAULTY)]
    runs = Runs(attempt.place.warm, attempt.folder, *attempt.rng.choice(PAIRS))
    changed = {"env": f"faulty_envs:{name}-v0", "seed": str(attempt.rng.randrange(1000))}
    if name in HANGING:
        changed["env_timeout"] = "0.2"
    ended = runs.train(**changed)
    assert_refused(ended, 3)
    assert f"faulty_envs:{name}-v0: " in ended.err, ended
    verify(runs.folder)
    attempt.row.refused += 1
