"""What definitions mean: computed one by one with torch. The oracle of every pass and of every target."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
    Definition,
    Expression,
    Index,
    Load,
    Map,
    Reduce,
    Reshape,
    Shape,
    Table,
    Value,
)
from fastweights.compiler.ir.passes import Pass, Passes

REDUCTIONS: dict[str, Callable[..., Tensor]] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


class Interpreter:
    """Computes definitions from tensors of those that are given, in the dtype of these."""

    def __init__(self, given: Mapping[Definition, Tensor]) -> None:
        self.known = dict(given)
        self.dtype = next(iter(given.values())).dtype

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
            case Load(definition, index):
                return read(self.tensor(definition), index, domain)

    def tensor(self, definition: Definition) -> Tensor:
        """The tensor of a definition."""
        if definition not in self.known:
            self.known[definition] = self._made(definition)
        return self.known[definition]

    def _made(self, definition: Definition) -> Tensor:
        match definition:
            case Table(shape, numbers):
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
        raise AssertionError(f"{definition} is not given")


def read(tensor: Tensor, index: Sequence[Index], domain: Shape) -> Tensor:
    """What loads of a tensor give at every index of a domain."""
    places = []
    for axis, step, start in index:
        along = [domain[a] if a == axis else 1 for a in range(len(domain))]
        places.append((start + step * torch.arange(domain[axis] if axis >= 0 else 1)).reshape(along))
    return (tensor[tuple(places)] if places else tensor).expand(domain)


def interpret(passes: Passes, given: Mapping[str, Tensor], T: int) -> dict[str, Tensor]:
    """A whole scan of one head, and its gradients: what the kernels of every target must come to.

    Args:
        passes: The passes of the kernels.
        given: By name: `state_W` before the first step, `d_state_W` after the last, params, and `[T, ...]` all inputs
            and `d_y`.
        T: Number of steps.

    Returns:
        y and `d_in_k` `[T, ...]`, the last state, the gradients of the first one, and those of the params.
    """
    params: dict[Definition, Tensor] = {d: given[name] for name, d in passes.params.items()}
    moving = {name: given[name] for name in (*passes.forward.moving, "d_y")}
    _, states, made = _walk(passes.forward, params, given, moving, range(T))
    _, _, kept = _walk(passes.recompute, params, given, moving, range(T))
    moving |= {name: torch.stack([s[name] for s in states[:-1]]) for name in passes.forward.carried} | kept
    added, d_states, d_made = _walk(passes.backward, params, given, moving, range(T)[::-1])
    return {**made, **states[-1], **d_states[-1], **d_made, **added}


def _walk(
    kernel_pass: Pass,
    params: Mapping[Definition, Tensor],
    start: Mapping[str, Tensor],
    moving: Mapping[str, Tensor],
    times: Iterable[int],
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], dict[str, Tensor]]:
    """What one pass adds up, what it carries before its first and after every step, and what it makes at each."""
    states = [{name: start[name] for name in kernel_pass.carried}]
    made: dict[int, dict[str, Tensor]] = {}
    dtype = next(iter(start.values())).dtype
    added = {name: torch.zeros(value.shape, dtype=dtype) for name, value in kernel_pass.added.items()}
    for t in times:
        known: dict[Definition, Tensor] = {d: states[-1][name] for name, d in kernel_pass.carried.items()}
        known |= {d: moving[name][t] for name, d in kernel_pass.moving.items()}
        interpreter = Interpreter({**params, **known})
        states.append({name: interpreter.value(v) for name, v in kernel_pass.new.items()})
        made[t] = {name: interpreter.value(v) for name, v in kernel_pass.made.items()}
        added = {name: added[name] + interpreter.value(v) for name, v in kernel_pass.added.items()}
    in_order = [made[t] for t in sorted(made)]
    return added, states, {name: torch.stack([m[name] for m in in_order]) for name in kernel_pass.made}
