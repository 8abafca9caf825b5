"""The loop itself: what is stored, when learning happens, what stops it, what a person sees."""

import contextlib
import dataclasses
import json
import os
import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from bridgerl import resolve, train
from bridgerl.agent import Agent
from bridgerl.config import RunConfig
from bridgerl.critics.cdq import CDQ, CDQConfig
from bridgerl.envs.task import Task
from bridgerl.errors import NumericFault, UserError
from bridgerl.runs import checkpoint
from bridgerl.runs.folder import RunFolder
from bridgerl.streams import Streams
from bridgerl.training import health, process
from bridgerl.training.play import load_agent
from bridgerl.training.state import RunState
from bridgerl.training.threads import probe_threads
from bridgerl.types import Batch, EnvSpec, Metrics
from conftest import TINY, Run, environment, finished, started


def _config(out: Path, env: str = "toy_envs:Point-v0", **train_values: Any) -> RunConfig:
    base = resolve(env, "sac", "cdq", "lite")
    values = {"warmup": 100, "batch_size": 32, "buffer_size": 5000} | train_values
    return dataclasses.replace(
        base,
        out=out,
        steps=400,
        actor=dataclasses.replace(base.actor, hidden=(16,)),
        critic=dataclasses.replace(base.critic, hidden=(16,)),
        train=dataclasses.replace(base.train, **values),
        eval=dataclasses.replace(base.eval, every=200, episodes=2),
        log=dataclasses.replace(base.log, every=50, tensorboard=False),
        save=dataclasses.replace(base.save, every=200),
    )


def _rows(run: Path) -> np.ndarray:
    stretches = checkpoint.replay_rows(RunFolder(run), RunFolder(run).last_weights(), 10**9)
    return torch.cat([rows for _, rows in stretches]).numpy()


def _records(run: Path, kind: str) -> list[dict[str, Any]]:
    return [r for r in RunFolder(run).records() if r["kind"] == kind]


def test_truncation_bootstraps_and_termination_does_not(tmp_path: Path) -> None:
    run = train(_config(tmp_path), quiet=True)
    rows = _rows(run)
    obs, discount, next_obs = rows[:, :3], rows[:, 6], rows[:, 7:]
    ends = [r["step"] - 1 for r in _records(run, "episode")]
    distance = np.linalg.norm(next_obs[:, :2], axis=1)
    terminated = [e for e in ends if distance[e] > 4]
    truncated = [e for e in ends if distance[e] <= 4]
    assert truncated
    assert terminated
    assert discount[truncated] == pytest.approx(0.99)
    assert not discount[terminated].any()
    # Rows chain within an episode; at its end next_obs is the last one seen, not the reset one.
    chained = (next_obs[:-1] == obs[1:]).all(1)
    assert not chained[[e for e in ends if e < len(chained)]].any()
    assert chained.sum() == len(chained) - len([e for e in ends if e < len(chained)])


def test_learning_starts_after_warmup_with_one_update_per_step(tmp_path: Path) -> None:
    run = train(_config(tmp_path), quiet=True)
    tensors = checkpoint.load_weights(RunFolder(run).last_weights())
    assert int(tensors["agent._extra_state"]) == 400 - 100
    first, *rest = _records(run, "train")
    assert "critic/loss" not in first
    assert "critic/loss" in rest[-1]
    draws = Streams(0)("warmup")
    uniform = torch.stack([torch.rand(2, generator=draws) for _ in range(100)]) * 2 - 1
    assert np.array_equal(_rows(run)[:100, 3:5], uniform.numpy())
    assert not np.isin(_rows(run)[100:, 3], uniform.numpy()).any()


def test_a_short_run_saves_before_its_end_though_nobody_chose_when(tmp_path: Path) -> None:
    base = _config(tmp_path)
    train_late = dataclasses.replace(base.train, warmup=2_000)
    left_open = dataclasses.replace(base.save, every=None)
    run = train(
        dataclasses.replace(base, steps=2_100, train=train_late, save=left_open), quiet=True
    )
    assert [step for step, _ in RunFolder(run).checkpoints()] == [1_000, 2_000, 2_100]


