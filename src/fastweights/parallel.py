"""Sequence parallelism: one sequence over several processes of `torch.distributed`, each with a segment of its time.

The states of a recurrence are small compared with the sequence. Only states are sent from one process to the next, and
their gradients back. If the compiler finds that the states of a cell are rows of one matrix S that is affine in itself,
all processes first compute their segments as functions of S, at the same time:

    S[end] = S[start] kept + written,     read[t] = base[t] + S[start] queries[t],

Only two products then wait for the process before. All other cells run one process after the other.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.backends.chunkwise import Segment, segment
from fastweights.call.scan_call import scan_call
from fastweights.call.tensors import Tensors
from fastweights.cell import Cell
from fastweights.core.autocast import full_precision
from fastweights.dispatch import scan

__all__ = ["scan_over_ranks"]


def scan_over_ranks(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Any]:
    """Runs a cell over a sequence that is split over processes. All processes call it, and all run the backward pass.

    Args:
        cell: Cell, as in `scan`.
        inputs: `cell.Inputs` of tensors `[B, T, H, ...]`: the segment of this process. T may differ between processes.
        state: `cell.State` of tensors `[B, H, ...]` before the whole sequence. Only that of the first process is used.
            None: zeros.
        params: `cell.Params` of tensors `[H, ...]`, the same in all processes. Every process has its own gradient; the
            caller sums the gradients.
        reset: Resets, bool `[B, T]`. Where True, the state returns to zero before the time step.
        group: Processes in the order of time. None: all processes.

    Returns:
        The output y `[B, T, H, V]` of this segment, and the state after it. In the last process it is the state after
        the whole sequence.

    Raises:
        InputError: an input does not fit the cell.
    """
    cell = Cell.from_function(cell)
    call = scan_call(cell, Tensors(inputs, state, params, reset))
    with full_precision(call.plan.device):
        own = segment(call)
        if own is not None:
            return _join(own, call.tensors.state, group)
        before = _receive(call.tensors.state, group)
        y, after = scan(cell, inputs, before, params, reset)
        return _send(y, after, group)


def _join(own: Segment, like: Any, group: dist.ProcessGroup | None) -> tuple[Tensor, Any]:
    """y and the state after the segment of this process, from the state that the process before sends.

    `like` is a state of the same shapes.
    """
    start = _receive(like, group)
    return _send(own.output(start), own.after(start), group)


def _receive(state: Any, group: dist.ProcessGroup | None) -> Any:
    """The state that the process before sends; in the first process, `state`."""
    if dist.get_rank(group) == 0:
        return state
    leaves, structure = tree_flatten(state)
    # The received state has a gradient, even if no tensor of this process needs one.
    hooks = [leaf.detach().requires_grad_() for leaf in leaves]
    return tree_unflatten(list(Receive.apply(group, *hooks)), structure)


def _send(y: Tensor, state: Any, group: dist.ProcessGroup | None) -> tuple[Tensor, Any]:
    """Sends the state to the process after this one, if there is one; returns y and the state."""
    if dist.get_rank(group) == dist.get_world_size(group) - 1:
        return y, state
    leaves, structure = tree_flatten(state)
    y, *leaves = Send.apply(group, y, *leaves)
    return y, tree_unflatten(leaves, structure)


class Receive(torch.autograd.Function):
    """Receives tensors from the process before, and sends their gradients back to it."""

    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup | None, *like: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        received = tuple(torch.empty_like(leaf, memory_format=torch.contiguous_format) for leaf in like)
        for leaf in received:
            dist.recv(leaf, group=group, group_src=dist.get_rank(group) - 1)
        return received

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        for gradient in gradients:
            dist.send(gradient.contiguous(), group=ctx.group, group_dst=dist.get_rank(ctx.group) - 1)
        return None, *(None for _ in gradients)


class Send(torch.autograd.Function):
    """Sends all tensors but y to the process after this one, and receives their gradients from there.

    y takes part so that a backward pass from it waits for the gradients.
    """

    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup | None, y: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        for leaf in state:
            dist.send(leaf.detach().contiguous(), group=group, group_dst=dist.get_rank(group) + 1)
        return y.view_as(y), *(leaf.view_as(leaf) for leaf in state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        received = [torch.empty_like(gradient, memory_format=torch.contiguous_format) for gradient in gradients]
        for gradient in received:
            dist.recv(gradient, group=ctx.group, group_src=dist.get_rank(ctx.group) + 1)
        return None, d_y, *(one + other for one, other in zip(gradients, received, strict=True))
