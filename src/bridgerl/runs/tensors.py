"""Tensors as safetensors bytes: nothing in them can run."""

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bridgerl.errors import StorageFault


def pack(tensors: dict[str, Tensor]) -> bytes:
    """Tensors as safetensors bytes."""
    return safetensors.torch.save(
        {
            k: v.detach().cpu().clone(memory_format=torch.contiguous_format)
            for k, v in tensors.items()
        }
    )


def unpack(data: bytes, name: str) -> dict[str, Tensor]:
    """Tensors from safetensors bytes; runs no code, whatever the bytes are."""
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise StorageFault(f"{name} is damaged: {text}") from None
