"""The numbers the paper prints, each once: mean return of three seeds' best, standard deviation.

A cell names the tables it stands in, by the labels of the paper's source.
"""

from typing import NamedTuple

from bridgerl.presets import PAPER_TASKS

TASKS: tuple[str, ...] = PAPER_TASKS
SEEDS = 3

MAIN, FULL, PLUG = "tab:main:experiments", "tab:full_experiments", "tab:plugin_play"
STEPS, STEPS_FULL = "tab:ablation:timesteps", "tab:ablation:timesteps_full"
WEIGHT, WEIGHT_FULL = "tab:ablation:w2", "tab:ablation:weight_full"
SCHEDULE, TIME, ENDPOINT = "tab:ablation:schedule", "tab:training_time", "tab:bias_analysis"
CURVES, DEGRADATION = "fig:training_curves", "fig:fm_vs_DBC"

# The tasks that a table shows, where these are not all five.
COLUMNS = {
    PLUG: ("Humanoid-v5", "Walker2d-v5"),
    STEPS: ("Ant-v5", "Humanoid-v5", "Walker2d-v5"),
    WEIGHT: ("Ant-v5", "Humanoid-v5", "Walker2d-v5"),
}


class Score(NamedTuple):
    """A printed cell."""

    mean: float
    std: float


class Row(NamedTuple):
    """A setting's scores in the order of `TASKS`, and the tables that print them."""

    tables: tuple[str, ...]
    scores: tuple[Score, ...]

    def on(self, task: str) -> Score | None:
        return dict(zip(TASKS, self.scores, strict=True)).get(task)


def _row(tables: tuple[str, ...], *cells: str) -> Row:
    return Row(tables, tuple(Score(*map(float, cell.split(" +- "))) for cell in cells))


# fmt: off
RETURNS: dict[str, Row] = {
    "qvpo+cdq": _row((FULL, PLUG), "6373.2 +- 65.0", "12103.9 +- 422.3", "3582.0 +- 48.1", "5068.3 +- 28.5", "4986.3 +- 279.6"),
    "sac+cdq": _row((FULL, PLUG, MAIN), "6121.8 +- 412.7", "12776.4 +- 285.2", "3630.5 +- 50.0", "5207.1 +- 94.1", "4854.4 +- 372.8"),
    "sac+dsac": _row((FULL, MAIN), "2013.2 +- 679.9", "12974.0 +- 191.7", "3522.9 +- 23.5", "3442.6 +- 216.8", "3297.4 +- 1248.3"),
    "sac+iqn": _row((FULL, MAIN), "3487.4 +- 798.5", "10930.2 +- 152.7", "3301.8 +- 360.1", "4729.2 +- 580.5", "4766.5 +- 255.7"),
    "sac+tqc": _row((FULL, MAIN), "6342.6 +- 294.7", "13996.2 +- 191.7", "3704.6 +- 94.5", "5269.0 +- 113.8", "5802.6 +- 234.2"),
    "sac+vdrl": _row((FULL, MAIN), "3850.4 +- 987.1", "4284.8 +- 478.2", "1052.7 +- 20.4", "4886.9 +- 228.8", "2533.9 +- 302.4"),
    "sac+vf": _row((FULL, MAIN), "2650.3 +- 163.8", "8199.5 +- 1533.3", "3310.4 +- 24.6", "4950.3 +- 60.3", "2626.4 +- 1387.4"),
    "td3+cdq": _row((FULL, PLUG), "4257.0 +- 1711.6", "11679.0 +- 629.8", "3596.2 +- 38.8", "5067.8 +- 33.7", "5093.7 +- 439.8"),
    "sac+dbc": _row((FULL, PLUG, MAIN, STEPS, STEPS_FULL, WEIGHT, WEIGHT_FULL, SCHEDULE), "6501.4 +- 84.3", "13120.2 +- 162.4", "3732.5 +- 83.2", "5906.7 +- 198.6", "6138.2 +- 38.1"),
    "qvpo+dbc": _row((FULL, PLUG), "6633.8 +- 71.2", "13182.1 +- 252.4", "3721.3 +- 116.6", "5426.3 +- 9.0", "5448.1 +- 193.8"),
    "td3+dbc": _row((FULL, PLUG), "5306.0 +- 1303.6", "13787.8 +- 346.5", "3685.7 +- 68.2", "5343.2 +- 199.3", "6335.5 +- 269.4"),
    "M = 1": _row((STEPS, STEPS_FULL), "5150.4 +- 2226.3", "12821.5 +- 26.4", "3748.1 +- 46.8", "5524.7 +- 132.7", "5809.8 +- 308.6"),
    "M = 10": _row((STEPS, STEPS_FULL), "5946.6 +- 379.7", "13066.6 +- 203.0", "3607.9 +- 30.5", "4848.7 +- 88.1", "6014.3 +- 561.6"),
    "w = 0": _row((WEIGHT, WEIGHT_FULL), "4828.3 +- 1439.0", "12990.1 +- 719.7", "3646.3 +- 84.9", "5807.3 +- 175.8", "5562.9 +- 423.2"),
    "w = 0.02": _row((WEIGHT, WEIGHT_FULL), "3947.3 +- 2151.8", "13165.8 +- 301.2", "3702.6 +- 86.5", "5743.4 +- 301.1", "6097.8 +- 375.1"),
    "w = 0.1": _row((WEIGHT, WEIGHT_FULL), "5716.2 +- 741.3", "12775.5 +- 127.8", "3591.1 +- 79.2", "5589.0 +- 50.3", "5974.6 +- 603.2"),
    "no quantile loss": _row((WEIGHT, WEIGHT_FULL), "2517.1 +- 2464.7", "12393.1 +- 314.9", "3244.0 +- 497.5", "3751.2 +- 321.1", "3859.3 +- 1828.7"),
    "cosine": _row((SCHEDULE,), "5358.3 +- 1628.9", "12538.9 +- 266.1", "3748.6 +- 144.4", "5623.8 +- 368.7", "6326.6 +- 751.9"),
    "linear": _row((SCHEDULE,), "6544.5 +- 113.9", "13004.6 +- 174.7", "3728.6 +- 50.9", "5594.4 +- 305.7", "6116.7 +- 517.3"),
}
# fmt: on