def test_a_short_run_learns_though_nobody_chose_its_warmup(tmp_path: Path) -> None:
    run = train(_config(tmp_path, warmup=None), quiet=True)
    tensors = checkpoint.load_weights(RunFolder(run).last_weights())
    assert int(tensors["agent._extra_state"]) == 400 - 40


def test_rows_hold_the_reward_of_their_own_step(tmp_path: Path) -> None:
    rows = _rows(train(_config(tmp_path), quiet=True))
    assert rows[:, 5] == pytest.approx(-np.linalg.norm(rows[:, 7:9], axis=1), rel=1e-5)


def test_a_number_that_is_not_there_at_a_line_is_not_told_from_the_line_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([{"critic/odd": torch.tensor(1.0)}, *[{} for _ in range(20)]])
    monkeypatch.setattr(Agent, "diagnostics", lambda *_: next(told))
    records = _records(train(_config(tmp_path), quiet=True), "train")
    assert sum("critic/odd" in record for record in records) == 1


def test_what_an_earlier_release_saved_as_a_metric_does_not_hide_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Agent.update
    stale = {"critic/loss": torch.tensor(-1.0)}
    monkeypatch.setattr(Agent, "update", lambda self, batch: update(self, batch) | stale)
    records = _records(train(_config(tmp_path), quiet=True), "train")
    assert all(record.get("critic/loss", 0.0) >= 0.0 for record in records)


def test_code_that_is_edited_before_the_first_checkpoint_is_not_taken_for_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    with contextlib.closing(Task(config.env, 0)) as task:
        state = RunState(config, task)
        monkeypatch.setattr(process, "checksum_of", lambda _: "edited")
        process.fingerprint.cache_clear()
        assert state.snapshot({}).fingerprint["source"] != "edited"
        assert RunState(config, task).snapshot({}).fingerprint["source"] == "edited"
    process.fingerprint.cache_clear()


class OwnCDQ(CDQ):
    """A critic of another package."""


def test_the_code_of_a_critic_of_ones_own_is_part_of_what_a_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(tmp_path)
    monkeypatch.setattr(CDQConfig, "build", lambda config, spec, _: OwnCDQ(config, spec))
    with contextlib.closing(Task(config.env, 0)) as task:
        state = RunState(config, task)
        saved = state.snapshot({})
        reason = f"code in {__name__} other ->"
        assert not any(reason in told for told in state.restore(saved, {}))
        saved.fingerprint[f"code in {__name__}"] = "other"
        assert any(reason in told for told in state.restore(saved, {}))


def test_a_run_that_never_saved_begins_with_the_length_it_is_given_next(tmp_path: Path) -> None:
    config = _config(tmp_path)
    run = RunFolder(config.folder)
    with contextlib.closing(Task(config.env, 0)) as task:
        run.open(config, task.spec).release()  # As if killed before the first checkpoint.
    assert run.length(dataclasses.replace(config, steps=800)) == 800
    train(config, quiet=True)
    assert run.length(dataclasses.replace(config, steps=800)) == 400


def test_evaluation_does_not_explore(tmp_path: Path) -> None:
    run = train(_config(tmp_path), quiet=True)
    (last,) = (r for r in _records(run, "eval") if r["step"] == 400)
    task = Task("toy_envs:Point-v0", 0, "eval")
    agent, _ = load_agent(run, "last")
    total, obs, done = 0.0, task.reset(400, 0), False
    while not done:
        with torch.no_grad():
            seen = agent.normalizer.normalize_obs(torch.from_numpy(obs)[None])
            mean = agent.actor.net(seen).chunk(2, -1)[0]
        out = task.step(mean.tanh()[0].numpy())
        total, obs, done = total + out.reward, out.obs, out.terminated or out.truncated
    assert total == last["eval/returns"][0]


def test_a_short_run_that_never_learnt_is_not_called_done(tmp_path: Path) -> None:
    config = _config(tmp_path, env="toy_envs:HugeReward-v0")
    with pytest.raises(NumericFault):
        train(dataclasses.replace(config, steps=150), quiet=True)
    assert not (config.folder / "DONE").exists()


def test_a_run_can_live_in_a_thread_of_its_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(train, _config(tmp_path), quiet=True).result()
    assert (run / "DONE").exists()


