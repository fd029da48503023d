"""The cell compiled for this CPU: traced once, lowered to C++, built by the system's compiler and kept on disk."""

from typing import Any

import torch
from torch import Tensor

from fastweights.compiler.op import scan
from fastweights.compiler.refusal import why_never, why_not
from fastweights.problem import Problem


def refusal(problem: Problem) -> str:
    """Why this backend cannot run the problem; empty if it can."""
    first = problem.inputs[0]
    if first.is_meta:
        return ""  # shapes need no kernel
    if first.device.type != "cpu":
        return f"it compiles for cpu, not for {first.device.type}"
    if torch.compiler.is_compiling():
        return why_never(problem.cell.key)
    return why_not(problem.cell.key, tuple(problem.sizes.items()), first.dtype)


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the compiled cell."""
    tensors = [*problem.inputs, *problem.state, *(() if problem.params is None else problem.params)]
    initial = [] if problem.reset is None else list(problem.initial)
    lengths = None if problem.lengths is None else problem.lengths.long()
    y, state = scan(problem.cell, tensors, initial, problem.reset, lengths)
    return y.to(problem.dtype), problem.cell.State(*state)
