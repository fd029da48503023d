"""One sequence over several processes of `torch.distributed`, each with a stretch of its time.

The states of a recurrence are small beside its sequence: nothing else is handed from one process to the next, and
gradients of them back. Memories whose states the compiler finds to be rows of one matrix S that is affine in itself
first compute, all at once, what their stretches do with any S,

    S[end] = S[start] kept + written,     read[t] = base[t] + S[start] queries[t],

so that only two products wait for the process before. All other cells wait for their turn.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.backends.chunkwise import Stretch, stretch
from fastweights.call.call import pose
from fastweights.cell import Cell
from fastweights.core.autocast import full_precision
from fastweights.dispatch import scan


def scan_over_ranks(
    cell: str | Cell | Callable[..., Any],
    inputs: Any,
    state: Any = None,
    params: Any = None,
    reset: Tensor | None = None,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Any]:
    """Runs a cell over a sequence that is cut over processes: all of them call this, and all go backward.

    Args:
        cell: What `scan` takes.
        inputs: `cell.Inputs` of tensors `[B, T, H, ...]`: this process's stretch, those before it in earlier processes.
            T may be another one in each.
        state: `cell.State` before the whole sequence, of which only the first process's counts. None: zeros.
        params: `cell.Params`, the same in all processes, of which each has a gradient of its own: they are to be added.
        reset: bool `[B, T]`: the state goes back to zeros before step t.
        group: The processes in the order of time; all of them if None.

    Returns:
        y `[B, T, H, V]` of this stretch, and the state after it: the last process's is that after the sequence.

    Raises:
        InputError: an input does not fit the cell.
    """
    cell = Cell.from_function(cell)
    problem = pose(cell, inputs, state, params, reset, None, None)
    with full_precision(problem.inputs[0].device):
        segment = stretch(problem)
        if segment is not None:
            return _at_once(segment, group)
        before = _receive(problem.state, group)
        y, after = scan(cell, inputs, before, params, reset)
        return _send(y, after, group)


def _at_once(segment: Stretch, group: dist.ProcessGroup | None) -> tuple[Tensor, Any]:
    """Completes a segment, which needs only the last two products."""
    start = _receive(segment.problem.state, group)
    return _send(segment.output(start), segment.after(start), group)


def _receive(state: Any, group: dist.ProcessGroup | None) -> Any:
    """Receives the state of the previous process; returns `state` in the first process."""
    if dist.get_rank(group) == 0:
        return state
    leaves, structure = tree_flatten(state)
    # Received tensors have gradients, though no input here needs one.
    hooks = [leaf.detach().requires_grad_() for leaf in leaves]
    return tree_unflatten(list(Receive.apply(group, *hooks)), structure)


def _send(y: Tensor, state: Any, group: dist.ProcessGroup | None) -> tuple[Tensor, Any]:
    """Sends the state to the next process, if there is one; returns its arguments."""
    if dist.get_rank(group) == dist.get_world_size(group) - 1:
        return y, state
    leaves, structure = tree_flatten(state)
    y, *leaves = Send.apply(group, y, *leaves)
    return y, tree_unflatten(leaves, structure)


class Receive(torch.autograd.Function):
    """Receives tensors from the previous process, and sends their gradients back to it."""

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
    """Sends all tensors but the first to the next process, and receives their gradients from there.

    The first only takes part so that its backward pass waits for the gradients.
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