# Cells that show another setting's score: TD3's as the paper's text says, the cosine
# schedule's by mistake, once with a deviation of its own.
OTHER_ROWS: dict[tuple[str, str, str], tuple[str, float | None]] = {
    (MAIN, "sac+dbc", "HalfCheetah-v5"): ("td3+dbc", None),
    (STEPS_FULL, "sac+dbc", "Hopper-v5"): ("cosine", None),
    (WEIGHT_FULL, "sac+dbc", "Hopper-v5"): ("cosine", 144.0),
}

# Hours that a million steps take.
HOURS: dict[str, tuple[float, ...]] = {
    "sac+cdq": (3.0, 3.0, 3.0, 3.5, 3.0),
    "sac+tqc": (3.1, 3.0, 3.3, 3.5, 3.3),
    "sac+iqn": (4.0, 4.0, 4.0, 3.8, 4.0),
    "sac+dbc": (7.0, 7.0, 7.0, 8.0, 7.0),
}

# Endpoint error of Euler's rule in per cent, by steps M, for the three schedules.
EULER: dict[int, tuple[float, float, float]] = {
    1: (14.91, 21.44, 21.44),
    2: (9.48, 6.93, 18.75),
    5: (4.29, 5.41, 6.85),
    10: (2.23, 3.07, 3.42),
    20: (1.13, 1.62, 1.71),
    50: (0.46, 0.67, 0.68),
    100: (0.23, 0.34, 0.34),
    1000: (0.02, 0.03, 0.03),
}


def printed(table: str, setting: str, task: str) -> Score | None:
    """What a table prints for a setting on a task; None where it has no such cell."""
    row = RETURNS.get(setting)
    if row is None or table not in row.tables or task not in COLUMNS.get(table, TASKS):
        return None
    shown, std = OTHER_ROWS.get((table, setting, task), (setting, None))
    score = RETURNS[shown].on(task)
    return score if score is None or std is None else score._replace(std=std)
