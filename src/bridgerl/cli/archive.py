"""The verbs `pack` and `unpack`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bridgerl.cli.output import make_folder, writing
from bridgerl.errors import UserError
from bridgerl.runs.archive import pack, unpack

Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
Archive = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE.zip")]


@dataclass(frozen=True)
class Pack:
    """Keep the scores of runs, without weights and replay, in one small file.

    `bridgerl report FILE.zip` shows them; `unpack` and `reproduce` go on with what is missing.
    Example: bridgerl pack studies/cpu evidence/cpu.zip
    """

    folder: Folder
    """Folder of runs, studies or races."""
    archive: Archive
    """File to write."""

    def __call__(self) -> int:
        if not os.path.isdir(self.folder):
            raise UserError(f"{self.folder} is not a folder")
        if self.archive.suffix != ".zip":
            raise UserError(f"{self.archive} must end in .zip")
        make_folder(self.archive.parent)
        with writing(self.archive):
            count = pack(self.folder, self.archive)
        print(f"{count} files, {self.archive.stat().st_size / 1e6:.2f} MB: {self.archive}")
        return 0


@dataclass(frozen=True)
class Unpack:
    """Put packed scores back into a folder, so that a study can go on with its other runs.

    Example: bridgerl unpack evidence/cpu.zip studies/cpu
    """

    archive: Archive
    """File that `pack` wrote."""
    folder: Folder
    """Folder to put them in."""

    def __call__(self) -> int:
        make_folder(self.folder)
        with writing(self.folder):
            count = unpack(self.archive, self.folder)
        print(f"{count} files: {self.folder}")
        return 0