def test_a_silent_reset_pays_nothing(tmp_path: Path) -> None:
    config = _config(tmp_path, env="toy_envs:Exploding-v0")
    run = train(dataclasses.replace(config, steps=200), quiet=True)
    for record in _records(run, "episode"):
        paid = record["episode/length"] - ("episode/diverged" in record)
        assert record["episode/return"] <= paid
    assert _records(run, "eval")[-1]["eval/diverged"] > 0


def test_a_loss_that_overflows_stops_the_run_with_intact_weights(tmp_path: Path) -> None:
    config = _config(tmp_path, env="toy_envs:HugeReward-v0")
    with pytest.raises(NumericFault, match="3 updates in a row"):
        train(config, quiet=True)
    assert "NumericFault" in (config.folder / "run.log").read_text()


@pytest.mark.parametrize("n_step", [1, 3])
def test_q_is_logged_against_the_largest_return(tmp_path: Path, n_step: int) -> None:
    config = _config(tmp_path, n_step=n_step)
    run = train(config, quiet=True)
    rows = torch.from_numpy(_rows(run)[-32:])
    agent, step = load_agent(run, "last")
    assert step == _records(run, "train")[-1]["step"]
    largest = np.abs(_rows(run)[:, 5]).max() / (1 - config.train.discount**n_step)
    q = agent.q(rows[:, :3], rows[:, 3:5]).abs().max()
    share = _records(run, "train")[-1]["critic/q_over_bound"]
    assert share == pytest.approx(float(q) / largest, rel=1e-5)


def test_each_kind_of_unhealthy_values_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "SETTLED", 0)
    monkeypatch.setattr(health, "Q_ALARM", 0.0)
    dbc = dataclasses.replace(resolve("toy", critic="dbc").critic, hidden=(8,), kappa=100.0)
    train(dataclasses.replace(_config(tmp_path), critic=dbc), quiet=True)
    divergence, advice = capsys.readouterr().err.splitlines()
    assert "where no return exceeds" in divergence
    assert "--critic.kappa 100 is large against the spread" in advice


@pytest.mark.parametrize("normalize_returns", [False, True])
def test_returns_too_small_for_the_presets_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], normalize_returns: bool
) -> None:
    config = _config(tmp_path, normalize_returns=normalize_returns)
    train(config, quiet=True, make_env=_faint)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == (not normalize_returns)
    assert all("no return exceeds" in line for line in told)
    assert all("add --train.normalize-returns --train.return-unit 100" in line for line in told)


def _faint() -> gym.Env[Any, Any]:
    return gym.wrappers.TransformReward(gym.make("toy_envs:Point-v0"), lambda r: 1e-3 * float(r))


def test_values_are_not_judged_before_learning_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "Q_ALARM", 0.0)
    train(_config(tmp_path), quiet=True)
    assert not capsys.readouterr().err


def test_numeric_fault_is_one_line_and_exit_4(cli: Run, tmp_path: Path) -> None:
    args = [a.replace("Point", "HugeReward") for a in TINY]
    done = cli(*args, "--out", str(tmp_path))
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("bridgerl: error: 3 updates in a row")


def test_a_silent_mujoco_reset_is_counted_and_its_transition_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = _config(tmp_path, env="toy_envs:Exploding-v0")
    config = dataclasses.replace(config, eval=dataclasses.replace(config.eval, episodes=1))
    run = train(config, quiet=True)
    diverged = json.loads((run / "DONE").read_text())["diverged_episodes"]
    assert diverged > 0
    assert len(_rows(run)) == 400 - diverged
    assert len([r for r in _records(run, "episode") if "episode/diverged" in r]) == diverged
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()


def test_training_stops_once_the_wanted_return_is_reached(tmp_path: Path) -> None:
    config = _config(tmp_path)
    config = dataclasses.replace(config, eval=dataclasses.replace(config.eval, stop_at=-1e6))
    run = train(config, quiet=True)
    assert json.loads((run / "DONE").read_text())["step"] == 200
    assert RunFolder(run).last_weights().name.endswith("000200")
    log = (run / "metrics.jsonl").read_bytes()
    train(config, quiet=True)  # Started again, it stays where it is.
    assert (run / "metrics.jsonl").read_bytes() == log


