"""Which tensors are kept, which loops run together, which axis is a vector, and how matrices lie in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    COMPUTED,
    Apply,
    Definition,
    Expression,
    Index,
    Load,
    Map,
    Reduce,
    Reshape,
    Shape,
    Value,
    identity,
    load_nodes,
    loads,
    substitute,
    volume,
)
from fastweights.compiler.targets.cpp.layout_constraints import Demands

CHEAP = 3
"""Operations that are rather done twice than a matrix written and read."""


@dataclass(eq=False)
class Layout:
    """The axes of a tensor from the outermost to the innermost; fixed where others expect it so."""

    order: tuple[int, ...]
    fixed: bool = False


@dataclass(eq=False)
class Buffer:
    """A tensor in memory; `name` is its pointer in the code. Buffers that hold the same thing share a layout."""

    name: str
    shape: Shape
    layout: Layout = field(default=None)  # type: ignore[assignment]
    local: bool = False

    def __post_init__(self) -> None:
        self.layout = self.layout or Layout(tuple(range(len(self.shape))), fixed=True)

    def named(self, name: str) -> "Buffer":
        """One that lies in the same way under another name."""
        return Buffer(name, self.shape, self.layout)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of every axis, in numbers."""
        order = self.layout.order
        return tuple(volume([self.shape[b] for b in order[order.index(a) + 1 :]]) for a in range(len(self.shape)))

    @property
    def is_scalar(self) -> bool:
        """Whether it is a variable rather than memory."""
        return self.local and not self.shape


class Target(NamedTuple):
    """What a kernel must leave in a buffer; with `add` it adds to what is there."""

    buffer: Buffer
    value: Value
    add: bool = False


@dataclass(eq=False)
class Statement:
    """One loop body: an expression over the axes of a nest, stored at `place`, or first reduced over `axis`."""

    definition: Definition
    shape: Shape
    expression: Expression
    place: tuple[Index, ...]
    reduction: str = ""
    axis: int = -1
    add: bool = False

    def moved(self, order: Sequence[int], shape: Shape) -> "Statement":
        """With axis `a` called `order[a]`."""
        place = tuple(i if i.axis < 0 else Index(order[i.axis], i.step, i.start) for i in self.place)
        axis = order[self.axis] if self.reduction else -1
        body = substitute(self.expression, [Index(a) for a in order])
        return Statement(self.definition, shape, body, place, self.reduction, axis, self.add)


@dataclass(eq=False)
class Nest:
    """Statements that run in one loop nest; the axes of each are those of the nest."""

    shape: Shape
    statements: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class Program:
    """A kernel: its loop nests in order, where every definition lies, and which states are updated in place."""

    nests: list[Nest]
    buffers: dict[Definition, Buffer]
    local: list[Buffer]
    in_place: set[str]

    def buffer(self, definition: Definition) -> Buffer:
        """Where a definition lies; an alias lies where its base does, under its own shape."""
        if isinstance(definition, Reshape):
            return Buffer(self.buffer(definition.base).name, definition.shape)
        return self.buffers[definition]


def schedule(
    given: dict[Definition, Buffer],
    targets: Sequence[Target],
    pairs: Iterable[tuple[str, str]],
    asked: Demands,
    first: Iterable[Definition] = (),
) -> Program:
    """Orders the computation of `targets` from `given`, with what is in `first` before the rest; `pairs` names the
    buffers (old, new) of every state."""
    return Scheduler(given, targets, asked, first).run(dict(pairs))


