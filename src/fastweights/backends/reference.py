"""The definition: the cell under `torch.vmap`, one step after the other."""

import logging
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fastweights.call.call import Problem
from fastweights.compiler.frontend.derivatives import without_derivatives
from fastweights.core.padding import only
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

GRAPH = "graph of the step"
OF_HOOKS = "saved tensor hooks"
"""Text of the error that `torch.func.grad` raises inside gradient checkpointing, which is a pair of such hooks."""


def refusal(problem: Problem, build: bool) -> str:
    """Nothing: any cell, device and dtype, any order of differentiation."""
    return ""


def cost(problem: Problem) -> float:
    """In the time of a compiled kernel: 10 to 200 were measured."""
    return 50.0


def told(problem: Problem) -> str:
    """Nothing more than that it runs."""
    return ""


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the cell over batch and heads with `vmap` and over time with a loop."""
    problem = problem.mapped
    step, inside = _over_batch_and_heads(problem), problem.inside
    state, outputs = problem.state, []
    for t, x in enumerate(_steps(problem.finite_inputs)):
        if problem.reset is not None:
            state = where(problem.reset[:, t], problem.initial, state)
        after, y = step(state, x)
        state = after if inside is None else where(inside[:, t], after, state)
        outputs.append(y)
    y = torch.stack(outputs, dim=1).to(problem.dtype)
    return y if inside is None else only(inside, y), state


def _over_batch_and_heads(problem: Problem) -> Callable[[Any, Any], Any]:
    """The step for all heads at once or, where its Python looks at a number (`if x.beta > 0.5`), one after the other.

    Random numbers differ from head to head, as they do where the step is called for each.
    """
    step, params = _step(problem), () if problem.params is None else (problem.params,)
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
                if OF_HOOKS in str(error) and step is problem.cell.step:
                    step = _as_graph(problem)
                    both = _batched(step, len(params))
                    return run(state, x)
                if not _is_of_vmap(error):
                    raise
                reason = reason_of(error)
        result = _one_after_the_other(step, state, x, params)
        if not loops:
            loops = True
            _log_once(f"{problem.cell.name} runs one head after the other, which is slow: {reason}")
        return result

    return run


def _batched(step: Callable[..., Any], params: int) -> Callable[..., Any]:
    """The step over a batch and its heads; parameters differ by head alone."""
    heads = torch.vmap(step, randomness="different")
    return torch.vmap(heads, in_dims=(0, 0, *[None] * params), randomness="different")


def _is_of_vmap(error: RuntimeError) -> bool:
    """Whether the step may run for one head after the other."""
    return type(error) is not torch.OutOfMemoryError and any(text in str(error) for text in OF_VMAP)


def _step(problem: Problem) -> Callable[..., Any]:
    if not torch.compiler.is_exporting():
        return problem.cell.step
    return _without_derivatives(problem)


def _without_derivatives(problem: Problem) -> Callable[..., Any]:
    sizes = tuple((axis, int(size)) for axis, size in problem.sizes.items())
    return without_derivatives(problem.cell, sizes, problem.inputs[0].dtype)


def _as_graph(problem: Problem) -> Callable[..., Any]:
    """The step without derivatives, traced once for all calls alike: with gradient checkpointing each of them asks."""
    if GRAPH not in problem.known:
        problem.known[GRAPH] = _without_derivatives(problem)
    graph: Callable[..., Any] = problem.known[GRAPH]
    return graph


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
