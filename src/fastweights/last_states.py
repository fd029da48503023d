"""The states after the last time steps of a scan."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fastweights.call.scan_call import scan_call
from fastweights.call.tensors import Tensors
from fastweights.cell import Cell
from fastweights.core.arguments import Size, checked
from fastweights.core.errors import require
from fastweights.dispatch import scan
from fastweights.state import select


@checked
def scan_last_states(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    n: Size,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    initial_state: Any = None,
    backend: str = "auto",
) -> tuple[Tensor, Any]:
    """Runs a cell over time, and returns the states after each of the last n time steps.

        state_t, y_t = step(state_(t-1), x_t)

    In speculative decoding, a model reads n drafted tokens in one call and continues from the state after the last
    accepted one. Use a small n: the cost is that of T - n + n^2 time steps, and the memory that of n states. One scan
    runs the first T - n time steps. A second scan runs the rest on n copies of the batch, which read 1, 2, ..., n of
    them. All sequences have T time steps: there is no `lengths`.

    Args:
        cell: Cell, as in `scan`.
        inputs: `cell.Inputs` of tensors `[B, T, H, ...]`.
        n: Number of states, from 1 to T.
        state: `cell.State` of tensors `[B, H, ...]` before the first time step. None: the initial state.
        params: `cell.Params` of tensors `[H, ...]`, for cells with slow weights inside the step.
        reset: Resets, bool `[B, T]`. Where True, the state returns to the initial state before the time step.
        initial_state: `cell.State` of tensors `[H, ...]`, the initial state of every head. None: zeros.
        backend: Backend, as in `scan`.

    Returns:
        The output y `[B, T, H, V]`, and the states: `cell.State` of tensors `[n, B, H, ...]`, whose last entry is the
        state after the whole sequence. States are in float32 or float64.

    Raises:
        InputError: n is not from 1 to T, or an input does not fit the cell.

    Example:
        >>> q, k, v = torch.randn(3, 2, 5, 4, 8).unbind()
        >>> sum_rule = Cell.from_name("sum")
        >>> y, states = scan_last_states(sum_rule, sum_rule.Inputs(q, k, v), n=3)
        >>> y.shape, states.W.shape
        (torch.Size([2, 5, 4, 8]), torch.Size([3, 2, 4, 8, 8]))
    """
    cell = Cell.from_function(cell)
    call = scan_call(cell, Tensors(inputs, state, params, reset, None, initial_state))
    B, T = call.plan.leading[:2]
    require(n <= T, "n", f"at most T={T}", n)
    y, before = [], call.tensors.state
    if n < T:
        first, reads = _steps(inputs, slice(T - n)), None if reset is None else reset[:, : T - n]
        head, before = scan(cell, first, before, params, reads, initial_state=initial_state, backend=backend)
        y.append(head)
    copies = torch.arange(B, device=inputs[0].device).repeat(n)
    last, reads = _steps(inputs, slice(T - n, T)), None if reset is None else reset[copies, T - n :]
    lengths = torch.arange(1, n + 1, device=copies.device).repeat_interleave(B)
    tail, after = scan(
        cell, select(last, copies), select(before, copies), params, reads, lengths, initial_state, backend
    )
    return torch.cat([*y, tail[-B:]], 1), tree_map(lambda leaf: leaf.unflatten(0, (n, B)), after)


def _steps(inputs: Any, steps: slice) -> Any:
    return type(inputs)(*(x[:, steps] for x in inputs))
