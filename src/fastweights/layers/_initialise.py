"""Initialisation that `reset_parameters` repeats: what deferred initialisation and loaders of checkpoints rely on."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Change = Callable[[Any], None]
"""Overwrites parameters of a module in place."""


def change_initial(module: nn.Module, change: Change) -> None:
    """Applies `change(module)` now, and after the module's own initialisation in each later `reset_parameters()`.

    For modules of `torch.nn` whose own initialisation is not the one of the paper.
    """
    before = getattr(module.__dict__.get("reset_parameters"), "args", (module, ()))[1]
    module.__dict__["reset_parameters"] = partial(_reset, module, (*before, change))
    change(module)


def _reset(module: nn.Module, changes: tuple[Change, ...]) -> None:
    type(module).reset_parameters(module)  # type: ignore[attr-defined]
    for change in changes:
        change(module)


@torch.no_grad()
def assign(tensor: Any, value: Tensor) -> None:
    """Copies a value into a parameter or buffer. Of a sharded parameter (DTensor) each process takes its shard."""
    if hasattr(tensor, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(tensor.device, tensor.dtype), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)
