"""Studies as data: what they run, what the paper prints, what it claims."""

import json
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bridgerl.bridge.schedule import SCHEDULES
from bridgerl.cli import main as cli
from bridgerl.cli.entrants import read_entrant
from bridgerl.config import RunConfig, decode, decode_fields
from bridgerl.errors import Busy, StorageFault, UserError
from bridgerl.presets import command_of, resolve
from bridgerl.runs import store
from bridgerl.runs.folder import RunFolder
from bridgerl.runs.result import RESULT, Result, ResultCell, read_result, write_result
from bridgerl.studies import SCALES, STUDIES, paper
from bridgerl.studies.base import LeagueStudy, Setting, TrainingStudy
from bridgerl.studies.jobs import job_from, league_cell, toy_job, train_job
from bridgerl.studies.manifest import Manifest, read_manifest, write_manifest
from bridgerl.studies.run import work
from bridgerl.studies.run.pictures import draw
from bridgerl.studies.run.work import run_job
from bridgerl.truth.gambles import best_action
from bridgerl.truth.settings import EndpointConfig, ToyConfig, read_problems
from bridgerl.types import EnvSpec

OUT = Path("studies")
TRAINING = [s for s in STUDIES.values() if isinstance(s, TrainingStudy)]
REPEATED = [study for study in TRAINING if study.tables]
LEAGUES = [s for s in STUDIES.values() if isinstance(s, LeagueStudy)]


