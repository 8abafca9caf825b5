"""The study of risk: its settings, and its scores from stored episodes."""

from pathlib import Path

import numpy as np
import pytest

from bridgerl.report.load import _tails
from bridgerl.runs.records import late_episodes
from bridgerl.studies import STUDIES


def test_each_critic_is_tried_neutral_and_averse_but_for_the_point_valued_one(
    tmp_path: Path,
) -> None:
    jobs = STUDIES["risk"].jobs("cpu", tmp_path)
    risks = {(j.work["critic"]["type"], j.work["actor"]["risk"]) for j in jobs}
    know = {(c, r) for c in ("dbc", "iqn", "tqc") for r in ("mean", "cvar:0.1")}
    assert risks == know | {("cdq", "mean")}
    assert {j.seed for j in jobs} == set(range(5))
    assert len({j.folder for j in jobs}) == len(jobs)
    assert all(j.task.startswith("Risky/") for j in jobs)


def test_tails_are_of_all_episodes_of_the_last_ten_evaluations() -> None:
    episodes = np.arange(240.0).reshape(12, 20)
    log = [{"kind": "eval", "step": k, "eval/returns": list(row)} for k, row in enumerate(episodes)]
    late = late_episodes(log)
    assert late.tolist() == list(range(40, 240))
    scores = _tails(log)
    assert scores == pytest.approx({"late": late.mean(), "late_cvar_10": late[:20].mean()})
