"""Writing a policy down as ONNX or TorchScript, each held against torch itself.

Both by tracing. For ONNX torch.export would do it too, in forty times the time.
"""

import importlib.util
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from bridgerl import __version__
from bridgerl.critics import CriticConfig
from bridgerl.errors import NumericFault, UserError, install, require
from bridgerl.ops.levels import midpoint_levels
from bridgerl.runs import store
from bridgerl.runs.folder import Which
from bridgerl.ship.policy import Shipped
from bridgerl.training.play import playing

Format = Literal["onnx", "torchscript"]
SUFFIX: dict[Format, str] = {"onnx": ".onnx", "torchscript": ".pt"}
NEEDED = ("onnx", "onnxruntime")
CLOSE = 1e-5
"""How far file and torch may be apart, see `compare`."""
TINY = 1e-6
"""Added to the size of an output, so that one of zeros can be compared."""
CHECKED = 256
"""Observations on which a new file is held against torch."""
MOST_APART = 0.01
"""Share of them that may differ: where the best two of many candidates tie, either may win."""
MOST_LEVELS = 1024

Played = Callable[[Tensor], Sequence[Tensor]]


def check_format(form: Format) -> None:
    """Refuse before any work what could not be written after it."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if form == "onnx" and missing:
        hint = f"{install('export')}, or add --format torchscript"
        raise UserError(f"ONNX files need {missing[0]}: {hint}")


def read_levels(given: Sequence[float], critic: CriticConfig) -> Tensor | None:
    """Quantile levels (k,), given as such or as a count of equally spaced ones; None for none."""
    if not given:
        return None
    if not critic.distributional:
        name = type(critic).__name__.removesuffix("Config")
        raise UserError(f"the critic {name} knows no distribution; leave --quantiles out")
    n = int(given[0]) if len(given) == 1 and given[0] >= 1 else 0
    if n == given[0] and 1 <= n <= MOST_LEVELS:
        return midpoint_levels(n)
    rule = f"must be levels within (0, 1), or one count up to {MOST_LEVELS}"
    require(all(0 < level < 1 for level in given), "quantiles", tuple(given), rule)
    return torch.tensor(given)


def export(
    run: Path, path: Path, form: Format = "onnx", *, levels: Sequence[float] = (), weights: Which
) -> dict[str, Any]:
    """Write a run's policy to a file; returns what is in it and how far it is from torch."""
    check_format(form)
    with playing(run, weights, 1, 0) as player:
        tau, env = read_levels(levels, player.config.critic), player.task.env
        observation, action = env.observation_space, env.action_space
        assert isinstance(observation, gym.spaces.Box)
        assert isinstance(action, gym.spaces.Box)
        policy = Shipped(player.agent, observation, action, tau)
        facts = {"env": player.config.env, "step": player.step, "bridgerl": __version__}
        facts |= {} if tau is None else {"levels": tau.tolist()}
        data = _written(form, policy, {name: json.dumps(value) for name, value in facts.items()})
        apart = compare(policy, READERS[form](data), policy.observations(CHECKED))
    if float((~(apart <= CLOSE)).mean()) > MOST_APART:  # NaN is not close.
        raise NumericFault(f"{path} not written: it would differ from torch by {apart.max():.1g}")
    store.publish_file(path, data)
    return facts | {"file": str(path), "bytes": len(data), "difference": float(np.median(apart))}


def _written(form: Format, policy: Shipped, facts: Mapping[str, str]) -> bytes:
    """The file, or a refusal of what a network of another package does."""
    try:
        with redirect_stdout(io.StringIO()):  # A failure prints the whole graph.
            return WRITERS[form](policy, facts)
    except (RuntimeError, torch.onnx.OnnxExporterError) as error:
        why = next(iter(str(error).splitlines()), "")
        raise UserError(f"the policy cannot be written as {form}: {why}") from None


def compare(policy: Shipped, played: Played, observations: Tensor) -> np.ndarray:
    """How far a file is from torch for every observation: (b,).

    As a share of the largest number of the whole batch: of actions, or of quantiles.
    """
    apart = np.zeros(len(observations))
    for ours, theirs in zip(policy(observations), played(observations), strict=True):
        gap = (theirs - ours).double().flatten(1).abs().amax(1)
        size = ours.double().abs().max()
        apart = np.maximum(apart, (gap / (size + TINY)).numpy())
    return apart


def to_onnx(policy: Shipped, facts: Mapping[str, str]) -> bytes:
    """An ONNX file for batches of any size, with facts about it inside."""
    import onnx

    file, names = io.BytesIO(), ["observation", *policy.output_names]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # They tell how torch works inside.
        torch.onnx.export(
            policy.eval(),
            (policy.observations(2),),
            file,  # pyright: ignore[reportArgumentType]
            input_names=names[:1],
            output_names=names[1:],
            dynamic_axes={name: {0: "batch"} for name in names},
            dynamo=False,
        )
    model = onnx.load_from_string(file.getvalue())
    onnx.helper.set_model_props(model, dict(facts))
    return model.SerializeToString()


def play_onnx(data: bytes) -> Played:
    """A function that plays such a file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data)

    def played(observations: Tensor) -> list[Tensor]:
        found = session.run(None, {"observation": observations.numpy()})
        return [torch.from_numpy(np.asarray(part)) for part in found]

    return played


def to_torchscript(policy: Shipped, facts: Mapping[str, str]) -> bytes:
    """A TorchScript file for batches of any size, with facts about it inside."""
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # Deprecated in favour of torch.export, but at work.
        traced = torch.jit.trace(policy.eval(), (policy.observations(2),), check_trace=False)
        # What the policy does not use, such as an optimiser's state, is left out.
        torch.jit.save(torch.jit.freeze(traced), file, _extra_files=dict(facts))
    return file.getvalue()


def play_torchscript(data: bytes) -> Played:
    """A function that plays such a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(io.BytesIO(data))


WRITERS: dict[Format, Callable[[Shipped, Mapping[str, str]], bytes]] = {
    "onnx": to_onnx,
    "torchscript": to_torchscript,
}
READERS: dict[Format, Callable[[bytes], Played]] = {
    "onnx": play_onnx,
    "torchscript": play_torchscript,
}
