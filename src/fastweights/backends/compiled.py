"""The cell compiled: traced once, lowered to loops, and built by the target of the device, which keeps its kernels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.backends._transforms import transform
from fastweights.compiler.forms import Form, forms, why_never
from fastweights.compiler.op import scan
from fastweights.compiler.target import TARGETS
from fastweights.problem import Problem


def refusal(problem: Problem, build: bool) -> str:
    """Why this backend cannot run the problem; empty if it can. To `build` tells whether its kernel can be built."""
    first = problem.inputs[0]
    if first.is_meta:
        return ""  # shapes need no kernel
    if first.device.type not in TARGETS:
        return f"it compiles for {' and '.join(TARGETS)}, not for {first.device.type}"
    transformed = transform()
    if transformed:
        return transformed
    if torch.compiler.is_compiling():
        return why_never(problem.cell.key, first.device.type)
    form, _ = _form(problem)
    form.build() if build else form.check()
    return form.refusal


def cost(problem: Problem) -> float:
    """How long it takes: the measure of all others."""
    return 1.0


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
    first = problem.inputs[0]
    if "form" not in problem.found:
        if "forms" not in problem.known:
            problem.known["forms"] = forms(problem.cell, problem.sizes, first.dtype, first.device.type)
        problem.found["form"] = problem.known["forms"].now()
    found: tuple[Form, Sequence[Tensor]] = problem.found["form"]
    return found
