"""The dtype and the device of a module, and new tensors there."""

import torch
from torch import Tensor, nn


def first_float(module: nn.Module) -> Tensor | None:
    """The first floating-point parameter of a module, else the first such buffer, else None.

    A quantised module may have none. No weight is asked for by name: a submodule may be wrapped or replaced.
    """
    parameter = _first(module, "_parameters")
    return _first(module, "_buffers") if parameter is None else parameter


def _first(module: nn.Module, kind: str) -> Tensor | None:
    # Not by `module.parameters()`, which takes four times as long: a streaming step takes a hundred microseconds.
    parts: list[nn.Module | None] = [module]
    while parts:
        part = parts.pop(0)
        if part is None:
            continue
        for tensor in getattr(part, kind).values():
            if tensor is not None and tensor.is_floating_point():
                return tensor
        parts = [*part._modules.values(), *parts]
    return None


def zeros(module: nn.Module, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros on the device of a module, in its dtype if none is given.

    A plain tensor even if the parameters are sharded (DTensor), which `new_zeros` of a parameter would not be.
    """
    like = first_float(module)
    if like is None:
        return torch.zeros(shape, dtype=dtype)
    return torch.zeros(shape, dtype=dtype or like.dtype, device=like.device)


def dtype_of(module: nn.Module, x: Tensor) -> torch.dtype:
    """The dtype of the parameters of a module, or of its input x if it has none."""
    like = first_float(module)
    return x.dtype if like is None else like.dtype
