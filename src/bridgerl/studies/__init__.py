"""Every table and figure of the paper as a study; a new one is a file and a line here."""

from bridgerl.studies import (
    actors,
    anchor_weight,
    curves,
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
    curves,
    degradation,
    endpoint_bias,
)
STUDIES: dict[str, Study] = {file.STUDY.name: file.STUDY for file in _FILES}

__all__ = ["SCALES", "STUDIES", "Study"]
