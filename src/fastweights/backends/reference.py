"""The definition: the cell under `torch.vmap`, one step after the other."""

import logging
from collections.abc import Callable, Hashable
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fastweights.call.plan import FastPath
from fastweights.call.scan_call import ScanCall
from fastweights.cell import Cell
from fastweights.compiler.frontend.derivatives import without_derivatives
from fastweights.core.memo import get_or_compute
from fastweights.core.padding import mask_steps
from fastweights.core.source_location import reason_of
from fastweights.state import where

log = logging.getLogger("fastweights")

OF_VMAP = (
    "vmap",
    "Batching rule not implemented",
    "functorch transform",
    "inside of a function being transformed",
    "Tensor that doesn't have storage",
    "Cannot access storage",
    "doesn't match the broadcast shape",  # a new tensor is written into, which has no axis for the heads
    "stack expects each tensor to be equal size",  # a shape depends on numbers
    "Can't detach views in-place",
    "higher order operator",
)
"""Texts of the errors that `torch.vmap` raises for steps that run for one head alone."""

_GRAPHS: dict[Hashable, Callable[..., Any]] = {}
OF_HOOKS = "saved tensor hooks"
"""Text of the error that `torch.func.grad` raises inside gradient checkpointing, which is a pair of such hooks."""


def unsupported_reason(call: ScanCall, build: bool) -> str:
    """Empty: any cell, device and dtype, and any order of differentiation are supported."""
    return ""


def cost(call: ScanCall) -> float:
    """The time relative to a compiled kernel: 10 to 200 were measured."""
    return 50.0


def describe(call: ScanCall) -> str:
    """No details."""
    return ""


def fast_path(call: ScanCall) -> FastPath | None:
    """None: choosing a backend takes no time compared with a run."""
    return None


def run(call: ScanCall) -> tuple[Tensor, Any]:
    """Runs the cell over batch and heads with `vmap` and over time with a loop."""
    call = call.with_inner_cell()
    _, state, _, reset, _, initial_state = call.tensors
    step, valid = _over_batch_and_heads(call), call.valid
    outputs = []
    for t, x in enumerate(_steps(call.finite(call.inputs))):
        if reset is not None:
            state = where(reset[:, t], initial_state, state)
        after, y = step(state, x)
        state = after if valid is None else where(valid[:, t], after, state)
        outputs.append(y)
    y = torch.stack(outputs, dim=1).to(call.plan.dtype)
    return y if valid is None else mask_steps(valid, y), state


def _over_batch_and_heads(call: ScanCall) -> Callable[[Any, Any], Any]:
    """The step for all heads at once or, if its Python reads a value (`if x.beta > 0.5`), for one head after the other.

    Random numbers differ from head to head, as they do where the step is called for each.
    """
    step, params = _step(call), () if call.tensors.params is None else (call.tensors.params,)
    both = _batched(step, len(params))
    loops, reason = False, ""

    def run(state: Any, x: Any) -> Any:
        nonlocal step, both, loops, reason
        if not loops:
            try:
                return both(state, x, *params)
            except RuntimeError as error:
                if torch.compiler.is_compiling():
                    raise
                if OF_HOOKS in str(error) and step is call.cell.step:
                    step = _as_graph(call)
                    both = _batched(step, len(params))
                    return run(state, x)
                if not _is_of_vmap(error):
                    raise
                reason = reason_of(error)
        result = _one_after_the_other(step, state, x, params)
        if not loops:
            loops = True
            _log_once(f"{call.cell.name} runs one head after the other, which is slow: {reason}")
        return result

    return run


def _batched(step: Callable[..., Any], params: int) -> Callable[..., Any]:
    """The step over a batch and its heads; parameters differ by head alone."""
    over_heads = torch.vmap(step, randomness="different")
    return torch.vmap(over_heads, in_dims=(0, 0, *[None] * params), randomness="different")


def _is_of_vmap(error: RuntimeError) -> bool:
    """Whether the step may run for one head after the other."""
    return type(error) is not torch.OutOfMemoryError and any(text in str(error) for text in OF_VMAP)


def _step(call: ScanCall) -> Callable[..., Any]:
    if not torch.compiler.is_exporting():
        return call.cell.step
    return _without_derivatives(call.cell, tuple(call.plan.sizes.items()), call.plan.compute_dtype)


def _without_derivatives(cell: Cell, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> Callable[..., Any]:
    return without_derivatives(cell, tuple((axis, int(size)) for axis, size in sizes), dtype)


def _as_graph(call: ScanCall) -> Callable[..., Any]:
    """The step without derivatives, traced once per sizes and dtype: gradient checkpointing asks at every call."""
    sizes, dtype = tuple(call.plan.sizes.items()), call.plan.compute_dtype
    work = partial(_without_derivatives, call.cell, sizes, dtype)
    return get_or_compute(_GRAPHS, (call.cell.key, sizes, dtype), work)


def _one_after_the_other(step: Callable[..., Any], state: Any, x: Any, params: tuple[Any, ...]) -> Any:
    B, H = x[0].shape[:2]
    results = [
        step(*(_part(record, b, h) for record in (state, x)), *(_part(record, h) for record in params))
        for b, h in product(range(B), range(H))
    ]
    return tree_map(lambda *leaves: torch.stack(leaves).unflatten(0, (B, H)), *results)


def _part(record: Any, *place: int) -> Any:
    return type(record)(*(leaf[place] for leaf in record))


@cache
def _log_once(message: str) -> None:
    log.warning(message)


def _steps(inputs: Any) -> list[Any]:
    # unbind once: indexing step by step would make the backward pass quadratic in T.
    return [type(inputs)(*x) for x in zip(*(value.unbind(1) for value in inputs), strict=True)]