def test_a_run_that_goes_on_is_not_done_until_it_ends(tmp_path: Path) -> None:
    config = _config(tmp_path)
    run = train(config, quiet=True)
    longer = dataclasses.replace(config, steps=500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridgerl.training.loop.Trainer._log", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(longer, quiet=True)
    assert not (run / "DONE").exists()
    train(longer, quiet=True)
    assert json.loads((run / "DONE").read_text())["step"] == 500


def test_a_run_made_longer_keeps_the_schedule_that_it_began_with(tmp_path: Path) -> None:
    base = resolve("toy_envs:Point-v0", "qvpo", "cdq", "lite")
    small = dataclasses.replace(base.actor, hidden=(16,), diffusion_steps=2, n_train=2)
    config = dataclasses.replace(_config(tmp_path), actor=small)
    run = train(config, quiet=True)
    for steps in (600, 800):
        train(dataclasses.replace(config, steps=steps), quiet=True)
    lines = [r for r in RunFolder(run).records() if "actor/entropy_weight" in r]
    weights = {r["step"]: r["actor/entropy_weight"] for r in lines}
    floor = min(weights.values())
    assert weights[200] > 1.5 * floor
    assert {weights[step] for step in weights if step > 500} == {floor}
    assert RunFolder(run).length(config) == 400


def _interrupted(trainer: object) -> None:
    raise KeyboardInterrupt


def test_evaluations_are_written_under_stable_baselines3_keys(tmp_path: Path) -> None:
    run = train(_config(tmp_path), quiet=True)
    with np.load(run / "evaluations.npz") as data:
        assert data["timesteps"].tolist() == [200, 400]
        assert data["results"].shape == data["ep_lengths"].shape == (2, 2)
    done = json.loads((run / "DONE").read_text())
    means = [r["eval/return_mean"] for r in _records(run, "eval")]
    assert done["best_return"] == max(means)
    assert done["final_return"] == means[-1]
    assert done["average_return"] == pytest.approx(np.mean(means))


def test_tensorboard_has_the_tags_of_stable_baselines3(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(_config(tmp_path).changed(log={"tensorboard": None}), quiet=True)
    accumulator = events.EventAccumulator(str(run / "tb"))
    accumulator.Reload()
    wanted = {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "train/actor_loss",
        "train/critic_loss",
        "train/ent_coef",
        "train/ent_coef_loss",
        "eval/mean_reward",
        "eval/mean_ep_length",
        "time/fps",
    }
    assert wanted <= set(accumulator.Tags()["scalars"])


def test_a_run_that_is_over_adds_no_tensorboard_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    config = _config(tmp_path).changed(log={"tensorboard": True})
    files = [sorted((train(config, quiet=True) / "tb").iterdir()) for _ in range(2)]
    assert files[0] == files[1]
    assert len(files[0]) == 1
    train(config.changed(steps=config.steps + 50), quiet=True)
    assert len(list(files[0][0].parent.iterdir())) == 2


def test_a_terminal_shows_a_live_bar_with_speed_eta_and_return(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = environment(TERM="xterm", COLUMNS="120")
    command = [sys.executable, "-m", "bridgerl", *TINY, "--out", str(tmp_path)]
    with started(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        text = _read_terminal(ours)
        process.wait()
    os.close(ours)
    assert process.returncode == 0
    for word in ("steps/s", "eta", "/600", "return", "run folder:"):
        assert word in text, word


def _read_terminal(handle: int) -> str:
    seen = bytearray()
    try:
        while data := os.read(handle, 4096):
            seen += data
    except OSError:  # A terminal whose program has gone cannot be read.
        pass
    return seen.decode()


def test_an_environment_without_an_end_is_evaluated_all_the_same(tmp_path: Path) -> None:
    config = _config(tmp_path, env="toy_envs:Endless-v0")
    short = dataclasses.replace(config.eval, episodes=2, max_steps=30)
    run = train(dataclasses.replace(config, eval=short), quiet=True)
    assert _records(run, "eval")[-1]["eval/lengths"] == [30, 30]


def test_an_environment_of_other_sizes_is_refused_not_called_damaged(tmp_path: Path) -> None:
    config = _config(tmp_path)
    run = train(config, quiet=True)
    text = json.loads((run / "config.json").read_text())
    assert text["sizes"] == {"observation size": 3, "action size": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toy_envs.Point.observation_space", Box(-1, 1, (4,)))
        with pytest.raises(UserError, match="observation size was 3, now 4"):
            train(config, quiet=True)


def test_fewer_steps_than_done_end_the_run_where_it_stands(tmp_path: Path) -> None:
    config = _config(tmp_path)
    run = train(config, quiet=True)
    (run / "DONE").unlink()
    train(dataclasses.replace(config, steps=300), quiet=True)
    assert json.loads((run / "DONE").read_text())["step"] == 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 1000.0},
        {"steps": "100"},
        {"actor": "td3"},
        {"seed": np.int64(3)},
    ],
)
def test_the_python_interface_refuses_what_could_not_be_read_again(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    config = _config(tmp_path / "out")
    for name, value in wrong.items():
        object.__setattr__(config, name, value)
    with pytest.raises(UserError):
        train(config, quiet=True)
    assert not (tmp_path / "out").exists()


def test_training_goes_on_when_nobody_reads_its_output(tmp_path: Path) -> None:
    command = " ".join([sys.executable, "-m", "bridgerl", *TINY, "--out", str(tmp_path)])
    pipe = f"set -o pipefail; {command} | head -1"
    done = finished(["bash", "-c", pipe], env=environment())
    assert done.returncode == 0
    assert done.stderr == ""
    assert list(tmp_path.rglob("DONE"))


def test_a_closed_terminal_leaves_a_checkpoint(tmp_path: Path, cli: Run) -> None:
    done = cli(*TINY, "--out", str(tmp_path), BRIDGERL_FAILPOINT="train.step:250:hup")
    assert done.returncode == 129
    assert list(tmp_path.rglob("step-000000000250"))


def test_an_own_environment_in_the_working_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(
        "import gymnasium, toy_envs\n"
        "gymnasium.register('MyEnv-v0', toy_envs.Point, max_episode_steps=50)\n"
    )
    script = Path(sys.executable).parent / "bridgerl"
    command = [str(script), "check-env", "my_module:MyEnv-v0"]
    done = finished(command, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr
    assert "is fit" in done.stdout


def test_zero_threads_are_probed_once_and_then_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, answers = torch.get_num_threads(), [2]
    monkeypatch.setattr("bridgerl.training.threads.probe_threads", lambda *_: answers.pop())
    config = _config(tmp_path, threads=0)
    run = train(config, quiet=True)
    assert RunFolder(run).read_config().train.threads == 2
    train(dataclasses.replace(config, steps=config.steps + 10), quiet=True)  # Not probed again.
    assert torch.get_num_threads() == before


def test_the_probe_prefers_fewer_threads_unless_more_are_a_tenth_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    price = {1: 1.0, 2: 0.85, 4: 0.8, 8: 0.5}
    clock, count = [0.0], [1]
    monkeypatch.setattr("bridgerl.training.threads.usable_cores", lambda: range(9))
    monkeypatch.setattr("torch.set_num_threads", lambda n: count.__setitem__(0, n))

    def update(self: Agent, batch: Batch, **_: Any) -> Metrics:
        clock[0] += price[count[0]]
        return {}

    monkeypatch.setattr(Agent, "update", update)
    monkeypatch.setattr("bridgerl.training.threads.time.perf_counter", lambda: clock[0])
    config, spec = resolve("toy", "sac", "cdq"), EnvSpec("toy", 3, 2)
    assert probe_threads(config, spec) == 8
    price[8] = 0.8
    assert probe_threads(config, spec) == 2


def test_the_probe_times_every_count_with_the_actors_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[int, list[bool]] = {1: [], 2: []}
    real = Agent.update

    def update(self: Agent, batch: Batch, **_: Any) -> Metrics:
        metrics = real(self, batch)
        seen[torch.get_num_threads()].append(any(key.startswith("actor/") for key in metrics))
        return metrics

    monkeypatch.setattr("bridgerl.training.threads.usable_cores", lambda: [0, 1])
    monkeypatch.setattr(Agent, "update", update)
    config = resolve("toy", "td3", "cdq", "lite")  # Its actor learns at every second update.
    small = dataclasses.replace(config.train, batch_size=8)
    probe_threads(dataclasses.replace(config, train=small), EnvSpec("toy", 3, 2))
    assert seen[1] == seen[2]
    assert {True, False} == set(seen[1])
