"""The definition: the cell under `torch.vmap`, one step after the other."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fastweights.lengths import only
from fastweights.problem import Problem


def refusal(problem: Problem) -> str:
    """Nothing: any cell, device and dtype, any order of differentiation."""
    return ""


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the cell over batch and heads with `vmap` and over time with a loop."""
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


def where(chosen: Tensor, state: Any, other: Any) -> Any:
    """One state for the members of the batch that are chosen (bool `[B]`), the other for the others."""

    def choose(mine: Tensor, theirs: Tensor) -> Tensor:
        return torch.where(chosen.view(-1, *[1] * (mine.ndim - 1)), mine, theirs)

    return tree_map(choose, state, other)


def _over_batch_and_heads(problem: Problem) -> Any:
    step = problem.cell.step
    if problem.params is None:
        return torch.vmap(torch.vmap(step))
    both = torch.vmap(torch.vmap(step), in_dims=(0, 0, None))
    return lambda state, x: both(state, x, problem.params)


def _steps(inputs: Any) -> list[Any]:
    # unbind once: indexing step by step would make the backward pass quadratic in T.
    return [type(inputs)(*x) for x in zip(*(value.unbind(1) for value in inputs), strict=True)]