class Scheduler:
    """Makes one `Program`."""

    def __init__(
        self,
        given: dict[Definition, Buffer],
        targets: Sequence[Target],
        asked: Demands,
        first: Iterable[Definition],
    ) -> None:
        self.given = given
        self.asked = asked
        self.targets = targets
        self.buffers = dict(given)
        self.add: set[Definition] = set()
        self.roots = [self._root(target) for target in targets]
        self.order = list(_topological([*first, *self.roots], given))
        self.inlined: dict[Definition, Expression] = {}
        self.ready: dict[Definition, int] = {}
        self.nests: list[Nest] = []

    def _root(self, target: Target) -> Definition:
        """The definition that is computed right into the target's buffer."""
        expression = target.value.expression
        if isinstance(expression, Load) and not target.add:
            found = expression.definition
            whole = expression.index == identity(found.shape) and found.shape == target.value.shape
            if whole and isinstance(found, COMPUTED) and found not in self.buffers:
                self.buffers[found] = target.buffer
                return found
        copy = Map(target.value.shape, expression)
        self.buffers[copy] = target.buffer
        if target.add:
            self.add.add(copy)
        return copy

    def run(self, pairs: dict[str, str]) -> Program:
        """Decides what is kept, then groups the statements."""
        self._choose_inlined()
        kept = [d for d in self.order if d not in self.inlined and isinstance(d, COMPUTED)]
        local = self._allocate(kept)
        for definition in kept:
            for statement in self._statements(definition):
                self._insert(statement)
        in_place = {old for old, new in pairs.items() if self._in_place(old, new)}
        for buffer in self.buffers.values():
            buffer.name = next((old for old in in_place if pairs[old] == buffer.name), buffer.name)
        return Program(self.nests, self.buffers, local, in_place)

    def _choose_inlined(self) -> None:
        readers: dict[Definition, set[tuple[Definition, object]]] = {}
        sizes: dict[Definition, list[int]] = {}
        for reader in self.order:
            for _, domain, expression in reader.bodies:
                for load in set(load_nodes(expression)):
                    readers.setdefault(load.definition, set()).add((reader, load.index))
                    sizes.setdefault(load.definition, []).append(volume(domain))
        for definition in self.order:
            is_free = not (definition in self.buffers or definition in self.asked.in_order | self.asked.once)
            if isinstance(definition, Map) and is_free:
                resolved = self._resolve(definition.expression)
                if _inlines(definition, resolved, len(readers[definition]), max(sizes[definition])):
                    self.inlined[definition] = resolved

    def _resolve(self, expression: Expression) -> Expression:
        if isinstance(expression, Load):
            inside = self.inlined.get(expression.definition)
            return expression if inside is None else substitute(inside, expression.index)
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(self._resolve(a) for a in expression.arguments))
        return expression

    def _allocate(self, kept: Sequence[Definition]) -> list[Buffer]:
        local: list[Buffer] = []
        for definition in kept:
            if definition not in self.buffers:
                layout = Layout(tuple(range(len(definition.shape))), definition in self.asked.in_order)
                self.buffers[definition] = Buffer(f"t{len(local)}", definition.shape, layout, local=True)
                local.append(self.buffers[definition])
            elif definition in self.asked.in_order:
                self.buffers[definition].layout.fixed = True
        return local

    def _statements(self, definition: Definition) -> Iterator[Statement]:
        for start, domain, expression in definition.bodies:
            yield _statement(definition, domain, self._resolve(expression), start, definition in self.add)

    def _insert(self, statement: Statement) -> None:
        """Into the loop nest that reads most of the same, else into a new one at the end."""
        first = max((self._earliest(load) for load in load_nodes(statement.expression)), default=0)
        first = max(first, self.ready.get(statement.definition, 0))
        choices = [
            (score, -n, fitted)
            for n, nest in enumerate(self.nests)
            if n >= first - 1
            for fitted in _fits(statement, nest)
            if (score := self._score(fitted, nest, n, first)) > 0
        ]
        if choices:
            # A new state goes with the last reader of the old one, and can then take its place.
            last = self.buffers[statement.definition].name.startswith("new_")
            _, n, statement = min(choices, key=lambda c: (c[1], -c[0]) if last else (-c[0], -c[1]))
            self.nests[-n].statements.append(statement)
        else:
            n = -len(self.nests)
            self.nests.append(Nest(statement.shape, [statement]))
        self.ready[statement.definition] = max(-n + 1, self.ready.get(statement.definition, 0))

    def _earliest(self, load: Load) -> int:
        """The first nest that may read: one after the nest that stores."""
        definition = _base(load.definition)
        return self.ready.get(definition, 0)

    def _score(self, statement: Statement, nest: Nest, n: int, first: int) -> float:
        """0 if it may not run here, else how much it shares."""
        mine = set(load_nodes(statement.expression))
        stored = {s.definition: s for s in nest.statements}
        for load in mine:
            writer = stored.get(_base(load.definition))
            if writer is not None and not _forwards(load, writer):
                return 0
            if writer is None and self.ready.get(_base(load.definition), 0) > n:
                return 0
        if statement.definition in stored or self.ready.get(statement.definition, 0) > n:
            return 0
        theirs = {load for s in nest.statements for load in load_nodes(s.expression)}
        shared = sum(len(load.index) > 1 for load in mine & theirs) + sum(load.definition in stored for load in mine)
        rank = len(statement.shape)
        return shared if rank > 1 else shared + 0.5

    def _in_place(self, old: str, new: str) -> bool:
        """Whether nothing reads the old state once the new one is stored over it."""
        stores = [n for n, nest in enumerate(self.nests) for s in nest.statements if self._name(s.definition) == new]
        for n, nest in enumerate(self.nests):
            writers = [s for s in nest.statements if self._name(s.definition) == new]
            for statement in nest.statements:
                for load in load_nodes(statement.expression):
                    if self._name(load.definition) != old or not stores or n < min(stores):
                        continue
                    same = len(stores) == 1 and n == stores[0] and not isinstance(load.definition, Reshape)
                    if not same or load.index != writers[0].place or writers[0].reduction:
                        return False
        return True

    def _name(self, definition: Definition) -> str:
        return self.buffers[_base(definition)].name if _base(definition) in self.buffers else ""


