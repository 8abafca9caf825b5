"""Tensors as safetensors bytes: nothing in them can run."""

import safetensors
import safetensors.torch
from torch import Tensor

from bridgerl.errors import StorageFault


def pack(tensors: dict[str, Tensor], notes: dict[str, str] | None = None) -> bytes:
    """Tensors as safetensors bytes, perhaps with notes in their header."""
    copies = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    return safetensors.torch.save(copies, notes)


def unpack(data: bytes, name: str) -> dict[str, Tensor]:
    """Tensors from safetensors bytes; runs no code, whatever the bytes are."""
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise StorageFault(f"{name} is damaged: {text}") from None


def check_fit(given: dict[str, Tensor], wanted: dict[str, Tensor], where: str) -> None:
    """Refuse tensors whose names, shapes or types are not the ones that are wanted."""
    for name in sorted(set(given) | set(wanted)):
        ours, theirs = wanted.get(name), given.get(name)
        if ours is None or theirs is None:
            raise StorageFault(f"{where} does not fit this agent: {name} is unknown or missing")
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise StorageFault(f"{where} does not fit this agent: {name} has another shape or type")


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by their names behind a prefix."""
    return {prefix + k: v for k, v in tensors.items()}


def without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors under a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
