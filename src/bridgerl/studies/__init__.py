"""Every table and figure of the paper, and eight of our own, as studies: a file and a line each."""

from bridgerl.studies import (
    actors,
    anchor_weight,
    dbc_ablation,
    dbc_sizes,
    degradation,
    endpoint_bias,
    endpoint_discount,
    evaluation,
    flow_steps,
    gamble,
    label_bias,
    lite_ablation,
    main,
    plug_and_play,
    risk,
    schedules,
    training_time,
)
from bridgerl.studies.base import SCALES, Study

_TRAININGS = (
    main,
    plug_and_play,
    flow_steps,
    anchor_weight,
    schedules,
    actors,
    training_time,
    lite_ablation,
    risk,
)
_KNOWN_TRUTHS = (
    degradation,
    endpoint_bias,
    endpoint_discount,
    label_bias,
    dbc_ablation,
    dbc_sizes,
    evaluation,
    gamble,
)
STUDIES: dict[str, Study] = {f.STUDY.name: f.STUDY for f in (*_TRAININGS, *_KNOWN_TRUTHS)}

__all__ = ["SCALES", "STUDIES", "Study"]