def _topological(roots: Iterable[Definition], given: Iterable[Definition]) -> Iterator[Definition]:
    """Every definition that is needed, operands first."""
    seen = set(given)

    def visit(definition: Definition) -> Iterator[Definition]:
        if definition in seen:
            return
        seen.add(definition)
        for operand in definition.operands():
            yield from visit(operand)
        yield definition

    for root in roots:
        yield from visit(root)


def _inlines(definition: Definition, resolved: Expression, readers: int, size: int) -> bool:
    """Whether to compute it where it is read: there is one reader of the same size, or it is cheaper than memory."""
    if not list(loads(resolved)):
        return True
    work = _work(resolved)
    if readers == 1 and size <= definition.size:
        return True
    return work == 0 or (len(definition.shape) > 1 and size <= definition.size and work <= CHEAP)


def _work(expression: Expression) -> int:
    if not isinstance(expression, Apply):
        return 0
    own = CHEAP + 1 if FUNCTIONS[expression.function].is_slow else 1
    return own + sum(_work(a) for a in expression.arguments)


def _base(definition: Definition) -> Definition:
    return _base(definition.base) if isinstance(definition, Reshape) else definition


def _statement(
    definition: Definition, domain: Shape, expression: Expression, start: Shape, add: bool = False
) -> Statement:
    """Over the axes of more than one element only."""
    kept = [a for a, n in enumerate(domain) if n > 1]
    axes = [Index(kept.index(a)) if a in kept else Index(-1, 0, 0) for a in range(len(domain))]
    place = tuple(Index(axes[a].axis, 1, s) if axes[a].axis >= 0 else Index(-1, 0, s) for a, s in enumerate(start))
    shape = tuple(domain[a] for a in kept)
    reduction = definition.reduction if isinstance(definition, Reduce) else ""
    axis = len(kept) - 1 if reduction else -1
    return Statement(definition, shape, substitute(expression, axes), place, reduction, axis, add)


def _fits(statement: Statement, nest: Nest) -> Iterator[Statement]:
    """The ways to name the axes of a statement after those of a nest."""
    if sorted(statement.shape) == sorted(nest.shape):
        for order in permutations(range(len(nest.shape))):
            if all(nest.shape[place] == n for place, n in zip(order, statement.shape, strict=True)):
                yield statement.moved(order, nest.shape)


def _forwards(load: Load, writer: Statement) -> bool:
    """Whether a nest may read what it has just stored: the same element, not reduced, not under another shape."""
    whole = load.definition is writer.definition and isinstance(writer.definition, Map)
    return whole and not writer.reduction and not writer.add and load.index == writer.place