def typed(command: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """The config that a typed command trains."""
    seen: list[RunConfig] = []
    monkeypatch.setattr("bridgerl.cli.train.train", lambda config, quiet: seen.append(config))
    assert cli.main(shlex.split(command)[1:]) == 0
    return seen[0]


@pytest.mark.parametrize("study", TRAINING, ids=lambda s: s.name)
def test_the_command_shown_for_a_run_trains_that_run(
    study: TrainingStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scale in SCALES:
        for job in study.jobs(scale, OUT, seeds=(7,)):
            assert typed(job.command, monkeypatch) == decode(job.work)


def test_a_command_names_every_setting_that_differs_from_its_preset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = resolve("Hopper-v5", "td3", "dbc", "paper").changed(
        critic={"lr": 1e-4, "grad_clip": None, "stratified": True, "hidden": (32, 16)},
        log={"tensorboard": False},
        out=Path("a b"),
        name="odd",
        seed=3,
    )
    assert typed(command_of(config), monkeypatch) == config


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda s: s.name)
def test_jobs_survive_the_journey_to_another_process(study) -> None:
    for scale in SCALES:
        jobs = study.jobs(scale, OUT)
        assert [job_from(json.loads(json.dumps(job.to_json()))) for job in jobs] == jobs
        assert len({job.folder for job in jobs}) == len(jobs)
        assert len({job.name for job in jobs}) == len(jobs)


def test_equal_settings_of_different_studies_share_their_run() -> None:
    folders = {
        name: {str(job.folder) for job in STUDIES[name].jobs("paper", OUT)}
        for name in ("main", "flow-steps", "anchor-weight", "schedules", "actors")
    }
    assert folders["main"] < folders["actors"]
    dbc = {f for f in folders["main"] if "sac-dbc-paper/" in f}
    assert len(dbc) == 15
    assert all(dbc <= folders[name] for name in ("flow-steps", "anchor-weight", "schedules"))


def test_a_folder_belongs_to_one_config_only() -> None:
    by_folder: dict[tuple[str, Path], dict] = {}
    for study in TRAINING:
        for scale in SCALES:
            for job in study.jobs(scale, OUT):
                assert by_folder.setdefault((scale, job.folder), job.work) == job.work


@pytest.mark.parametrize("study", TRAINING + LEAGUES, ids=lambda s: s.name)
def test_claims_speak_of_settings_and_tasks_that_are_run(
    study: TrainingStudy | LeagueStudy,
) -> None:
    keys = {setting.key for setting in study.settings}
    for claim in study.claims:
        assert claim.text
        for setting, task in claim.cells():
            assert setting in keys
            assert task in study.tasks


@pytest.mark.parametrize("study", REPEATED, ids=lambda s: s.name)
def test_every_setting_stands_in_the_paper(study: TrainingStudy) -> None:
    assert {setting.key for setting in study.settings} <= set(paper.RETURNS)


def test_the_paper_scale_covers_what_the_paper_ran() -> None:
    runs = {job.folder for study in REPEATED for job in study.jobs("paper", OUT)}
    settings = {folder.parent.name for folder in runs}
    assert len(settings) == 11 + 2 + 4 + 2
    assert len(runs) == len(settings) * 5 * 3


def test_smoke_and_cpu_keep_at_least_one_task_of_every_study() -> None:
    for study in TRAINING:
        for scale in SCALES.values():
            assert 1 <= len(scale.choose(study.tasks)) <= scale.most_tasks


def test_tables_have_the_cells_the_paper_prints() -> None:
    cells = Counter(
        table
        for table in (
            *paper.COLUMNS,
            paper.MAIN,
            paper.FULL,
            paper.STEPS_FULL,
            paper.WEIGHT_FULL,
            paper.SCHEDULE,
        )
        for setting in paper.RETURNS
        for task in paper.TASKS
        if paper.printed(table, setting, task)
    )
    expected = {"MAIN": 35, "FULL": 55, "PLUG": 12, "STEPS": 9, "STEPS_FULL": 15}
    expected |= {"WEIGHT": 15, "WEIGHT_FULL": 25, "SCHEDULE": 15}
    assert cells == {getattr(paper, name): n for name, n in expected.items()}


def test_every_score_of_the_paper_is_written_down_once() -> None:
    scores = [score for row in paper.RETURNS.values() for score in row.scores]
    assert len(scores) == len(set(scores)) == 19 * 5
    text = Path(paper.__file__).read_text()
    assert all(text.count(f"{s.mean} +- {s.std}") == 1 for s in scores)


def test_cells_with_another_settings_score_are_shown_as_printed() -> None:
    assert paper.printed(paper.MAIN, "sac+dbc", "HalfCheetah-v5") == (13787.8, 346.5)
    assert paper.printed(paper.FULL, "sac+dbc", "HalfCheetah-v5") == (13120.2, 162.4)
    assert paper.printed(paper.STEPS_FULL, "sac+dbc", "Hopper-v5") == (3748.6, 144.4)
    assert paper.printed(paper.WEIGHT_FULL, "sac+dbc", "Hopper-v5") == (3748.6, 144.0)
    assert paper.printed(paper.STEPS, "sac+dbc", "Hopper-v5") is None
    assert paper.printed(paper.MAIN, "M = 1", "Ant-v5") is None


def test_a_setting_with_a_flag_that_its_critic_lacks_is_refused() -> None:
    setting = Setting("bad", "sac", "cdq", {"bridge_steps": 2})
    with pytest.raises(UserError, match="critic has no setting 'bridge_steps'"):
        setting.config("Hopper-v5", SCALES["smoke"])


@pytest.mark.parametrize("study", LEAGUES, ids=lambda s: s.name)
def test_every_variant_of_a_league_is_another_critic(study: LeagueStudy) -> None:
    cells = {job.setting: league_cell(job) for job in study.jobs("cpu", OUT, (0,))}
    assert len(cells) == len(study.settings)
    assert len({cell.config for cell in cells.values()}) == len(cells)
    assert read_problems(study.tasks) == study.tasks


def test_the_command_shown_for_a_cell_runs_that_cell() -> None:
    for study in LEAGUES:
        for job in study.jobs("cpu", OUT, (3,)):
            words = shlex.split(job.command)
            entrant = read_entrant(words[words.index("--critics") + 1])
            cell = league_cell(job)
            assert (entrant.label, entrant.critic) == (job.setting, cell.critic)
            assert entrant.config == cell.config


def test_a_manifest_can_be_read_without_torch(tmp_path: Path) -> None:
    for name, study in STUDIES.items():
        jobs = {job.folder: job for job in study.jobs("smoke", tmp_path, (0,))}
        folder = tmp_path / "smoke" / name
        folder.mkdir(parents=True)
        write_manifest(folder, Manifest(name, "smoke", (0,), 0.0, jobs))
        listed = read_manifest(folder).jobs.values()
        assert [job.command for job in listed] == [job.command for job in jobs.values()]
        code = f"""if True:
            import sys
            from pathlib import Path
            from bridgerl.studies.manifest import read_manifest
            assert read_manifest(Path({str(folder)!r})).jobs
            assert "torch" not in sys.modules"""
        if name == "main":
            subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_finished_run_of_another_config_is_not_this_studys(tmp_path: Path) -> None:
    job = STUDIES["main"].jobs("smoke", tmp_path, (0,))[-1]
    config = decode(job.work)
    job.folder.mkdir(parents=True)
    RunFolder(config.folder).write_config(config, EnvSpec("Hopper-v5", 11, 3))
    (job.folder / "DONE").write_text('{"step": 400}')
    assert job.done()
    other = config.changed(critic={"lr": 1e-5})
    assert not train_job(job.setting, other).done()


def test_a_toy_of_other_settings_is_not_this_studys(tmp_path: Path) -> None:
    job = STUDIES["degradation"].jobs("smoke", tmp_path, (0,))[0]
    run_job(job)
    assert job.done()
    config = decode_fields(ToyConfig, job.work, "toy")
    assert not toy_job(job.setting, replace(config, fit_steps=61), job.folder).done()
    path = job.folder / RESULT
    path.write_text(path.read_text().replace('"cells"', '"sells"'))
    assert not job.done()


def test_a_toy_that_another_study_has_under_way_is_waited_for(tmp_path: Path) -> None:
    job = STUDIES["degradation"].jobs("smoke", tmp_path, (0,))[0]
    job.folder.mkdir(parents=True)
    lock = RunFolder(job.folder).lock()
    with pytest.raises(Busy):
        run_job(job)
    lock.release()
    run_job(job)
    assert job.done()
    before = (job.folder / RESULT).stat().st_mtime_ns
    run_job(job)
    assert (job.folder / RESULT).stat().st_mtime_ns == before


def test_toys_that_are_done_share_one_picture(tmp_path: Path) -> None:
    picture = tmp_path / "toy.png"
    jobs = STUDIES["degradation"].jobs("smoke", tmp_path, (0,))
    draw(jobs, tmp_path)
    assert not picture.exists()
    sizes = []
    for job in jobs:
        run_job(job)
        draw(jobs, tmp_path)
        sizes.append(picture.stat().st_size)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sizes[1] > sizes[0]


def test_a_toys_result_has_its_last_scores_and_a_point_of_its_curve_per_backup(
    tmp_path: Path,
) -> None:
    job = STUDIES["degradation"].jobs("smoke", tmp_path, (1,))[-1]
    run_job(job)
    result = read_result(job.folder / RESULT)
    (cell,) = result.cells
    rows = result.data["runs"][0]["iterations"]
    assert (cell.setting, cell.task, cell.seed) == ("dbc", job.task, 1)
    assert cell.scores == {key: rows[-1][key] for key in STUDIES["degradation"].measures}
    assert cell.curve == [[k, rows[k]["w1_share"]] for k in range(4)]
    assert set(cell.scores) == set(STUDIES["degradation"].measures)
    assert "torch" in result.versions


def test_a_leagues_result_has_its_distances_and_its_quantiles(tmp_path: Path) -> None:
    study = STUDIES["dbc-ablation"]
    jobs = [job for job in study.jobs("smoke", tmp_path, (0,)) if job.setting in ("lite", "label")]
    for job in jobs[:2]:
        run_job(job)
    (cell,) = read_result(jobs[0].folder / RESULT).cells
    assert set(study.measures) <= set(cell.scores)
    assert [x for x, _ in cell.curve] == list(range(101))
    draw(jobs, tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"distances.png", "cost.png"}


def test_a_gambles_result_has_its_action_and_what_actions_are_worth(tmp_path: Path) -> None:
    study = STUDIES["gamble"]
    jobs = study.jobs("smoke", tmp_path, (0,))
    assert len({job.folder for job in jobs}) == len(jobs) == 3 * 6 * 6
    done = [job for job in jobs if job.name in ("cvar:0.1/td3+dsac/seed0", "mean/sac+dbc/seed0")]
    for job in done:
        run_job(job)
        (cell,) = read_result(job.folder / RESULT).cells
        miss, action = (cell.scores[key] for key in ("miss", "action"))
        assert action is not None
        assert miss == abs(action - best_action(job.task))
        assert [x for x, _ in cell.curve] == [i / 20 for i in range(21)]
    draw(jobs, tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"gamble.png"}


def test_a_gamble_with_numbers_that_are_none_has_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = STUDIES["gamble"].jobs("smoke", tmp_path, (0,))[0]
    worth = [float("nan"), *[1.0] * 19, float("inf")]
    found = {"action": float("nan"), "best": 1.0, "miss": float("nan"), "worth": worth}
    monkeypatch.setattr(work, "run_gamble", lambda _: found)
    run_job(job)
    (cell,) = read_result(job.folder / RESULT).cells
    assert cell.scores == {"miss": None, "action": None}
    assert [x for x, _ in cell.curve] == [i / 20 for i in range(1, 20)]
    draw([job], tmp_path)


def test_the_endpoint_table_is_exact_and_agrees_with_the_papers(tmp_path: Path) -> None:
    study = STUDIES["endpoint-bias"]
    (job,) = study.jobs("paper", tmp_path)
    run_job(job)
    cells = {(c.setting, c.task): c for c in read_result(job.folder / RESULT).cells}
    assert len(cells) == 3 * 3 * len(paper.EULER)
    for key, printed in study.paper_cells().items():
        assert cells[key].exact
        assert cells[key].scores["percent"] == pytest.approx(printed.mean, abs=0.0051)
    curves = {c.setting: c.curve for c in cells.values() if c.curve}
    assert len(curves) == 6
    assert all([m for m, _ in curve] == list(paper.EULER) for curve in curves.values())
    for claim in study.claims:
        assert all(key in cells for key in claim.cells())


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / RESULT
    write_result(path, Result({"kind": "toy"}, [ResultCell("a", "b", 0, {"x": 1.0})], {}, {}))
    assert read_result(path).cells[0].scores == {"x": 1.0}
    whole = path.read_bytes()
    odd = [{}, {"job": 1, "cells": [], "data": {}, "versions": {}}]
    odd += [{"job": {}, "cells": [{"setting": "a"}], "data": {}, "versions": {}}]
    for damaged in (whole[:-9], b"null", *map(store.to_sealed_json, odd)):
        path.write_bytes(damaged)
        with pytest.raises(StorageFault, match=RESULT):
            read_result(path)


def test_the_table_of_errors_has_the_columns_of_the_papers() -> None:
    assert tuple(paper.EULER) == EndpointConfig.steps
    assert tuple(SCHEDULES) == EndpointConfig.schedules


def test_progress_is_that_of_the_last_whole_line(tmp_path: Path) -> None:
    run, log = RunFolder(tmp_path), tmp_path / "timing.jsonl"
    assert run.progress() == 0
    log.write_bytes(b'{"step": 1000}\n{"step": 2000}\n{"step": 30')
    assert run.progress() == 2000
    log.write_bytes(b"torn")
    assert run.progress() == 0
