"""Every table and figure of the paper, and two of our own, as studies: a file each, a line here."""

from bridgerl.studies import (
    actors,
    anchor_weight,
    dbc_ablation,
    dbc_sizes,
    degradation,
    endpoint_bias,
    flow_steps,
    main,
    plug_and_play,
    schedules,
    training_time,
)
from bridgerl.studies.base import SCALES, Study

_FILES = (
    main,
    plug_and_play,
    flow_steps,
    anchor_weight,
    schedules,
    actors,
    training_time,
    degradation,
    endpoint_bias,
    dbc_ablation,
    dbc_sizes,
)
STUDIES: dict[str, Study] = {file.STUDY.name: file.STUDY for file in _FILES}

__all__ = ["SCALES", "STUDIES", "Study"]
