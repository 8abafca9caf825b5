"""All faults, and the share of the time that each gets."""

from collections.abc import Callable
from typing import NamedTuple

from chaos.attempt import Attempt
from chaos.files import damage_reports, damage_runs, fill_disks
from chaos.kills import kill_runs, kill_studies
from chaos.processes import jump_clocks, race_writers, stop_processes
from chaos.strangers import forge_folders, train_on_faulty_envs, type_bad_lines


class Fault(NamedTuple):
    """A kind of attempt."""

    name: str
    share: float
    attempt: Callable[[Attempt], None]
    cost: float = 0.0
    """Seconds that one attempt takes: a dear one waits until its share allows for it."""


FAULTS = [
    Fault("kills of runs, all pairs", 0.32, kill_runs),
    Fault("racing writers", 0.05, race_writers),
    Fault("full disks", 0.04, fill_disks),
    Fault("clock jumps", 0.04, jump_clocks),
    Fault("stopped processes", 0.05, stop_processes),
    Fault("damaged files, reported", 0.20, damage_reports),
    Fault("damaged files, resumed", 0.06, damage_runs),
    Fault("forged folders", 0.04, forge_folders),
    Fault("bad command lines", 0.07, type_bad_lines),
    Fault("faulty environments", 0.03, train_on_faulty_envs),
    Fault("kills of studies", 0.10, kill_studies, cost=25.0),
]
