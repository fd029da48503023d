"""Initialisation that `reset_parameters` repeats, as deferred initialisation and checkpoint loaders require."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Change = Callable[[Any], None]
"""Overwrites parameters of a module in place."""


class ChangedReset:
    """`reset_parameters` of a module: its own initialisation, then changes.

    It refers to the module weakly: a cycle would keep the memory of a deleted model until the next collection.
    """

    def __init__(self, module: nn.Module, changes: tuple[Change, ...]) -> None:
        self.module, self.changes = weakref.ref(module), changes

    def __call__(self) -> None:
        module: Any = self.module()
        type(module).reset_parameters(module)
        for change in self.changes:
            change(module)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChangedReset, (self.module(), self.changes)


def change_initial(module: nn.Module, change: Change) -> None:
    """Applies `change(module)` now, and after the module's own initialisation in each later `reset_parameters()`.

    It is meant for modules of `torch.nn` whose initialisation differs from that of a paper.
    """
    reset = module.__dict__.get("reset_parameters")
    changes = reset.changes if isinstance(reset, ChangedReset) else ()
    module.__dict__["reset_parameters"] = ChangedReset(module, (*changes, change))
    change(module)


@torch.no_grad()
def assign(tensor: Any, value: Tensor) -> None:
    """Copies a value into a parameter or buffer. Of a sharded parameter (DTensor) each process takes its shard."""
    if hasattr(tensor, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(tensor.device, tensor.dtype), tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


def whole(tensor: Tensor) -> Tensor:
    """The whole of a parameter that may be sharded (DTensor), as it is outside of a forward pass."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
