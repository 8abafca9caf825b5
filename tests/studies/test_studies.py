"""Studies as data: what they run, what the paper prints, what it claims."""

import json
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bridgerl.cli import main as cli
from bridgerl.runs import store
from bridgerl.config import RunConfig
from bridgerl.errors import Busy
from bridgerl.truth.endpoint import PAPER_STEPS
from bridgerl.presets import resolve
from bridgerl.runs.folder import RunFolder
from bridgerl.studies import SCALES, STUDIES, paper
from bridgerl.studies.base import Setting, TrainingStudy
from bridgerl.studies.jobs import (
    ToyJob,
    TrainJob,
    command_of,
    last_step,
    read_job,
    write_job,
)
from bridgerl.types import EnvSpec

OUT = Path("studies")
TRAINING = [s for s in STUDIES.values() if isinstance(s, TrainingStudy)]


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
            assert isinstance(job, TrainJob)
            assert typed(job.command, monkeypatch) == job.config


def test_a_command_names_every_setting_that_differs_from_its_preset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = resolve("Hopper-v5", "td3", "dbc", "paper")
    critic = replace(config.critic, lr=1e-4, grad_clip=None, stratified=True, hidden=(32, 16))
    config = replace(config, critic=critic, out=Path("a b"), name="odd", seed=3)
    config = replace(config, log=replace(config.log, tensorboard=False))
    assert typed(command_of(config), monkeypatch) == config


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda s: s.name)
def test_jobs_survive_the_journey_to_another_process(study) -> None:
    for scale in SCALES:
        jobs = study.jobs(scale, OUT)
        assert [read_job(write_job(job)) for job in jobs] == jobs
        assert len({job.folder for job in jobs}) == len(jobs)
        assert len({job.name for job in jobs}) == len(jobs)


def test_equal_settings_of_different_studies_share_their_run() -> None:
    folders = {
        name: {str(job.folder) for job in STUDIES[name].jobs("paper", OUT)}
        for name in ("main", "curves", "flow-steps", "anchor-weight", "schedules", "actors")
    }
    assert folders["curves"] == folders["main"] < folders["actors"]
    dbc = {f for f in folders["main"] if "sac-dbc-paper/" in f}
    assert len(dbc) == 15
    assert all(dbc <= folders[name] for name in ("flow-steps", "anchor-weight", "schedules"))


def test_a_folder_belongs_to_one_config_only() -> None:
    by_folder: dict[tuple[str, Path], RunConfig] = {}
    for study in TRAINING:
        for scale in SCALES:
            for job in study.jobs(scale, OUT):
                assert isinstance(job, TrainJob)
                assert by_folder.setdefault((scale, job.folder), job.config) == job.config


@pytest.mark.parametrize("study", TRAINING, ids=lambda s: s.name)
def test_claims_speak_of_settings_and_tasks_that_are_run(study: TrainingStudy) -> None:
    keys = {setting.key for setting in study.settings}
    for claim in study.claims:
        assert claim.text
        for setting, task in claim.cells():
            assert setting in keys
            assert task in study.tasks


@pytest.mark.parametrize("study", TRAINING, ids=lambda s: s.name)
def test_every_setting_stands_in_the_paper(study: TrainingStudy) -> None:
    assert {setting.key for setting in study.settings} <= set(paper.RETURNS)


def test_the_paper_scale_covers_what_the_paper_ran() -> None:
    runs = {job.folder for study in TRAINING for job in study.jobs("paper", OUT)}
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
    from bridgerl.errors import UserError

    with pytest.raises(UserError, match="bridge-steps"):
        Setting("bad", "sac+cdq --bridge-steps 2").config("Hopper-v5", SCALES["smoke"], 0, OUT)


def test_a_finished_run_of_another_config_is_not_this_studys(tmp_path: Path) -> None:
    job = STUDIES["main"].jobs("smoke", tmp_path, (0,))[-1]
    assert isinstance(job, TrainJob)
    job.folder.mkdir(parents=True)
    RunFolder(job.config.folder).write_config(job.config, EnvSpec("Hopper-v5", 11, 3))
    (job.folder / "DONE").write_text('{"step": 400}')
    assert job.done()
    other = replace(job, config=replace(job.config, critic=replace(job.config.critic, lr=1e-5)))
    assert not other.done()


def test_a_toy_of_other_settings_is_not_this_studys(tmp_path: Path) -> None:
    job = STUDIES["degradation"].jobs("smoke", tmp_path, (0,))[0]
    job.run()
    assert job.done()
    assert isinstance(job, ToyJob)
    assert not replace(job, toy=replace(job.toy, fit_steps=61)).done()
    path = job.folder / "toy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"runs": []}))
    assert not job.done()


def test_a_toy_that_another_study_has_under_way_is_waited_for(tmp_path: Path) -> None:
    job = STUDIES["degradation"].jobs("smoke", tmp_path, (0,))[0]
    job.folder.mkdir(parents=True)
    lock = store.RunLock(job.folder)
    with pytest.raises(Busy):
        job.run()
    lock.release()
    job.run()
    assert job.done()
    before = (job.folder / "toy.json").stat().st_mtime_ns
    job.run()
    assert (job.folder / "toy.json").stat().st_mtime_ns == before


def test_toys_that_are_done_share_one_picture(tmp_path: Path) -> None:
    study, picture = STUDIES["degradation"], tmp_path / "toy.png"
    jobs = study.jobs("smoke", tmp_path, (0,))
    study.draw(jobs, tmp_path)
    assert not picture.exists()
    sizes = []
    for job in jobs:
        job.run()
        study.draw(jobs, tmp_path)
        sizes.append(picture.stat().st_size)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sizes[1] > sizes[0]


def test_the_table_of_errors_has_the_columns_of_the_papers() -> None:
    assert tuple(paper.EULER) == PAPER_STEPS


def test_progress_is_that_of_the_last_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "timing.jsonl"
    assert last_step(log) == 0
    log.write_bytes(b'{"step": 1000}\n{"step": 2000}\n{"step": 30')
    assert last_step(log) == 2000
    log.write_bytes(b"torn")
    assert last_step(log) == 0
