"""Prints the step of a pass as Triton: every node is a tile in registers, or in memory if it is read out of order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from fastweights.compiler.ir.functions import SIGNS
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
    Expression,
    Index,
    Load,
    Map,
    Node,
    Reduce,
    Reshape,
    Shape,
    Value,
    axes,
    volume,
)
from fastweights.compiler.targets.triton.access_patterns import (
    is_pointed,
    is_slow,
    is_stacked,
    is_whole,
    order_of,
    padded,
    real,
    root,
)
from fastweights.compiler.targets.triton.functions import CODE, COMBINE, REDUCTIONS
from fastweights.compiler.targets.triton.partition import PART, Cut, Kinds

Axis = int | None
"""The axis of a tile along which a program has only its own rows."""


@dataclass(frozen=True)
class Placeholder:
    """A given tensor: a tile in registers, or numbers in memory from an address that may depend on the step `{t}`."""

    name: str
    address: str = ""


@dataclass(frozen=True)
class Domain:
    """The axes of an expression. Along `cut` a program has `rows` indices, and along `loop` one index at a time.

    With `order`, a tile has its axes in that order, so that a matrix need not be transposed.
    """

    shape: Shape
    cut: Axis = None
    rows: int = 0
    loop: Axis = None
    order: tuple[int, ...] | None = None

    @property
    def axes(self) -> list[int]:
        """The axes of a tile."""
        return [a for a in self.order or real(self.shape) if a != self.loop]

    def size(self, axis: int) -> int:
        """Number of elements of a tile along an axis."""
        return self.rows if axis == self.cut else padded(self.shape[axis])

    @property
    def sizes(self) -> list[int]:
        """The shape of a tile."""
        return [self.size(a) for a in self.axes]

    def along(self, code: str, axes: Sequence[int]) -> str:
        """A tile over some axes, with an axis of size 1 for each of the others."""
        if len(axes) == len(self.axes) or not axes:
            return code
        return f"{code}[{', '.join(':' if a in axes else 'None' for a in self.axes)}]"

    def index(self, axis: int) -> str:
        """The indices along an axis."""
        return self.along("rows" if axis == self.cut else f"i{self.size(axis)}", [axis])

    def inside(self, chosen: Iterable[int]) -> list[str]:
        """The conditions that are false in the padding along some axes."""
        return [f"({self.index(a)} < {self.shape[a]})" for a in chosen if self.shape[a] % self.size(a)]


def load(pointer: str, domain: Domain, *conditions: str) -> str:
    """Code that loads a tile, with 0 where a condition is false."""
    place, masks = _address(domain), [*conditions, *domain.inside(domain.axes)]
    return f"tl.load({pointer} + {place}{_mask(masks, ', other=0.0')}).to(real)"


def store(pointer: str, name: str, domain: Domain, *conditions: str) -> str:
    """Code that stores a tile where all conditions are true."""
    place, masks = _address(domain), [*conditions, *domain.inside(domain.axes)]
    return f"tl.store({pointer} + {place}, {name}{_mask(masks)})"


def _address(domain: Domain) -> str:
    """The offsets of a tile whose elements are in the order of its axes."""
    strides = {a: volume(domain.shape[a + 1 :]) for a in domain.axes}
    return " + ".join(_times(domain.index(a), n) for a, n in strides.items()) or "0"


def _times(code: str, n: int) -> str:
    return code if n == 1 else f"{code} * {n}"


def _mask(conditions: Sequence[str], other: str = "") -> str:
    return f", mask={' & '.join(conditions)}{other}" if conditions else ""


def zeros(domain: Domain) -> str:
    """A tile of zeros."""
    return f"tl.full({domain.sizes}, 0.0, real)"


@dataclass
class Body:
    """Prints the step of a pass. `expected_loads` are the tiles that the code expects to be loaded from memory.

    `places` has the offset of every node in memory behind the pointer `memory`.
    """

    placeholders: Mapping[Node, Placeholder]
    places: Mapping[Node, int]
    cut: Cut | None = None
    rows: int = 0
    lines: list[str] = field(default_factory=list)
    expected_loads: dict[tuple[Node, Axis], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names: dict[tuple[Node, Axis], str] = {}
        self.picked: dict[tuple[Node, tuple[Index, ...]], str] = {}
        self.kinds = Kinds(self.cut.kinds) if self.cut else None
        self.count = 0
        self.stored: set[Node] = set()
        self.unseen: set[Node] = set()
        """Nodes that were stored in memory since the last barrier, and that other warps may not see yet."""

    def domain(self, shape: Shape, cut: Axis = None, loop: Axis = None) -> Domain:
        """A domain with the rows of this program."""
        return Domain(shape, cut, self.rows, loop)

    def put(self, name: str, value: Value, cut: Axis = None, first: bool = False) -> None:
        """Computes a value under a name. With `first`, only the first program of a head computes it; others have 0."""
        code = self._whole(value.expression, self.domain(value.shape, cut))
        self.lines.append(f"{name} = tl.where(first, {code}, 0.0)" if first else f"{name} = {code}")

    def close(self) -> None:
        """Adds a barrier, so that no warp overwrites what another one still reads."""
        if self.places:
            self.lines.append("tl.debug_barrier()")

    def tile(self, node: Node, cut: Axis = None) -> str:
        """The name of a node's tile, which is computed on first use."""
        key = node, cut
        if key not in self.names:
            placeholder = self.placeholders.get(node)
            if placeholder is None:
                self.names[key] = self._made(node, cut)
            else:
                self.names[key] = (
                    placeholder.name if cut is None or not placeholder.address else f"{placeholder.name}_rows"
                )
                if placeholder.address:
                    self.expected_loads[key] = self.names[key]
        return self.names[key]

    def _made(self, node: Node, cut: Axis) -> str:
        domain = self.domain(node.shape, cut)
        if isinstance(node, Reshape) or (isinstance(node, Assemble) and not is_stacked(node)):
            return self._named(load(self._pointer(node), domain))
        name = self._named(self._computed(node, domain))
        if node in self.places:
            self._keep(node, name, domain)
        return name

    def _computed(self, node: Node, domain: Domain) -> str:
        match node:
            case Map(_, expression):
                return self._whole(expression, domain)
            case Reduce():
                return self._reduced_slowly(node) if is_slow(node) else self._reduced(node, domain.cut)
            case Assemble():
                return self._stacked(node)
        raise AssertionError(f"{node} is no placeholder")

    def _named(self, code: str) -> str:
        self.count += 1
        self.lines.append(f"t{self.count} = {code}")
        return f"t{self.count}"

    def _whole(self, expression: Expression, domain: Domain) -> str:
        """Code for an expression with an element at every index of a domain."""
        code = self._code(expression, domain)
        if axes(expression) >= set(domain.axes):
            return code
        if isinstance(expression, Constant):
            return f"tl.full({domain.sizes}, {literal(expression.value)}, real)"
        return f"tl.broadcast_to({code}, {domain.sizes})" if domain.axes else code

    def _reduced(self, node: Reduce, cut: Axis) -> str:
        axis, over = len(node.shape), (*node.shape, node.extent)
        # Rows that are added up here are those of this program: the others have the rest of the sum.
        if self.kinds and self.kinds.expression(node.expression, over) == axis:
            cut = axis
        domain = Domain(over, cut, self.rows, order=order_of(node))
        code = self._whole(node.expression, domain)
        reduce, start = REDUCTIONS[node.reduction]
        (inside,) = domain.inside([axis]) or [""]
        code = f"tl.where({inside}, {code}, {start})" if inside else code
        return reduce.format(code, domain.axes.index(axis))

    def _reduced_slowly(self, node: Reduce) -> str:
        """A reduction in a loop over operands in memory."""
        axis, over = len(node.shape), (*node.shape, node.extent)
        out = self.domain(node.shape)
        code = self._whole(node.expression, self.domain(over, loop=axis))
        total = self._named(f"tl.full({out.sizes}, {REDUCTIONS[node.reduction][1]}, real)")
        self.lines.append(f"for j in range(0, {node.extent}):")
        self.lines.append(f"    {total} = {COMBINE[node.reduction].format(total, code)}")
        return total

    def _stacked(self, node: Assemble) -> str:
        """A node whose regions cover an axis from start to end, or have one index along it."""
        domain = self.domain(node.shape)
        name = self._named(zeros(domain))
        for start, shape, expression in node.regions:
            code = self._whole(expression, domain) if shape == node.shape else self._code(expression, domain)
            single = [a for a in domain.axes if shape[a] != node.shape[a]]
            where = [f"({domain.index(a)} == {start[a]})" for a in single]
            name = self._named(f"tl.where({' & '.join(where)}, {code}, {name})" if where else code)
        return name

    def _assemble(self, node: Assemble) -> None:
        """Stores the regions in memory, one after the other."""
        written = list[tuple[Shape, Shape]]()
        for start, shape, expression in node.regions:
            domain = self.domain(shape)
            name = self._named(self._whole(expression, domain))
            if any(_overlap(start, shape, *other) for other in written):
                self.lines.append("tl.debug_barrier()")
            written.append((start, shape))
            strides = [volume(node.shape[a + 1 :]) for a in range(len(shape))]
            terms = [f"({domain.index(a)} + {start[a]}) * {strides[a]}" for a in domain.axes]
            offset = sum(start[a] * strides[a] for a in range(len(shape)) if a not in domain.axes)
            pointer = " + ".join([f"memory + {self.places[node] + offset}", *terms])
            self.lines.append(f"tl.store({pointer}, {name}{_mask(domain.inside(domain.axes))})")
        self.stored.add(node)
        self.unseen.add(node)

    def _keep(self, node: Node, name: str, domain: Domain) -> None:
        self.lines.append(store(f"memory + {self.places[node]}", name, domain))
        self.stored.add(node)
        self.unseen.add(node)

    def _pointer(self, node: Node) -> str:
        """The address of a node, behind a barrier if other warps have stored it."""
        lies = root(node)
        placeholder = self.placeholders.get(lies)
        if placeholder is not None and placeholder.address:
            return placeholder.address.format(t="t")
        if lies not in self.stored:
            self._store(lies)
        if lies in self.unseen:
            self.lines.append("tl.debug_barrier()")
            self.unseen.clear()
        return f"memory + {self.places[lies]}"

    def _store(self, node: Node) -> None:
        """Stores a node in memory if computing it does not."""
        if isinstance(node, Assemble) and not is_stacked(node):
            self._assemble(node)
        elif node in self.placeholders:
            self._keep(node, self.placeholders[node].name, self.domain(node.shape))
        else:
            self.tile(node)

    def _code(self, expression: Expression, domain: Domain) -> str:
        if isinstance(expression, Constant):
            return literal(expression.value)
        if isinstance(expression, Load):
            return self._read(expression, domain)
        arguments = [self._argument(a, expression, domain) for a in expression.arguments]
        return CODE[expression.function].format(*arguments)

    def _argument(self, argument: Expression, of: Apply, domain: Domain) -> str:
        if isinstance(argument, Constant):
            alone = of.function not in SIGNS or all(isinstance(a, Constant) for a in of.arguments)
            return f"tl.full([], {literal(argument.value)}, real)" if alone else literal(argument.value)
        code = self._code(argument, domain)
        if self.kinds and of.function in ("add", "sub"):
            kinds = [self.kinds.expression(a, domain.shape) for a in of.arguments]
            if PART in kinds and self.kinds.expression(argument, domain.shape) != PART:
                return f"tl.where(first, {code}, 0.0)"
        return code

    def _read(self, load: Load, domain: Domain) -> str:
        node = load.node
        looped = domain.loop is not None and any(i.axis == domain.loop for i in load.index)
        if looped or not is_pointed(load, domain.shape):
            return self._read_from_memory(load, domain)
        if not is_whole(load, domain.shape):
            placeholder = self.placeholders.get(root(node))
            if placeholder is not None and placeholder.address:
                return self._read_from_memory(load, domain)
            name = self._at_a_point(load)
        else:
            cut = next((a for a, i in enumerate(load.index) if i.axis == domain.cut), None) if self.cut else None
            name = self.tile(node, cut if domain.cut is not None else None)
        places = [i.axis for i, n in zip(load.index, node.shape, strict=True) if n > 1 and i.axis >= 0]
        return self._turned(name, places, domain)

    def _turned(self, name: str, places: list[int], domain: Domain) -> str:
        """A tile with the given axes of a domain, transposed if necessary."""
        ordered = [a for a in domain.axes if a in places]
        if places != ordered:
            name = f"tl.permute({name}, {[places.index(a) for a in ordered]})"
        return domain.along(name, ordered)

    def _at_a_point(self, load: Load) -> str:
        """A part of a tile: a sum in which the other elements are 0."""
        node = load.node
        points = tuple(i if i.axis < 0 else Index(0) for i in load.index)
        if (node, points) not in self.picked:
            domain = self.domain(node.shape)
            name = self.tile(node)
            chosen = [a for a in domain.axes if load.index[a].axis < 0]
            where = " & ".join(f"({domain.index(a)} == {load.index[a].start})" for a in chosen)
            code = f"tl.where({where}, {name}, 0.0)"
            for axis in reversed(chosen):
                code = f"tl.sum({code}, {domain.axes.index(axis)})"
            self.picked[node, points] = self._named(code)
        return self.picked[node, points]

    def _read_from_memory(self, load: Load, domain: Domain) -> str:
        """Code that loads single elements from memory."""
        pointer, shape = self._pointer(load.node), load.node.shape
        offset, terms, moving = 0, list[str](), set[int]()
        for axis, index in enumerate(load.index):
            stride = volume(shape[axis + 1 :])
            offset += index.start * stride
            if index.axis >= 0:
                place = "j" if index.axis == domain.loop else domain.index(index.axis)
                terms.append(f"{place} * {index.step * stride}")
                moving |= {index.axis} - {domain.loop}
        code = " + ".join([pointer, *terms, *([str(offset)] if offset else [])])
        return f"tl.load({code}{_mask(domain.inside(sorted(moving)), ', other=0.0')}).to(real)"


def _overlap(start: Shape, shape: Shape, other: Shape, size: Shape) -> bool:
    """Whether two boxes overlap."""
    return all(a < b + m and b < a + n for a, n, b, m in zip(start, shape, other, size, strict=True))


def literal(value: float) -> str:
    """A number in Triton."""
    if value != value or abs(value) == inf:
        return f'float("{value}")'
    return repr(value)
