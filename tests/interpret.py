"""What a lowered step means: its definitions computed one by one with torch. The oracle of the lowering, and no C++."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights import Cell
from fastweights.compiler.ir import Apply, Constant, Definition, Expression
from fastweights.compiler.lower import Value, lower
from fastweights.compiler.trace import trace

REDUCE = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}
FUNCTIONS = {"identity": lambda x: x}


class Interpreter:
    """Computes definitions from those that are given."""

    def __init__(self, given: Mapping[Definition, Tensor]) -> None:
        self.known = dict(given)

    def value(self, value: Value) -> Tensor:
        return self._expression(value.expression, value.shape)

    def _expression(self, expression: Expression, domain: Sequence[int]) -> Tensor:
        if isinstance(expression, Constant):
            return torch.full(domain, expression.value, dtype=torch.float64)
        if isinstance(expression, Apply):
            function = FUNCTIONS.get(expression.function) or getattr(torch, expression.function)
            return function(*(self._expression(a, domain) for a in expression.arguments))
        tensor = self._definition(expression.definition)
        places = [self._along(index, domain) for index in expression.index]
        return (tensor[tuple(places)] if places else tensor).expand(domain)

    def _along(self, index: Any, domain: Sequence[int]) -> Tensor:
        shape = [1] * len(domain)
        if index.axis < 0:
            return torch.full(shape, index.start)
        shape[index.axis] = domain[index.axis]
        return (index.start + index.step * torch.arange(domain[index.axis])).reshape(shape)

    def _definition(self, definition: Definition) -> Tensor:
        if definition not in self.known:
            self.known[definition] = self._made(definition)
        return self.known[definition]

    def _made(self, definition: Definition) -> Tensor:
        match definition.kind:
            case "map":
                return self._expression(definition.expression, definition.shape)
            case "reduce":
                return REDUCE[definition.reduction](self._expression(definition.expression, definition.domain), -1)
            case "alias":
                return self._definition(definition.base).reshape(definition.shape)
            case "table":
                return torch.tensor(definition.numbers, dtype=torch.float64).reshape(definition.shape)
        whole = torch.empty(definition.shape, dtype=torch.float64)
        for start, shape, expression in definition.regions:
            box = tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))
            whole[box] = self._expression(expression, shape)
        return whole


def interpreted(cell: Cell, sizes: Mapping[str, int], records: Sequence[Any], back: Sequence[Tensor]) -> list[Tensor]:
    """The new state, y, and the gradients of state, inputs and params, from what comes `back` to state and y."""
    step = lower(trace(cell, sizes, torch.float64))
    given = [*step.state.values(), *step.inputs.values(), *step.params.values(), *step.d_state.values(), step.d_y]
    tensors = [x.double() for record in records for x in record]
    interpreter = Interpreter(dict(zip(given, [*tensors, *back], strict=True)))
    gradients = [value for kind in ("state", "inputs", "params") for value in step.gradients[kind].values()]
    return [interpreter.value(value) for value in (*step.new_state.values(), step.y, *gradients)]


def expected(cell: Cell, records: Sequence[Any], back: Sequence[Tensor]) -> list[Tensor]:
    """The same by autograd."""
    leaves = [type(record)(*(x.double().requires_grad_() for x in record)) for record in records]
    state, y = cell.step(*leaves)
    flat = [x for record in leaves for x in record]
    return [*state, y, *torch.autograd.grad([*state, y], flat, back, materialize_grads=True)]
