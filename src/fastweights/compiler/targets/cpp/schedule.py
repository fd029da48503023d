"""The loop nests of a program: which tensors are in memory, and which statements run in one nest."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import permutations
from typing import NamedTuple

from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    COMPUTED,
    Apply,
    Expression,
    Index,
    Load,
    Map,
    Node,
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
from fastweights.compiler.targets.cpp.layout_constraints import Constraints

CHEAP = 3
"""The largest number of operations that are rather computed twice than stored in a matrix."""


@dataclass(eq=False)
class Layout:
    """The axes of a tensor in memory, from the outermost to the innermost. The order of a `fixed` layout must stay."""

    order: tuple[int, ...]
    fixed: bool = False


class Role(Enum):
    """The relation of a buffer to its tensor. The value is the prefix of the buffer's name in the code."""

    CURRENT = ""
    """The tensor at this time step. A state is the one before the step."""
    NEW = "new_"
    """The state after this time step."""
    NEXT = "next_"
    """The tensor at the next time step of the pass."""
    INITIAL = "initial_"
    """The part of the gradient of a state that a reset hands to the initial state."""


@dataclass(eq=False)
class Buffer:
    """A tensor in memory, or a scalar variable. Buffers of one tensor share a layout."""

    tensor: str
    shape: Shape
    layout: Layout = field(default=None)  # type: ignore[assignment]
    local: bool = False
    role: Role = Role.CURRENT

    def __post_init__(self) -> None:
        self.layout = self.layout or Layout(tuple(range(len(self.shape))), fixed=True)

    @property
    def name(self) -> str:
        """The name of the pointer in the code."""
        return f"{self.role.value}{self.tensor}"

    def to(self, role: Role) -> "Buffer":
        """The buffer of the same tensor in another role."""
        return Buffer(self.tensor, self.shape, self.layout, role=role)

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance between neighbours along every axis, in numbers."""
        order = self.layout.order
        return tuple(volume([self.shape[b] for b in order[order.index(a) + 1 :]]) for a in range(len(self.shape)))

    @property
    def is_scalar(self) -> bool:
        """Whether the buffer is a variable rather than memory."""
        return self.local and not self.shape


class Output(NamedTuple):
    """A value that a program stores in a buffer. With `add`, the program adds the value to the buffer."""

    buffer: Buffer
    value: Value
    add: bool = False


@dataclass(eq=False)
class Statement:
    """The body of a loop nest: an expression over the axes of the nest, stored at the index `place` of a node.

    A reduction first combines the expression over `axis`.
    """

    node: Node
    shape: Shape
    expression: Expression
    place: tuple[Index, ...]
    reduction: str = ""
    axis: int = -1
    add: bool = False

    def moved(self, order: Sequence[int], shape: Shape) -> "Statement":
        """The same statement with axis `a` renamed to `order[a]`."""
        place = tuple(i if i.axis < 0 else Index(order[i.axis], i.step, i.start) for i in self.place)
        axis = order[self.axis] if self.reduction else -1
        body = substitute(self.expression, [Index(a) for a in order])
        return Statement(self.node, shape, body, place, self.reduction, axis, self.add)


@dataclass(eq=False)
class Nest:
    """Statements that run in one loop nest. The axes of each statement are those of the nest."""

    shape: Shape
    statements: list[Statement] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Program:
    """A function of a kernel: its loop nests in order, and the buffer of every node.

    The program updates the states `in_place`: their new and their current buffer are the same.
    """

    nests: Sequence[Nest]
    buffers: dict[Node, Buffer]
    local: Sequence[Buffer]
    in_place: frozenset[str] = frozenset()

    def buffer(self, node: Node) -> Buffer:
        """The buffer of a node. A reshape has the memory of its base under its own shape."""
        if isinstance(node, Reshape):
            base = self.buffer(node.base)
            return Buffer(base.tensor, node.shape, role=base.role)
        return self.buffers[node]


def schedule(
    placeholders: dict[Node, Buffer],
    outputs: Sequence[Output],
    constraints: Constraints,
    first: Iterable[Node] = (),
) -> Program:
    """Orders the computation of `outputs` from the `placeholders`. The nodes in `first` come before all others."""
    return Scheduler(placeholders, outputs, constraints, first).run()


def overwritable(program: Program, states: Iterable[Buffer]) -> frozenset[str]:
    """The states that a program can update in place: it reads no old number after it has stored the new one."""
    return frozenset(state.tensor for state in states if _can_overwrite(program, state))


def updated_in_place(program: Program, states: Collection[Buffer]) -> Program:
    """The program, where every state that can be updated in place has one buffer for its current and its new value."""
    in_place = overwritable(program, states)
    current = {state.tensor: state for state in states}
    buffers = {
        node: current[b.tensor] if b.role is Role.NEW and b.tensor in in_place else b
        for node, b in program.buffers.items()
    }
    return replace(program, buffers=buffers, in_place=in_place)


def _can_overwrite(program: Program, state: Buffer) -> bool:
    stores = [
        (n, s) for n, nest in enumerate(program.nests) for s in nest.statements if _holds(program, s, Role.NEW, state)
    ]
    first = min((n for n, _ in stores), default=len(program.nests))
    return all(
        len(stores) == 1 and n == first and _reads_its_own_place(load, stores[0][1])
        for n, nest in enumerate(program.nests)
        for statement in nest.statements
        for load in load_nodes(statement.expression)
        if n >= first and _holds(program, load, Role.CURRENT, state)
    )


def _holds(program: Program, access: Statement | Load, role: Role, state: Buffer) -> bool:
    """Whether a statement stores, or a load reads, a state in a role."""
    buffer = program.buffers.get(_base(access.node))
    return buffer is not None and buffer.role is role and buffer.tensor == state.tensor


def _reads_its_own_place(load: Load, writer: Statement) -> bool:
    """Whether a load in the nest of a writer reads only the number that the writer replaces."""
    return not isinstance(load.node, Reshape) and load.index == writer.place and not writer.reduction


class Scheduler:
    """Builds one `Program`."""

    def __init__(
        self,
        placeholders: dict[Node, Buffer],
        outputs: Sequence[Output],
        constraints: Constraints,
        first: Iterable[Node],
    ) -> None:
        self.constraints = constraints
        self.buffers = dict(placeholders)
        self.add: set[Node] = set()
        roots = [self._root(output) for output in outputs]
        self.order = list(_topological([*first, *roots], placeholders))
        self.inlined: dict[Node, Expression] = {}
        self.ready: dict[Node, int] = {}
        self.nests: list[Nest] = []

    def _root(self, output: Output) -> Node:
        """The node that is computed directly into the buffer of an output."""
        expression = output.value.expression
        if isinstance(expression, Load) and not output.add:
            node = expression.node
            whole = expression.index == identity(node.shape) and node.shape == output.value.shape
            if whole and isinstance(node, COMPUTED) and node not in self.buffers:
                self.buffers[node] = output.buffer
                return node
        copy = Map(output.value.shape, expression)
        self.buffers[copy] = output.buffer
        if output.add:
            self.add.add(copy)
        return copy

    def run(self) -> Program:
        """Chooses the nodes that are stored in memory, then groups their statements into nests."""
        self._choose_inlined()
        stored = [d for d in self.order if d not in self.inlined and isinstance(d, COMPUTED)]
        local = self._allocate(stored)
        for node in stored:
            for statement in self._statements(node):
                self._insert(statement)
        return Program(self.nests, self.buffers, local)

    def _choose_inlined(self) -> None:
        readers: dict[Node, set[tuple[Node, object]]] = {}
        sizes: dict[Node, list[int]] = {}
        for reader in self.order:
            for _, domain, expression in reader.bodies:
                for load in set(load_nodes(expression)):
                    readers.setdefault(load.node, set()).add((reader, load.index))
                    sizes.setdefault(load.node, []).append(volume(domain))
        stored = {*self.buffers, *self.constraints.in_order, *self.constraints.once}
        for node in self.order:
            if isinstance(node, Map) and node not in stored:
                resolved = self._resolve(node.expression)
                if _inlines(node, resolved, len(readers[node]), max(sizes[node])):
                    self.inlined[node] = resolved

    def _resolve(self, expression: Expression) -> Expression:
        if isinstance(expression, Load):
            inside = self.inlined.get(expression.node)
            return expression if inside is None else substitute(inside, expression.index)
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(self._resolve(a) for a in expression.arguments))
        return expression

    def _allocate(self, stored: Sequence[Node]) -> list[Buffer]:
        """Gives a local buffer to every stored node that has no buffer, and returns these buffers."""
        local: list[Buffer] = []
        for node in stored:
            if node not in self.buffers:
                layout = Layout(tuple(range(len(node.shape))), node in self.constraints.in_order)
                self.buffers[node] = Buffer(f"t{len(local)}", node.shape, layout, local=True)
                local.append(self.buffers[node])
            elif node in self.constraints.in_order:
                self.buffers[node].layout.fixed = True
        return local

    def _statements(self, node: Node) -> Iterator[Statement]:
        for start, domain, expression in node.bodies:
            yield _statement(node, domain, self._resolve(expression), start, node in self.add)

    def _insert(self, statement: Statement) -> None:
        """Adds a statement to the nest with which it shares most loads, or to a new nest at the end."""
        first = max((self._earliest(load) for load in load_nodes(statement.expression)), default=0)
        first = max(first, self.ready.get(statement.node, 0))
        choices = [
            (score, -n, fitted)
            for n, nest in enumerate(self.nests)
            if n >= first - 1
            for fitted in _fits(statement, nest)
            if (score := self._score(fitted, nest, n)) > 0
        ]
        if choices:
            # A new state joins the nest of the last reader of the old state, and can then be stored in its place.
            last = self.buffers[statement.node].role is Role.NEW
            _, n, statement = min(choices, key=lambda c: (c[1], -c[0]) if last else (-c[0], -c[1]))
            self.nests[-n].statements.append(statement)
        else:
            n = -len(self.nests)
            self.nests.append(Nest(statement.shape, [statement]))
        self.ready[statement.node] = max(-n + 1, self.ready.get(statement.node, 0))

    def _earliest(self, load: Load) -> int:
        """The first nest that may contain a load: the one after the nest that stores the node."""
        node = _base(load.node)
        return self.ready.get(node, 0)

    def _score(self, statement: Statement, nest: Nest, n: int) -> float:
        """The number of shared loads of a statement and a nest; 0 if the statement cannot be in the nest."""
        own_loads = set(load_nodes(statement.expression))
        stored = {s.node: s for s in nest.statements}
        for load in own_loads:
            writer = stored.get(_base(load.node))
            if writer is not None and not _forwards(load, writer):
                return 0
            if writer is None and self.ready.get(_base(load.node), 0) > n:
                return 0
        if statement.node in stored or self.ready.get(statement.node, 0) > n:
            return 0
        nest_loads = {load for s in nest.statements for load in load_nodes(s.expression)}
        shared = sum(len(load.index) > 1 for load in own_loads & nest_loads)
        shared += sum(load.node in stored for load in own_loads)
        return shared if len(statement.shape) > 1 else shared + 0.5


def _topological(roots: Iterable[Node], placeholders: Iterable[Node]) -> Iterator[Node]:
    """The nodes that roots are computed from, operands first."""
    visited = set(placeholders)

    def visit(node: Node) -> Iterator[Node]:
        if node in visited:
            return
        visited.add(node)
        for operand in node.operands():
            yield from visit(operand)
        yield node

    for root in roots:
        yield from visit(root)


def _inlines(node: Node, resolved: Expression, readers: int, size: int) -> bool:
    """Whether to compute a node inside its readers: it has one reader of the same size, or is cheaper than memory."""
    if not list(loads(resolved)):
        return True
    work = _work(resolved)
    if readers == 1 and size <= node.size:
        return True
    return work == 0 or (len(node.shape) > 1 and size <= node.size and work <= CHEAP)


def _work(expression: Expression) -> int:
    if not isinstance(expression, Apply):
        return 0
    own = CHEAP + 1 if FUNCTIONS[expression.function].is_slow else 1
    return own + sum(_work(a) for a in expression.arguments)


def _base(node: Node) -> Node:
    return _base(node.base) if isinstance(node, Reshape) else node


def _statement(node: Node, domain: Shape, expression: Expression, start: Shape, add: bool = False) -> Statement:
    """The statement of a loop body, with the axes of more than one element only."""
    loops = [a for a, n in enumerate(domain) if n > 1]
    axes = [Index(loops.index(a)) if a in loops else Index(-1, 0, 0) for a in range(len(domain))]
    place = tuple(Index(axes[a].axis, 1, s) if axes[a].axis >= 0 else Index(-1, 0, s) for a, s in enumerate(start))
    shape = tuple(domain[a] for a in loops)
    reduction = node.reduction if isinstance(node, Reduce) else ""
    axis = len(loops) - 1 if reduction else -1
    return Statement(node, shape, substitute(expression, axes), place, reduction, axis, add)


def _fits(statement: Statement, nest: Nest) -> Iterator[Statement]:
    """The statement with its axes renamed to those of a nest, for every possible assignment."""
    if sorted(statement.shape) == sorted(nest.shape):
        for order in permutations(range(len(nest.shape))):
            if all(nest.shape[place] == n for place, n in zip(order, statement.shape, strict=True)):
                yield statement.moved(order, nest.shape)


def _forwards(load: Load, writer: Statement) -> bool:
    """Whether a load can use the value that its nest has just computed: the same element, and not reduced."""
    whole = load.node is writer.node and isinstance(writer.node, Map)
    return whole and not writer.reduction and not writer.add and load.index == writer.place
