"""Prints nodes as text, for `fastweights explain CELL --ir`."""

from collections.abc import Iterator, Mapping, Sequence

from fastweights.compiler.ir.functions import SIGNS
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
    ConstantTensor,
    Expression,
    Index,
    Input,
    Load,
    Map,
    Node,
    Reduce,
    Reshape,
    Shape,
    Value,
    ancestors,
)
from fastweights.compiler.ir.passes import Pass, Passes
from fastweights.compiler.ir.step import Step

AXES = "ijklmnop"
FEW = 8
"""Largest number of elements of a constant tensor that are printed."""


def show_step(step: Step) -> str:
    """A step and its gradient."""
    records = {"state": step.state, "in": step.inputs, "param": step.params, "d_state": step.d_state}
    placeholders = {f"{role}_{name}": d for role, record in records.items() for name, d in record.items()}
    gradients = zip(("state", "in", "param"), step.gradients.values(), strict=True)
    results = {f"new state_{name}": v for name, v in step.new_state.items()} | {"y": step.y}
    results |= {f"d_{role}_{name}": v for role, record in gradients for name, v in record.items()}
    return "\n".join(_shown({**placeholders, "d_y": step.d_y}, results))


def show(passes: Passes) -> str:
    """All passes over time."""
    texts = (f"{name}, every step:\n{_pass(each, passes.params)}" for name, each in passes.by_name.items())
    return "\n\n".join(texts)


def _pass(shown: Pass, params: Mapping[str, Input]) -> str:
    results = {f"new {name}": v for name, v in shown.new.items()} | dict(shown.made)
    results |= {f"{name} +": v for name, v in shown.added.items()}
    return "\n".join(_shown({**shown.carried, **shown.moving, **params}, results))


def _shown(placeholders: Mapping[str, Node], results: Mapping[str, Value]) -> Iterator[str]:
    """The inputs that are read, then all computed nodes below the lines of the cell, then the results."""
    nodes = sorted(ancestors(results.values(), placeholders.values()), key=lambda d: d.serial)
    names = {d: name for name, d in placeholders.items()}
    computed = [d for d in nodes if d not in names]
    names |= {d: f"t{n}" for n, d in enumerate(computed)}
    yield from (f"  given {name}{_sizes(d.shape)}" for name, d in placeholders.items() if d in nodes)
    line = ""
    for node in computed:
        if node.line != line:
            line = node.line
            yield f"  # {line or 'the gradient'}"
        yield from (f"  {text}" for text in _lines(node, names))
    yield "  # results"
    for name, value in results.items():
        add = "+=" if name.endswith(" +") else "="
        yield f"  {name.removesuffix(' +')}{axes(value.shape)} {add} {written(value.expression, names)}"


def _lines(node: Node, names: Mapping[Node, str]) -> Iterator[str]:
    """A line per node, or per region of an assembled node."""
    name, shape = names[node], node.shape
    match node:
        case ConstantTensor(_, numbers):
            more = ", ..." if len(numbers) > FEW else ""
            yield f"{name}{_sizes(shape)} = {', '.join(f'{x:g}' for x in numbers[:FEW])}{more}"
        case Map(_, expression):
            yield f"{name}{axes(shape)} = {written(expression, names)}"
        case Reduce(_, reduction, extent, expression):
            axis = _axis(AXES[len(shape)], extent, 0)
            yield f"{name}{axes(shape)} = {reduction}({axis}) {written(expression, names)}"
        case Reshape(_, base):
            yield f"{name}{_sizes(shape)} = {names[base]}{_sizes(base.shape)} in the same order"
        case Assemble(_, regions):
            for start, part, expression in regions:
                yield f"{name}{axes(part, start)} = {written(expression, names)}"


def _sizes(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else ""


def axes(shape: Shape, start: Shape = ()) -> str:
    """Axes with their sizes, and their start where it is not 0. An axis with one element is printed as its index."""
    begins = start or (0,) * len(shape)
    parts = [_axis(AXES[a], n, begin) for a, (n, begin) in enumerate(zip(shape, begins, strict=True))]
    return f"[{', '.join(parts)}]" if parts else ""


def _axis(name: str, size: int, begin: int) -> str:
    if size == 1:
        return str(begin)
    return f"{begin} + {name} < {begin + size}" if begin else f"{name} < {size}"


def written(expression: Expression, names: Mapping[Node, str]) -> str:
    """An expression, with the names of the nodes that it reads."""
    match expression:
        case Constant(number):
            return f"{number:g}"
        case Load(node, index):
            return element(names[node], index)
        case Apply(function, arguments):
            parts = [written(a, names) for a in arguments]
            if function in SIGNS:
                return f"({parts[0]} {SIGNS[function]} {parts[1]})"
            return f"{function}({', '.join(parts)})"


def element(name: str, index: Sequence[Index]) -> str:
    """An element of a named tensor."""
    return f"{name}[{', '.join(map(_place, index))}]" if index else name


def _place(index: Index) -> str:
    axis, step, start = index
    if axis < 0:
        return str(start)
    along = AXES[axis] if step == 1 else f"{step} * {AXES[axis]}"
    return along if start == 0 else f"{along} + {start}"
