"""Lifting: captured tensors of a step become params, so that every call reads them, and they get gradients."""

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fastweights.cell import Cell
from fastweights.signature import TensorSpec


def lift(cell: Cell, captured: Sequence[Tensor], key: str) -> Cell:
    """The cell with one further param per captured tensor, in the order of their use."""
    own = cell.slots.get("Params", {})
    params = {
        **own,
        **{f"captured_{n}": TensorSpec(" ".join(map(str, x.shape)), "weight") for n, x in enumerate(captured)},
    }

    def step(state: Any, x: Any, params: Any) -> Any:
        own_params, captured = params[: len(own)], params[len(own) :]
        records = [state, x] if cell.Params is None else [state, x, cell.Params(*own_params)]
        with Swap([*state, *x, *own_params], captured) as swap:
            return swap.swapped(cell.step(*records))

    record = namedtuple("Params", params)  # type: ignore[misc]
    return replace(cell, step=step, Params=record, slots={**cell.slots, "Params": params}, key=key)


class Swap(TorchFunctionMode):
    """Replaces floating tensors that are neither arguments nor results by those of `captured`, in order of use."""

    def __init__(self, arguments: Sequence[Tensor], captured: Sequence[Tensor]) -> None:
        super().__init__()
        self.alive: list[Any] = list(arguments)
        self.instead: dict[int, Tensor] = {id(x): x for x in self.alive}
        self.left = list(captured)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*self.swapped(args), **self.swapped(kwargs or {}))
        self._keep(result)
        return result

    def swapped(self, value: Any) -> Any:
        """A tensor, a number, or a tuple, list or dictionary of them, with every captured tensor replaced."""
        if isinstance(value, Tensor):
            return self._instead_of(value)
        if isinstance(value, dict):
            return {key: self.swapped(each) for key, each in value.items()}
        if isinstance(value, tuple | list):
            parts = [self.swapped(each) for each in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value

    def _instead_of(self, x: Tensor) -> Tensor:
        if id(x) in self.instead:
            return self.instead[id(x)]
        with torch._C.DisableTorchFunction():
            is_fixed = torch._C._functorch.is_functorch_wrapped_tensor(x) or not x.is_floating_point()
        if is_fixed or not self.left or _is_made(x):
            return x
        self.alive.append(x)
        self.instead[id(x)] = self.left.pop(0)
        return self.instead[id(x)]

    def _keep(self, result: Any) -> None:
        if isinstance(result, Tensor):
            self.alive.append(result)
            self.instead.setdefault(id(result), result)
        elif isinstance(result, tuple | list):
            for each in result:
                self._keep(each)


def _is_made(x: Tensor) -> bool:
    """Whether the op log knows a tensor as a result. The call log sees no transforms of torch.func."""
    has_made = getattr(_get_current_dispatch_mode(), "has_made", None)
    return has_made is not None and has_made(x)
