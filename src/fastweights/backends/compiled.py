"""The cell compiled for this CPU: traced once, lowered to C++, built by the system's compiler and kept on disk."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.backends._transforms import transform
from fastweights.compiler.forms import Form, forms, why_never
from fastweights.compiler.op import scan
from fastweights.problem import Problem


def refusal(problem: Problem) -> str:
    """Why this backend cannot run the problem; empty if it can."""
    first = problem.inputs[0]
    if first.is_meta:
        return ""  # shapes need no kernel
    if first.device.type != "cpu":
        return f"it compiles for cpu, not for {first.device.type}"
    transformed = transform()
    if transformed:
        return transformed
    return why_never(problem.cell.key) if torch.compiler.is_compiling() else _form(problem)[0].refusal


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the compiled cell."""
    tensors = [*problem.inputs, *problem.state, *(() if problem.params is None else problem.params)]
    initial = [] if problem.reset is None else list(problem.initial)
    lengths = None if problem.lengths is None else problem.lengths.long()
    cell = problem.cell
    if not torch.compiler.is_compiling():
        form, captured = _form(problem)
        cell, heads = form.cell, problem.leading[2]
        tensors += [x.to(tensors[0].dtype).expand(heads, *x.shape) for x in captured]
    y, state = scan(cell, tensors, initial, problem.reset, lengths)
    return y.to(problem.dtype), problem.cell.State(*state)


def _form(problem: Problem) -> tuple[Form, Sequence[Tensor]]:
    """What the step is now; asked once a call."""
    if "form" not in problem.found:
        if "forms" not in problem.known:
            problem.known["forms"] = forms(problem.cell, problem.sizes, problem.inputs[0].dtype)
        problem.found["form"] = problem.known["forms"].now()
    found: tuple[Form, Sequence[Tensor]] = problem.found["form"]
    return found
