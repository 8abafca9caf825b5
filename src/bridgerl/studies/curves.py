"""Learning curves of the main comparison: the same runs, shown over time."""

from dataclasses import replace

from bridgerl.studies import main, paper

STUDY = replace(
    main.STUDY,
    name="curves",
    title="Learning curves of seven critics under SAC",
    tables=(paper.CURVES,),
    claims=(),
)
