"""Whether rows of the state ever meet: where they do not, a head is cut, and every program keeps some of its rows.

Each definition of a step, forward and back, is one of four kinds. **Free**: made of inputs and params alone, so that a
program can have all of it, or its own rows. **Same**: all of it in every program. **Rows**: every program has its own
rows. **Part**: every program has a part of a sum over rows; it may only be added up further, down to a gradient, and
the parts are added when all programs are done. A sum of rows that anything else reads joins the rows: then the head
stays whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    Definition,
    Expression,
    Input,
    Load,
    Map,
    Reduce,
    Table,
    Value,
    load_nodes,
)
from fastweights.compiler.ir.step import Step
from fastweights.compiler.targets.triton.access_patterns import is_slow, is_whole, real

FREE, SAME, PART = "free", "same", "part"
Kind = str | int
"""One of these, or the axis along which rows are cut."""
ZERO = Constant(0.0)
MOST = 4
"""Leaves of a state that are tried; more of them have never been apart."""


class Meet(Exception):
    """Rows meet."""


@dataclass(frozen=True)
class Cut:
    """How a head is cut: which axis of every leaf of the state, if any, and what everything else is."""

    size: int
    leaves: dict[str, int | None]
    kinds: dict[Definition, Kind]

    def kind(self, value: Value) -> Kind:
        """What a value is."""
        return Kinds(self.kinds).expression(value.expression, value.shape)


def cut(step: Step) -> Cut | None:
    """The cut that leaves the least to every program; None where rows meet."""
    for size, leaves in _candidates(step):
        try:
            return Cut(size, leaves, _kinds(step, leaves))
        except Meet:
            continue
    return None


def _candidates(step: Step) -> Iterator[tuple[int, dict[str, int | None]]]:
    """Ways to cut the largest leaf, those first that cut the most leaves."""
    shapes = {name: d.shape for name, d in step.state.items()}
    largest = max(step.state, key=lambda name: step.state[name].size)
    if len(shapes) > MOST or len(real(shapes[largest])) < 2:
        return
    for axis in real(shapes[largest]):
        size = shapes[largest][axis]
        options = [
            [axis] if name == largest else [*(a for a in real(shape) if shape[a] == size), None]
            for name, shape in shapes.items()
        ]
        ways = [dict(zip(shapes, way, strict=True)) for way in product(*options)]
        yield from ((size, way) for way in sorted(ways, key=lambda w: list(w.values()).count(None)))


def _kinds(step: Step, leaves: Mapping[str, int | None]) -> dict[Definition, Kind]:
    """The kinds of all definitions, if a step keeps every leaf of its kind."""
    first: dict[Definition, Kind] = {}
    for name, axis in leaves.items():
        first[step.state[name]] = SAME if axis is None else axis
        first[step.d_state[name]] = PART if axis is None else axis
    kinds = Kinds(first)
    for name, value in step.new_state.items():
        _check(kinds.expression(value.expression, value.shape), leaves[name], (FREE, SAME))
    _check(kinds.expression(step.y.expression, step.y.shape), -1, (FREE, SAME))
    for name, value in step.gradients["state"].items():
        _check(kinds.expression(value.expression, value.shape), leaves[name], (FREE, SAME, PART))
    for kind in ("inputs", "params"):
        for value in step.gradients[kind].values():
            kinds.expression(value.expression, value.shape)
    return kinds.known


def _check(kind: Kind, axis: int | None, whole: Sequence[str]) -> None:
    """That a leaf cut along an axis has rows of its own, or free ones; one that is not cut is whole. -1: either."""
    rows = isinstance(kind, int)
    if axis is None and (rows or kind not in whole):
        raise Meet
    if axis is not None and axis >= 0 and kind not in (axis, FREE):
        raise Meet
    if axis == -1 and not rows and kind not in whole:
        raise Meet


class Kinds:
    """Finds the kind of everything from that of the state and its gradient."""

    def __init__(self, known: Mapping[Definition, Kind]) -> None:
        self.known = dict(known)

    def definition(self, definition: Definition) -> Kind:
        """The kind of a definition."""
        if definition not in self.known:
            self.known[definition] = self._made(definition)
        return self.known[definition]

    def _made(self, definition: Definition) -> Kind:
        match definition:
            case Input() | Table():
                return FREE
            case Map(shape, expression):
                return self.expression(expression, shape)
            case Reduce(shape, reduction, extent, expression) if not is_slow(definition):
                kind = self.expression(expression, (*shape, extent))
                kind = PART if kind == len(shape) else kind
                if kind != PART or reduction == "sum":
                    return kind
        raise Meet

    def expression(self, expression: Expression, domain: Sequence[int]) -> Kind:
        """The kind of an expression; the axis of its rows is one of the domain's."""
        if isinstance(expression, Constant):
            return FREE
        if isinstance(expression, Load):
            return self._load(expression, domain)
        kinds = [self.expression(a, domain) for a in expression.arguments]
        rows = {kind for kind in kinds if isinstance(kind, int)}
        if PART in kinds:
            return _of_parts(expression, kinds, bool(rows))
        if not rows:
            return SAME if SAME in kinds else FREE
        (axis, *others) = rows
        if others or self._is_read_along(expression, axis):
            raise Meet
        return axis

    def _load(self, load: Load, domain: Sequence[int]) -> Kind:
        if not is_whole(load, domain):
            raise Meet
        kind = self.definition(load.definition)
        return load.index[kind].axis if isinstance(kind, int) else kind

    def _is_read_along(self, expression: Expression, axis: int) -> bool:
        """Whether rows are wanted of what every program has whole, in registers."""
        return not all(
            self._is_had_in_rows(load.definition, place)
            for load in load_nodes(expression)
            for place, index in enumerate(load.index)
            if index.axis == axis
        )

    def _is_had_in_rows(self, definition: Definition, axis: int) -> bool:
        """Whether a program can compute some rows alone."""
        if self.definition(definition) != SAME:
            return True
        computed = isinstance(definition, Map | Reduce)
        return computed and not any(self._is_read_along(body.expression, axis) for body in definition.bodies)


def _of_parts(expression: Apply, kinds: Sequence[Kind], rows: bool) -> Kind:
    """The kind of a function of parts of sums: it must be linear in them."""
    branches = zip(kinds[1:], expression.arguments[1:], strict=True)
    linear = {
        **dict.fromkeys(("add", "sub", "neg", "identity"), True),
        "mul": kinds.count(PART) == 1,
        "div": kinds[-1] != PART,
        "where": kinds[0] != PART and all(kind == PART or branch == ZERO for kind, branch in branches),
    }
    if rows or not linear.get(expression.function, False):
        raise Meet
    return PART
