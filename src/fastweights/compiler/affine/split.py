"""Splits states along an axis, such as a complex memory `[2, V, K]` into its real and its imaginary part.

A step that mixes the numbers along an axis of one state then mixes several states, which the finder knows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import TypeVar

from fastweights.compiler.affine.form import StateSplit
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Expression,
    Index,
    Input,
    Load,
    Map,
    Node,
    Reduce,
    Region,
    Reshape,
    Shape,
    Value,
    identity,
    load_nodes,
    substitute,
    upstream,
    whole,
)
from fastweights.compiler.ir.step import Forward

MOST = 16
"""Maximum number of pieces, since coupled states have a matrix of this size at every step."""
T = TypeVar("T")
COMBINED = {"sum": "add", "max": "maximum", "min": "minimum"}


def splits_of(step: Forward, axes: Mapping[str, Sequence[str]]) -> Iterator[tuple[StateSplit, ...]]:
    """The candidates: each state by itself along each axis of memories, then all states that share such an axis.

    `axes` has the axes by state. Those of keys and values are not split.
    """
    for axis in dict.fromkeys(axis for its in axes.values() for axis in its if not {*axis} & {*"KV"}):
        splits = tuple(_split(step, name, its.index(axis), step.state) for name, its in axes.items() if axis in its)
        if 1 < len(splits[0].pieces) <= MOST:
            yield from ((split,) for split in splits)
            yield from [splits] if len(splits) > 1 else []


def _split(step: Forward, name: str, axis: int, taken: Collection[str]) -> StateSplit:
    name_of_piece = name
    while any(other.startswith(f"{name_of_piece}_") for other in taken):
        name_of_piece += "_"
    size = step.state[name].shape[axis]
    return StateSplit(name, axis, tuple(f"{name_of_piece}_{position}" for position in range(size)))


def split_step(step: Forward, splits: Sequence[StateSplit]) -> Forward:
    """The same step with the pieces in place of the states that are split."""
    by_state = {split.state: split for split in splits}
    splitter = Splitter({record[s.state]: s.axis for s in splits for record in (step.state, step.after)})
    state, after, new_state, lines = dict[str, Input](), dict[str, Input](), dict[str, Value](), list[str]()
    for (name, value), line in zip(step.new_state.items(), step.lines, strict=False):
        pieces = by_state[name].pieces if name in by_state else (name,)
        state |= zip(pieces, splitter.inputs_of(step.state[name]), strict=True)
        after |= zip(pieces, splitter.inputs_of(step.after[name]), strict=True)
        values = splitter.pieces_of(value, by_state[name].axis) if name in by_state else [splitter.value(value)]
        new_state |= zip(pieces, values, strict=True)
        lines += [line] * len(pieces)
    y, all_lines = splitter.value(step.y), (*lines, step.lines[-1])
    return replace(step, state=state, after=after, new_state=new_state, y=y, lines=all_lines)


class Splitter:
    """Rewrites nodes. A node that depends on a split state is split along every axis that runs along the pieces."""

    def __init__(self, axes: Mapping[Node, int]) -> None:
        self._axes: dict[Node, tuple[int, ...]] = {d: (axis,) for d, axis in axes.items()}
        self._inputs: dict[Node, list[Input]] = {
            d: [Input(_without(d.shape, (axis,))) for _ in range(d.shape[axis])] for d, axis in axes.items()
        }
        self._pieces: dict[tuple[Node, Shape], Node] = {
            (d, (position,)): piece for d, pieces in self._inputs.items() for position, piece in enumerate(pieces)
        }
        self._split = {*axes}

    def inputs_of(self, node: Input) -> list[Input]:
        """The pieces of a state; the state itself if it is not split."""
        return self._inputs.get(node, [node])

    def value(self, value: Value) -> Value:
        """The value with pieces in place of the states."""
        if not self._axes_of(value.expression):
            return Value(value.shape, self._rewritten(value.expression))
        return whole(self._joined(Map(value.shape, value.expression)))

    def pieces_of(self, value: Value, axis: int) -> list[Value]:
        """The value at every position along an axis."""
        shape = _without(value.shape, (axis,))
        places = [_fixed(len(value.shape), (axis,), (position,)) for position in range(value.shape[axis])]
        return [self.value(Value(shape, substitute(value.expression, place))) for place in places]

    def _axes_of(self, expression: Expression) -> frozenset[int]:
        """The axes of an expression that run along the pieces of a node."""
        loaded = ((load.index[a] for a in self._axes_of_node(load.node)) for load in load_nodes(expression))
        return frozenset(index.axis for indices in loaded for index in indices if index.axis >= 0)

    def _axes_of_node(self, node: Node) -> tuple[int, ...]:
        if node not in self._axes:
            self._axes[node] = tuple(sorted(self._split_axes(node))) if self._depends(node) else ()
        return self._axes[node]

    def _depends(self, node: Node) -> bool:
        return not self._split.isdisjoint(upstream([node]))

    def _split_axes(self, node: Node) -> frozenset[int]:
        match node:
            case Reshape(shape, base):
                axes = self._axes_of_node(base)
                return frozenset(axes if all(shape[: a + 1] == base.shape[: a + 1] for a in axes) else ())
            case Assemble(shape, regions):
                cut = {a for region in regions for a, n in enumerate(shape) if region.shape[a] < n <= MOST}
                return frozenset(cut).union(*(self._axes_of(region.expression) for region in regions))
        split_axes = frozenset[int]().union(*(self._axes_of(body.expression) for body in node.bodies))
        return split_axes - {len(node.shape)}

    def _rewritten(self, expression: Expression) -> Expression:
        """An expression that runs along no pieces, with the pieces that it reads."""
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(map(self._rewritten, expression.arguments)))
        if not isinstance(expression, Load):
            return expression
        node, index = expression.node, expression.index
        axes = self._axes_of_node(node)
        piece, rest = self._piece(node, tuple(index[a].start for a in axes)), _without(index, axes)
        # A copy is not read, so that products stay visible.
        is_copy = isinstance(piece, Map) and isinstance(piece.expression, Load)
        return substitute(piece.expression, rest) if is_copy else Load(piece, rest)  # type: ignore[attr-defined]

    def _joined(self, node: Node) -> Node:
        """A node that is split, as a whole."""
        axes = self._axes_of_node(node)
        if not axes:
            return self._piece(node, ())
        regions = []
        for positions in product(*(range(node.shape[a]) for a in axes)):
            start = tuple(positions[axes.index(a)] if a in axes else 0 for a in range(len(node.shape)))
            shape = tuple(1 if a in axes else n for a, n in enumerate(node.shape))
            index = _without(identity(shape), axes)
            regions.append(Region(start, shape, Load(self._piece(node, positions), index)))
        return Assemble(node.shape, tuple(regions), line=node.line)

    def _piece(self, node: Node, positions: Shape) -> Node:
        """A node at positions along the axes of its pieces."""
        if not self._depends(node):
            return node
        if (node, positions) not in self._pieces:
            self._pieces[node, positions] = self._made(node, positions)
        return self._pieces[node, positions]

    def _made(self, node: Node, positions: Shape) -> Node:
        axes, line = self._axes_of_node(node), node.line
        shape = _without(node.shape, axes)
        at = _fixed(len(node.shape), axes, positions)
        match node:
            case Map(_, expression):
                return Map(shape, self._rewritten(substitute(expression, at)), line=line)
            case Reduce(_, reduction, extent, expression):
                return self._reduced(shape, reduction, extent, expression, at, line)
            case Assemble(_, regions):
                return self._assembled(shape, regions, axes, positions, line)
            case Reshape(_, base):
                return Reshape(shape, self._piece(base, positions) if axes else self._joined(base), line=line)
        raise AssertionError(f"{node} is no input of the step")

    def _reduced(
        self, shape: Shape, reduction: str, extent: int, expression: Expression, at: Sequence[Index], line: str
    ) -> Node:
        """A reduction. That along pieces is a chain of functions."""
        if len(at) not in self._axes_of(expression):
            inside = substitute(expression, [*at, Index(len(shape))])
            return Reduce(shape, reduction, extent, self._rewritten(inside), line=line)  # type: ignore[arg-type]
        places = (Index(-1, 0, position) for position in range(extent))
        parts = [self._rewritten(substitute(expression, [*at, place])) for place in places]
        return Map(shape, reduce(lambda x, y: Apply(COMBINED[reduction], (x, y)), parts), line=line)

    def _assembled(
        self, shape: Shape, regions: Sequence[Region], axes: tuple[int, ...], positions: Shape, line: str
    ) -> Node:
        """The regions at positions along some axes. Later regions hide earlier ones."""
        pieces = list[Region]()
        for start, size, expression in regions:
            inside = [p - start[a] for a, p in zip(axes, positions, strict=True)]
            if all(0 <= p < size[a] for a, p in zip(axes, inside, strict=True)):
                part = substitute(expression, _fixed(len(size), axes, inside))
                pieces.append(Region(_without(start, axes), _without(size, axes), self._rewritten(part)))
        if pieces and pieces[-1].shape == shape:
            return Map(shape, pieces[-1].expression, line=line)
        return Assemble(shape, tuple(pieces), line=line)


def _fixed(rank: int, axes: Sequence[int], positions: Sequence[int]) -> list[Index]:
    """The index of a node at positions along some axes, in terms of its other axes."""
    left = [a for a in range(rank) if a not in axes]
    place = dict(zip(axes, positions, strict=True))
    return [Index(-1, 0, place[a]) if a in place else Index(left.index(a)) for a in range(rank)]


def _without(items: Sequence[T], axes: Collection[int]) -> tuple[T, ...]:
    return tuple(item for a, item in enumerate(items) if a not in axes)
