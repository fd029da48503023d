"""The definition: the cell under `torch.vmap`, one step after the other."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fastweights.problem import Problem


def refusal(problem: Problem) -> str:
    """Nothing: any cell, device and dtype, any order of differentiation."""
    return ""


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the cell over batch and heads with `vmap` and over time with a loop."""
    step = _over_batch_and_heads(problem)
    state, outputs = problem.state, []
    for t, x in enumerate(_steps(problem.inputs)):
        if problem.reset is not None:
            state = where(problem.reset[:, t], problem.initial, state)
        state, y = step(state, x)
        outputs.append(y)
    return torch.stack(outputs, dim=1).to(problem.dtype), state


def where(reset: Tensor, initial: Any, state: Any) -> Any:
    """The initial state for the members of the batch that are reset (`[B]`), the old one for the others."""

    def choose(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(reset.view(-1, *[1] * (old.ndim - 1)), new, old)

    return tree_map(choose, initial, state)


def _over_batch_and_heads(problem: Problem) -> Any:
    step = problem.cell.step
    if problem.params is None:
        return torch.vmap(torch.vmap(step))
    both = torch.vmap(torch.vmap(step), in_dims=(0, 0, None))
    return lambda state, x: both(state, x, problem.params)


def _steps(inputs: Any) -> list[Any]:
    # unbind once: indexing step by step would make the backward pass quadratic in T.
    return [type(inputs)(*x) for x in zip(*(value.unbind(1) for value in inputs), strict=True)]
