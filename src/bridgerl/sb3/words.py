"""Words of SAC, TD3 and TQC in Stable-Baselines3 as fields of our configs, and back in refusals."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from stable_baselines3.common.torch_layers import FlattenExtractor

from bridgerl.config import RunConfig
from bridgerl.errors import UserError, nearest

Changes = dict[str, dict[str, Any]]
"""New values of fields, by part: actor and critic."""

FIELDS = {
    "target_entropy": ("actor", "target_entropy"),
    "ent_coef": ("actor", "temperature"),
    "policy_delay": ("actor", "delay"),
    "target_policy_noise": ("actor", "target_noise"),
    "target_noise_clip": ("actor", "target_noise_clip"),
    "target_update_interval": ("critic", "target_every"),
    "top_quantiles_to_drop_per_net": ("critic", "drop"),
    "n_critics": ("critic", "n_heads"),
    "n_quantiles": ("critic", "n_atoms"),
    "use_sde": ("actor", "sde"),
    "log_std_init": ("actor", "sde_log_std"),
    "use_expln": ("actor", "sde_expln"),
    "clip_mean": ("actor", "sde_mean_limit"),
}
OF_SDE = ("log_std_init", "use_expln", "clip_mean")
IN_POLICY = (
    *("net_arch", "n_critics", "n_quantiles", "optimizer_class", "optimizer_kwargs"),
    *OF_SDE,
)
WITHOUT_EFFECT = {
    "activation_fn": (torch.nn.ReLU,),
    "features_extractor_class": (FlattenExtractor,),
    "share_features_extractor": (True, False),
    "normalize_images": (True,),
}
"""Words of policy_kwargs whose values name what is the case anyway."""
WORDS = tuple(word for word in FIELDS if word not in IN_POLICY)
"""Arguments of the constructors there that ours take by keyword alone."""


class ArgumentRefused(UserError, ValueError):
    """An argument that cannot be; programs of Stable-Baselines3 expect a ValueError."""


def translate(config: RunConfig, policy_kwargs: dict[str, Any], words: dict[str, Any]) -> Changes:
    """What these arguments change in actor and critic; unknown ones are refused."""
    _check_names(policy_kwargs, words)
    changes = _widths(policy_kwargs.get("net_arch"))
    _optimizer(changes, policy_kwargs)
    given = {k: v for k, v in (policy_kwargs | words).items() if k in FIELDS}
    if given.get("use_sde") is False:  # So it is under every actor, unless its settings say other.
        given = {k: v for k, v in given.items() if k not in ("use_sde", *OF_SDE)}
        if getattr(config.actor, "sde", False):
            changes["actor"]["sde"] = False
    for word, value in given.items():
        part, field = FIELDS[word]
        section = getattr(config, part)
        if field not in {f.name for f in fields(section)}:
            own = f"{part} {getattr(config, f'{part}_name')}"
            raise ArgumentRefused(f"the {own} has no {word}")
        changes[part][field] = None if (word, value) == ("target_entropy", "auto") else value
    if "use_sde" in given:  # There the loop says when new noise is due.
        changes["actor"]["sde_sample_every"] = None
    if given.get("clip_mean") == 0:  # Their word for no limit.
        changes["actor"]["sde_mean_limit"] = None
    if "ent_coef" in given:
        changes["actor"] |= _temperature(config, given["ent_coef"])
    if "policy_delay" in given:  # There the targets wait for the policy.
        changes["critic"].setdefault("target_every", given["policy_delay"])
    if "top_quantiles_to_drop_per_net" in given:
        atoms: Any = changes["critic"].get("n_atoms", getattr(config.critic, "n_atoms", 1))
        changes["critic"]["drop"] = given["top_quantiles_to_drop_per_net"] / atoms
    return changes


@contextmanager
def spoken(typed: dict[tuple[str, str], str] | None = None) -> Iterator[None]:
    """Let refusals inside name arguments of the drop-in instead of flags of the command line.

    `typed`: the words that fields of actor and critic were given by, if not by their own.
    """

    def argument(match: re.Match[str]) -> str:
        part, field = match[1], match[2].replace("-", "_")
        return (typed or {}).get((part, field)) or f"{part}_kwargs[{field!r}]"

    try:
        yield
    except UserError as error:
        text = re.sub(r"(?:--|config field )(actor|critic)\.([\w-]+)", argument, str(error))
        text = re.sub(r"config field .*?(\w+) cannot", r"\1 cannot", text)
        raise ArgumentRefused(re.sub(r"--(\w+) ", r"\1 ", text)) from None


def typed_words(policy_kwargs: dict[str, Any], words: dict[str, Any], tau: Any) -> dict[Any, str]:
    """The words by which fields of actor and critic were given."""
    typed = {FIELDS[word]: word for word in policy_kwargs | words if word in FIELDS}
    if policy_kwargs.get("net_arch") is not None:
        typed |= {(part, "hidden"): "net_arch" for part in ("actor", "critic")}
    if tau is not None:
        typed |= {(part, "polyak"): "tau" for part in ("actor", "critic")}
    return typed


def _check_names(policy_kwargs: dict[str, Any], words: dict[str, Any]) -> None:
    for word in words:
        if word not in WORDS:
            raise ArgumentRefused(f"there is no argument {word!r}{nearest(word, WORDS)}")
    for word, value in policy_kwargs.items():
        if word == "features_extractor_kwargs" and set(value or {}) <= {"cnn_output_dim"}:
            warnings.warn("images are flattened: cnn_output_dim has no effect", stacklevel=2)
            continue
        if word in WITHOUT_EFFECT and value not in WITHOUT_EFFECT[word]:
            known = " or ".join(getattr(v, "__name__", str(v)) for v in WITHOUT_EFFECT[word])
            raise ArgumentRefused(f"policy_kwargs[{word!r}] must be {known}, got {value!r}")
        if word not in (*IN_POLICY, *WITHOUT_EFFECT):
            what = f"policy_kwargs takes {', '.join(IN_POLICY)}, not {word}"
            raise ArgumentRefused(f"{what}; see actor_kwargs and critic_kwargs")


def _widths(arch: Any) -> Changes:
    """`net_arch`, one list or a dict of `pi` and `qf`, as widths of actor and critic."""
    if arch is None:
        return {"actor": {}, "critic": {}}
    both = arch if isinstance(arch, dict) else {"pi": arch, "qf": arch}
    if set(both) != {"pi", "qf"} or not all(isinstance(v, list | tuple) for v in both.values()):
        raise ArgumentRefused(f"net_arch must be widths or a dict of pi and qf, got {arch!r}")
    return {"actor": {"hidden": tuple(both["pi"])}, "critic": {"hidden": tuple(both["qf"])}}


def _optimizer(changes: Changes, policy_kwargs: dict[str, Any]) -> None:
    """Adam's and AdamW's own arguments as settings of both parts."""
    kind = policy_kwargs.get("optimizer_class", torch.optim.Adam)
    given = dict(policy_kwargs.get("optimizer_kwargs") or {})
    if kind not in (torch.optim.Adam, torch.optim.AdamW):
        raise ArgumentRefused(f"optimizer_class must be Adam or AdamW, got {kind!r}")
    if kind is torch.optim.AdamW:
        given.setdefault("weight_decay", 0.01)  # Its own default.
    elif given.get("weight_decay"):
        raise ArgumentRefused("weight_decay needs optimizer_class=torch.optim.AdamW")
    found: dict[str, Any] = {}
    for word, value in given.items():
        if word == "betas":
            found |= {"beta1": value[0], "beta2": value[1]}
        elif word in ("eps", "weight_decay"):
            found["adam_eps" if word == "eps" else word] = value
        else:
            known = "optimizer_kwargs takes betas, eps and weight_decay"
            raise ArgumentRefused(f"{known}, not {word}")
    for part in changes.values():
        part |= found


def _temperature(config: RunConfig, coefficient: Any) -> dict[str, Any]:
    """`auto`, `auto_0.1` and a number: where the temperature begins, and whether it learns."""
    match = re.fullmatch(r"auto(?:_(.+))?", coefficient) if isinstance(coefficient, str) else None
    try:
        if match is None:
            return {"temperature": float(coefficient), "temperature_lr": None}
        rate = getattr(config.actor, "temperature_lr", None) or config.actor.lr
        return {"temperature": float(match[1] or 1.0), "temperature_lr": rate}
    except (TypeError, ValueError):
        rule = "must be a number, 'auto' or e.g. 'auto_0.1'"
        raise ArgumentRefused(f"ent_coef {rule}, got {coefficient!r}") from None
