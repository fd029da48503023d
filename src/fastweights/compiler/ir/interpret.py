"""Interprets nodes one by one with PyTorch. The tests compare every pass and every target with the result."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
    ConstantTensor,
    Expression,
    Index,
    Load,
    Map,
    Node,
    Reduce,
    Reshape,
    Shape,
    Value,
)
from fastweights.compiler.ir.passes import Pass, Passes

REDUCTIONS: dict[str, Callable[..., Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


class Interpreter:
    """Computes nodes from the tensors of given nodes, in the dtype of these tensors."""

    def __init__(self, placeholders: Mapping[Node, Tensor]) -> None:
        self.known = dict(placeholders)
        self.dtype = next(iter(placeholders.values())).dtype

    def value(self, value: Value) -> Tensor:
        """The tensor of a value."""
        return self.evaluate(value.expression, value.shape)

    def evaluate(self, expression: Expression, domain: Shape) -> Tensor:
        """An expression at every index of a domain."""
        match expression:
            case Constant(number):
                return torch.full(domain, number, dtype=self.dtype)
            case Apply(function, arguments):
                return FUNCTIONS[function].meaning(*(self.evaluate(a, domain) for a in arguments))
            case Load(node, index):
                return read(self.tensor(node), index, domain)

    def tensor(self, node: Node) -> Tensor:
        """The tensor of a node."""
        if node not in self.known:
            self.known[node] = self._made(node)
        return self.known[node]

    def _made(self, node: Node) -> Tensor:
        match node:
            case ConstantTensor(shape, numbers):
                return torch.tensor(numbers, dtype=self.dtype).reshape(shape)
            case Map(shape, expression):
                return self.evaluate(expression, shape)
            case Reduce(shape, reduction, extent, expression):
                return REDUCTIONS[reduction](self.evaluate(expression, (*shape, extent)), -1)
            case Reshape(shape, base):
                return self.tensor(base).reshape(shape)
            case Assemble(shape, regions):
                whole = torch.full(shape, torch.nan, dtype=self.dtype)
                for start, part, expression in regions:
                    box = tuple(slice(a, a + n) for a, n in zip(start, part, strict=True))
                    whole[box] = self.evaluate(expression, part)
                return whole
        raise AssertionError(f"{node} is no placeholder")


def read(tensor: Tensor, index: Sequence[Index], domain: Shape) -> Tensor:
    """The elements that a load reads at every index of a domain."""
    places = []
    for axis, step, start in index:
        along = [domain[a] if a == axis else 1 for a in range(len(domain))]
        places.append((start + step * torch.arange(domain[axis] if axis >= 0 else 1)).reshape(along))
    return (tensor[tuple(places)] if places else tensor).expand(domain)


def interpret(passes: Passes, placeholders: Mapping[str, Tensor], T: int) -> dict[str, Tensor]:
    """The results and gradients of a scan of one head.

    Args:
        passes: The passes of the kernels.
        placeholders: Tensors by name: the first state `state_W`, the gradient of the last one `d_state_W`, the params,
            and all inputs and `d_y` with shape `[T, ...]`.
        T: Number of time steps.

    Returns:
        Tensors by name: y and the gradients of the inputs `[T, ...]`, the last state, and the gradients of the first
        state and of the params.
    """
    params: dict[Node, Tensor] = {d: placeholders[name] for name, d in passes.params.items()}
    moving = {name: placeholders[name] for name in (*passes.forward.moving, "d_y")}
    _, states, made = _walk(passes.forward, params, placeholders, moving, range(T))
    _, _, saved = _walk(passes.recompute, params, placeholders, moving, range(T))
    moving |= {name: torch.stack([s[name] for s in states[:-1]]) for name in passes.forward.carried} | saved
    added, d_states, d_made = _walk(passes.backward, params, placeholders, moving, range(T)[::-1])
    return {**made, **states[-1], **d_states[-1], **d_made, **added}


def _walk(
    kernel_pass: Pass,
    params: Mapping[Node, Tensor],
    start: Mapping[str, Tensor],
    moving: Mapping[str, Tensor],
    times: Iterable[int],
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], dict[str, Tensor]]:
    """The sums of a pass over all steps, its carried tensors before the first and after every step, and its outputs."""
    states = [{name: start[name] for name in kernel_pass.carried}]
    made: dict[int, dict[str, Tensor]] = {}
    dtype = next(iter(start.values())).dtype
    added = {name: torch.zeros(value.shape, dtype=dtype) for name, value in kernel_pass.added.items()}
    for t in times:
        known: dict[Node, Tensor] = {d: states[-1][name] for name, d in kernel_pass.carried.items()}
        known |= {d: moving[name][t] for name, d in kernel_pass.moving.items()}
        interpreter = Interpreter({**params, **known})
        states.append({name: interpreter.value(v) for name, v in kernel_pass.new.items()})
        made[t] = {name: interpreter.value(v) for name, v in kernel_pass.made.items()}
        added = {name: added[name] + interpreter.value(v) for name, v in kernel_pass.added.items()}
    in_order = [made[t] for t in sorted(made)]
    return added, states, {name: torch.stack([m[name] for m in in_order]) for name in kernel_pass.made}
