"""What a lowered step comes to under the compiler's interpreter, and what autograd says. No C++."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights import Cell
from fastweights.compiler.frontend.lower import lower
from fastweights.compiler.frontend.trace import trace
from fastweights.compiler.ir.interpret import Interpreter
from fastweights.compiler.ir.verify import verify_step


def interpreted(cell: Cell, sizes: Mapping[str, int], records: Sequence[Any], back: Sequence[Tensor]) -> list[Tensor]:
    """The new state, y, and the gradients of state, inputs and params, from what comes `back` to state and y."""
    step = lower(trace(cell, sizes, torch.float64))
    verify_step(step)
    tensors = [x.double() for record in records for x in record]
    interpreter = Interpreter(dict(zip(step.given, [*tensors, *back], strict=True)))
    return [interpreter.value(value) for value in step.results]


def expected(cell: Cell, records: Sequence[Any], back: Sequence[Tensor]) -> list[Tensor]:
    """The same by autograd."""
    leaves = [type(record)(*(x.double().requires_grad_() for x in record)) for record in records]
    state, y = cell.step(*leaves)
    flat = [x for record in leaves for x in record]
    return [*state, y, *torch.autograd.grad([*state, y], flat, back, materialize_grads=True)]
