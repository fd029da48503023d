"""Verifies that the records of the intermediate representation are well formed. Targets rely on these properties."""

from collections.abc import Collection, Iterable
from math import prod

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    KINDS,
    Apply,
    Assemble,
    Constant,
    ConstantTensor,
    Expression,
    Index,
    Input,
    Load,
    Node,
    Reduce,
    Reshape,
    Shape,
    Value,
    ancestors,
)
from fastweights.compiler.ir.passes import Passes
from fastweights.compiler.ir.step import Step


def verify_step(step: Step) -> None:
    """Checks that a lowered step is well formed, and that every gradient has the shape of its tensor."""
    verify(step.results, step.placeholders)
    for name, record in {"state": step.state, "inputs": step.inputs, "params": step.params}.items():
        assert record.keys() == step.gradients[name].keys()
        for field, d in record.items():
            assert step.gradients[name][field].shape == d.shape, f"the gradient of {field}"
    for field, d in step.state.items():
        assert step.new_state[field].shape == step.d_state[field].shape == d.shape, f"the new {field}"
    assert step.y.shape == step.d_y.shape


def verify_passes(passes: Passes) -> None:
    """Checks that every pass is well formed, and reads only its carried tensors, its moving tensors and the params."""
    for each in passes.by_name.values():
        verify(each.results, [*each.carried.values(), *each.moving.values(), *passes.params.values()])
        assert each.new.keys() == each.carried.keys()
        for name, d in each.carried.items():
            assert each.new[name].shape == d.shape, name
    assert passes.backward.moving.keys() >= passes.recompute.made.keys(), "what is kept is read"


def verify(results: Iterable[Value], placeholders: Collection[Node]) -> None:
    """Checks that results are well formed and computed from the given nodes only."""
    results = list(results)
    for value in results:
        _verify_numbers(value.expression, value.shape)
    for node in ancestors(results, placeholders):
        assert type(node) in KINDS, f"an unknown kind of node: {node!r}"
        assert node in placeholders or not isinstance(node, Input), "an input that is no placeholder"
        _verify_node(node)


def _verify_node(node: Node) -> None:
    for operand in node.operands():
        assert operand.serial < node.serial, "what is read is made before"
    for start, shape, expression in node.bodies:
        rank = len(node.shape)
        assert all(a >= 0 and a + n <= size for a, n, size in zip(start, shape, node.shape, strict=False))
        assert len(start) == rank
        assert len(shape) == rank + isinstance(node, Reduce)
        _verify_numbers(expression, shape)
    match node:
        case ConstantTensor(shape, numbers):
            assert len(numbers) == prod(shape), "as many numbers as elements"
        case Reduce(_, reduction, extent, _):
            assert reduction in ("sum", "max", "min")
            assert extent > 1, "a reduction of one element"
        case Reshape(shape, base):
            assert prod(shape) == prod(base.shape), "a reshape to another number of elements"
        case Assemble():
            assert _is_covered(node), "an element that no region writes"


def _is_covered(node: Assemble) -> bool:
    """Whether the regions write every element."""
    places = {place for start, shape, _ in node.regions for place in _box(start, shape)}
    return len(places) == node.size


def _box(start: Shape, shape: Shape) -> list[Shape]:
    places: list[Shape] = [()]
    for first, size in zip(start, shape, strict=True):
        places = [(*place, first + n) for place in places for n in range(size)]
    return places


def _verify_numbers(expression: Expression, domain: Shape) -> None:
    _verify_expression(expression, domain)
    assert not _is_mask(expression), "a mask in the place of numbers"


def _is_mask(expression: Expression) -> bool:
    return isinstance(expression, Apply) and FUNCTIONS[expression.function].is_mask


def _verify_expression(expression: Expression, domain: Shape) -> None:
    match expression:
        case Constant(number):
            assert isinstance(number, float)
        case Load(node, index):
            assert len(index) == len(node.shape), "one index an axis"
            for each, size in zip(index, node.shape, strict=True) if prod(domain) else ():
                _verify_index(each, size, domain)
        case Apply(function, arguments):
            assert function in FUNCTIONS, f"an unknown function: {function}"
            description = FUNCTIONS[function]
            assert len(arguments) == description.arity, f"{function} of {len(arguments)}"
            for n, argument in enumerate(arguments):
                _verify_expression(argument, domain)
                assert _is_mask(argument) == (n < description.masks), f"argument {n} of {function}"
        case _:
            raise AssertionError(f"an unknown kind of expression: {expression!r}")


def _verify_index(index: Index, size: int, domain: Shape) -> None:
    """Checks that an index stays inside the node, and that the index of an axis with one element is constant."""
    axis, step, start = index
    if axis < 0:
        assert 0 <= start < size, "an index outside"
        return
    assert axis < len(domain), "an axis that is not there"
    assert domain[axis] > 1, "an axis of one element"
    assert step != 0
    assert min(start, start + step * (domain[axis] - 1)) >= 0, "an index outside"
    assert max(start, start + step * (domain[axis] - 1)) < size, "an index outside"
