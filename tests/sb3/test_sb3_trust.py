"""Files of the drop-in that were damaged or forged: refused in one line, before they do a thing."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

pytest.importorskip("stable_baselines3")

from bridgerl.errors import BridgeError, NumericFault, StorageFault, UserError
from bridgerl.sb3 import ActorCritic

POINT = "toy_envs:Point-v0"
WEIGHT = "agent.critic.optimizer.flat"


def make(critic: str = "cdq", **kwargs: Any) -> ActorCritic:
    small = {"learning_starts": 5, "batch_size": 8, "buffer_size": 20, "seed": 0, "device": "cpu"}
    small |= {"policy_kwargs": {"net_arch": [4]}}
    return ActorCritic("MlpPolicy", gym.make(POINT), critic=critic, **small | kwargs)


def forge(path: Path, tensors: dict[str, Tensor] | None = None, **changes: Any) -> None:
    """Rewrite tensors and fields of config.json in a saved model, with right checksums."""
    with zipfile.ZipFile(path) as archive:
        config, data = (json.loads(archive.read("config.json")), archive.read("model.safetensors"))
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    held = safetensors.torch.load(data) | (tensors or {})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.safetensors", safetensors.torch.save(held))


def tensors_of(path: Path) -> dict[str, Tensor]:
    with zipfile.ZipFile(path) as archive:
        return safetensors.torch.load(archive.read("model.safetensors"))


def refusal(model: Path, kind: type[BridgeError] = StorageFault) -> str:
    with pytest.raises(kind) as caught:
        ActorCritic.load(model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Replay buffers


def test_no_flipped_bit_of_a_replay_buffer_is_accepted() -> None:
    model = make().learn(8)
    stream = io.BytesIO()
    model.save_replay_buffer(stream)
    data = stream.getvalue()
    model.load_replay_buffer(io.BytesIO(data))
    held = model.replay_buffer
    assert held is not None
    before = held.observations.copy()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BridgeError):
            model.load_replay_buffer(io.BytesIO(flipped))
    assert np.array_equal(before, held.observations)


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b""])
def test_a_replay_buffer_of_another_length_is_refused(change: Any) -> None:
    model = make().learn(8)
    stream = io.BytesIO()
    model.save_replay_buffer(stream)
    with pytest.raises(StorageFault, match="is damaged"):
        model.load_replay_buffer(io.BytesIO(change(stream.getvalue())))


def test_a_replay_buffer_without_a_checksum_is_refused() -> None:
    data = safetensors.torch.save({"pos": torch.tensor(0)})
    with pytest.raises(StorageFault, match="is damaged: it has no checksum"):
        make().load_replay_buffer(io.BytesIO(data))


# Models


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_all_who_read_or_write(
    value: float, tmp_path: Path
) -> None:
    model, path = make(), tmp_path / "model.zip"
    model.save(path)
    weights = tensors_of(path)
    name = next(k for k in weights if k.startswith("agent.actor") and weights[k].dim() == 2)
    weights[name].view(-1)[0] = value
    forge(path, weights)
    assert refusal(path).endswith(f"is damaged: {name} is not finite")
    with pytest.raises(StorageFault, match="is not finite"):
        model.set_parameters(path)
    vector = model.policy.parameters_to_vector()
    vector[0] = value
    model.policy.load_from_vector(vector)
    with pytest.raises(NumericFault, match="is not finite; model not written"):
        model.save(tmp_path / "other.zip")
    assert not (tmp_path / "other.zip").exists()


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("action_space.high", [np.inf, 1.0], "infinite or NaN bounds"),
        ("action_space.low", [np.nan, 1.0], ""),
        ("action_space.low", [5.0, 5.0], ""),
        ("observation_space.low", [np.nan, 0.0, 0.0], ""),
        ("action_space.low", [], ""),
    ],
)
def test_bounds_that_no_task_has_are_refused(
    name: str, values: list[float], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.zip"
    make().save(path)
    forge(path, {name: torch.tensor(values, dtype=tensors_of(path)[name].dtype)})
    text = refusal(path)
    assert text.startswith("the saved model has no valid spaces: ")
    assert message in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buffer_size": 10**15}, "buffer_size must be at most"),
        ({"_stats_window_size": 10**30}, "_stats_window_size must be at most"),
        ({"num_timesteps": 10**30}, "num_timesteps must be at most"),
        ({"num_timesteps": -1}, "num_timesteps must be at least 0"),
        ({"sde_sample_freq": -2}, "sde_sample_freq must be at least -1"),
        ({"learning_starts": -1}, "learning_starts must be at least 0"),
        ({"n_envs": 10**9}, "n_envs must be at most"),
        ({"_n_updates": -1}, "_n_updates must be at least 0"),
        ({"replay_buffer_kwargs": {"buffer_size": 3}}, "cannot be made"),
        ({"replay_buffer_kwargs": {"no_such": 3}}, "cannot be made"),
        ({"learning_rate": 1e999}, "not a finite number"),
    ],
)
def test_forged_numbers_are_refused(changes: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    make().save(path)
    forge(path, attributes=changes)
    assert message in refusal(path, BridgeError)


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_forged_widths_are_refused_before_memory_is_asked_for(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.zip"
    make().save(path)
    with zipfile.ZipFile(path) as archive:
        agent = json.loads(archive.read("config.json"))["agent"]
    forge(path, agent={part: agent[part] | {"hidden": [65_536, 65_536]}})
    monkeypatch.setattr(ActorCritic, "_setup_model", lambda self: pytest.fail("it was built"))
    assert "fewer weights than its widths" in refusal(path)


def test_names_that_a_warning_would_show_are_ours(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    make().save(path)
    forge(path, not_stored=["\x1b[2J"])
    assert "not_stored must be some of learning_rate" in refusal(path, UserError)


def test_a_file_does_not_decide_where_training_writes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    path, victim, own = tmp_path / "model.zip", tmp_path / "victim", tmp_path / "own"
    make(tensorboard_log=str(victim)).save(path)
    with zipfile.ZipFile(path) as archive:
        assert str(victim).encode() not in archive.read("config.json")
    forge(path, attributes={"tensorboard_log": str(victim)})
    ActorCritic.load(path, env=gym.make(POINT)).learn(10)
    assert not victim.exists()
    ActorCritic.load(path, env=gym.make(POINT), tensorboard_log=str(own)).learn(10)
    assert own.is_dir()


# Distributions


@pytest.mark.parametrize("tau", [-1.0, 0.0, 1.0, 2.0, float("nan"), float("inf")])
def test_levels_outside_of_0_and_1_are_refused(tau: float) -> None:
    obs, action = torch.zeros(1, 3), torch.zeros(1, 2)
    with pytest.raises(UserError, match=r"quantile levels must be within \(0, 1\)"):
        make("dbc").agent.quantiles(obs, action, torch.tensor([[0.5, tau]]))
