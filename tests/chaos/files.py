"""Files that are damaged by accident, and disks that are full."""

import shutil
from pathlib import Path

from bridgerl.errors import StorageFault
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.verify import compare, verify
from chaos.attempt import DISK, Attempt, Silent, Untried, assert_ended, assert_refused, expect_same
from mutations import Mutation, mutations
from report.damaged import damage, make_tree
from runs.small_disk import NoDisk, enlarge, small_disk
from runs.tiny_runs import Runs

BATCH = 50
"""Mutations of an attempt at a report."""


def damage_reports(attempt: Attempt) -> None:
    """Damage finished runs and a study: no report says something else without a word."""
    tree = attempt.place.workbench / "tree"
    if not tree.exists():  # A copy: a killed attempt leaves it damaged.
        shutil.copytree(attempt.place.once("tree", make_tree), tree)
    done = damage(tree, attempt.rng.getrandbits(32), BATCH)
    attempt.row.recovered += done.harmless
    attempt.row.refused += done.named
    attempt.row.silent += done.silent


def damage_runs(attempt: Attempt) -> None:
    """Damage an unfinished run: it ends with the same bits, or the damage is named."""
    twin = attempt.place.twin()
    kept = attempt.place.once("unfinished", lambda out: _leave_unfinished(attempt, out))
    shutil.copytree(kept, attempt.folder, dirs_exist_ok=True)
    runs = Runs(attempt.place.warm, attempt.folder)
    done: list[Mutation] = []
    for change, data in mutations(runs.folder, attempt.rng.getrandbits(32), 3):
        change.path.unlink() if data is None else change.path.write_bytes(data)
        done.append(change)
        if data is None or attempt.rng.random() < 0.5:
            break
    ended = runs.train()
    if ended.code != 0:
        assert_refused(ended, 2, 5)
        attempt.row.refused += 1
        return
    assert_ended(ended)
    what = ", ".join(map(str, done))
    if named := _damage_of(runs.folder):  # Of weights that resuming does not need, e.g. the best.
        assert any(change.path.name in named for change in done), named
        if found := compare(runs.folder, twin.folder):
            raise Silent(f"{what}: {found}")
        attempt.row.refused += 1
        return
    expect_same(runs.folder, twin, what)
    attempt.row.recovered += 1


def _damage_of(run: Path) -> str:
    """What verify finds."""
    try:
        verify(run)
    except StorageFault as fault:
        return str(fault)
    return ""


def _leave_unfinished(attempt: Attempt, out: Path) -> None:
    Runs(attempt.place.warm, out).kill("train.step:139")


def fill_disks(attempt: Attempt) -> None:
    """Train on a disk that runs out of bytes or of files, make space, go on."""
    twin, disk = attempt.place.twin(), attempt.folder / DISK
    runs = Runs(attempt.place.warm, disk)
    few_files = f"size=50m,nr_inodes={attempt.rng.randint(4, 50)}"
    size = attempt.rng.choice([f"size={4 * attempt.rng.randint(1, 60)}k", few_files])
    try:
        with small_disk(disk, size):
            ended = runs.train()
            if ended.code != 0:
                assert_refused(ended, 5)
            if RunFolder(runs.folder).config_file.exists():
                verify(runs.folder)
            enlarge(disk)
            assert_ended(runs.train())
            expect_same(runs.folder, twin, size)
    except NoDisk as reason:
        raise Untried(str(reason)) from None
    attempt.row.recovered += 1
