"""The tensors of one call of `scan`."""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Tensors(NamedTuple):
    """The tensors of one call of `scan`.

    `inputs` are `cell.Inputs` `[B, T, H, ...]`, `state` is `cell.State` `[B, H, ...]` before the first step, `params`
    are `cell.Params` `[H, ...]`, `reset` is bool `[B, T]`, `lengths` int `[B]`, and `initial_state` is the `cell.State`
    `[H, ...]` of every head. All but the inputs may be None.
    """

    inputs: Any
    state: Any = None
    params: Any = None
    reset: Tensor | None = None
    lengths: Tensor | None = None
    initial_state: Any = None

    @property
    def dtype(self) -> torch.dtype:
        """The widest floating dtype of the inputs; the default dtype if all inputs are marks."""
        dtypes = [x.dtype for x in self.inputs if x.is_floating_point()] or [torch.get_default_dtype()]
        return reduce(torch.promote_types, dtypes)

    def all(self) -> list[Tensor]:
        """The tensors that may require gradients: inputs, state, params and initial state."""
        return [*self.inputs, *(self.state or ()), *(self.params or ()), *(self.initial_state or ())]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Tensors":
        """The record with `function` applied to every tensor of `all()`."""
        inputs, state, params, initial_state = (
            None if record is None else type(record)(*[function(x) for x in record])
            for record in (self.inputs, self.state, self.params, self.initial_state)
        )
        return self._replace(inputs=inputs, state=state, params=params, initial_state=initial_state)
