"""A phase of a step as Triton: every definition a tile in registers, or in memory where it is read out of order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

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
from fastweights.compiler.targets.triton.functions import CODE, COMBINE, INFIX, REDUCTIONS
from fastweights.compiler.targets.triton.partition import PART, Cut, Kinds

Axis = int | None
"""The axis of a tile along which a program has its own rows only."""


@dataclass(frozen=True)
class Given:
    """What a phase is given: a tile in registers under a name or, with the address of its first number at step `{t}`,
    numbers in memory, to be loaded."""

    name: str
    address: str = ""


@dataclass(frozen=True)
class Domain:
    """The axes that an expression runs over; along `cut` a program has `rows` of them, along `loop` one at a time.

    A tile has them in `order`, if it is given, so that a matrix need not be turned around.
    """

    shape: Shape
    cut: Axis = None
    rows: int = 0
    loop: Axis = None
    order: tuple[int, ...] | None = None

    @property
    def axes(self) -> list[int]:
        """Those of a tile."""
        return [a for a in self.order or real(self.shape) if a != self.loop]

    def size(self, axis: int) -> int:
        """Numbers of a tile along an axis."""
        return self.rows if axis == self.cut else padded(self.shape[axis])

    @property
    def sizes(self) -> list[int]:
        """The shape of a tile."""
        return [self.size(a) for a in self.axes]

    def along(self, code: str, axes: Sequence[int]) -> str:
        """A tile over some axes, in order, with an axis of one for each of the others."""
        if len(axes) == len(self.axes) or not axes:
            return code
        return f"{code}[{', '.join(':' if a in axes else 'None' for a in self.axes)}]"

    def index(self, axis: int) -> str:
        """The places along an axis."""
        return self.along("rows" if axis == self.cut else f"i{self.size(axis)}", [axis])

    def inside(self, chosen: Iterable[int]) -> list[str]:
        """What tells the numbers along some axes from those that pad them."""
        return [f"({self.index(a)} < {self.shape[a]})" for a in chosen if self.shape[a] % self.size(a)]


def load(pointer: str, domain: Domain, *conditions: str) -> str:
    """Code that loads a tile, 0 where a condition does not hold."""
    place, masks = _address(domain), [*conditions, *domain.inside(domain.axes)]
    return f"tl.load({pointer} + {place}{_mask(masks, ', other=0.0')}).to(real)"


def store(pointer: str, name: str, domain: Domain, *conditions: str) -> str:
    """Code that stores a tile, where all conditions hold."""
    place, masks = _address(domain), [*conditions, *domain.inside(domain.axes)]
    return f"tl.store({pointer} + {place}, {name}{_mask(masks)})"


def _address(domain: Domain) -> str:
    """The places of a tile whose numbers lie in the order of its axes."""
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
    """Writes the code of a phase; `wanted` are the tiles of what is given in memory that the code expects to be loaded.

    `places` says where what lies in memory is kept, behind the pointer `memory`.
    """

    given: Mapping[Definition, Given]
    places: Mapping[Definition, int]
    cut: Cut | None = None
    rows: int = 0
    lines: list[str] = field(default_factory=list)
    wanted: dict[tuple[Definition, Axis], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names: dict[tuple[Definition, Axis], str] = {}
        self.picked: dict[tuple[Definition, tuple[Index, ...]], str] = {}
        self.kinds = Kinds(self.cut.kinds) if self.cut else None
        self.count = 0
        self.stored: set[Definition] = set()
        self.unseen: set[Definition] = set()
        """What was stored in memory since the last barrier: not every warp sees it yet."""

    def domain(self, shape: Shape, cut: Axis = None, loop: Axis = None) -> Domain:
        """One of this body's tiles."""
        return Domain(shape, cut, self.rows, loop)

    def put(self, name: str, value: Value, cut: Axis = None, first: bool = False) -> None:
        """Computes a value under a name; with `first`, in the first program of a head only, and 0 in the others."""
        code = self._whole(value.expression, self.domain(value.shape, cut))
        self.lines.append(f"{name} = tl.where(first, {code}, 0.0)" if first else f"{name} = {code}")

    def close(self) -> None:
        """Lets no warp store what another still reads, when the step after begins."""
        if self.places:
            self.lines.append("tl.debug_barrier()")

    def tile(self, definition: Definition, cut: Axis = None) -> str:
        """The name of a definition's tile, computed if it is new."""
        key = definition, cut
        if key not in self.names:
            given = self.given.get(definition)
            if given is None:
                self.names[key] = self._made(definition, cut)
            else:
                self.names[key] = given.name if cut is None or not given.address else f"{given.name}_rows"
                if given.address:
                    self.wanted[key] = self.names[key]
        return self.names[key]

    def _made(self, definition: Definition, cut: Axis) -> str:
        domain = self.domain(definition.shape, cut)
        if isinstance(definition, Reshape) or (isinstance(definition, Assemble) and not is_stacked(definition)):
            return self._named(load(self._pointer(definition), domain))
        name = self._named(self._computed(definition, domain))
        if definition in self.places:
            self._keep(definition, name, domain)
        return name

    def _computed(self, definition: Definition, domain: Domain) -> str:
        match definition:
            case Map(_, expression):
                return self._whole(expression, domain)
            case Reduce():
                return (
                    self._reduced_slowly(definition) if is_slow(definition) else self._reduced(definition, domain.cut)
                )
            case Assemble():
                return self._stacked(definition)
        raise AssertionError(f"{definition} is not given")

    def _named(self, code: str) -> str:
        self.count += 1
        self.lines.append(f"t{self.count} = {code}")
        return f"t{self.count}"

    def _whole(self, expression: Expression, domain: Domain) -> str:
        """Code for an expression with a number for every element of a domain."""
        code = self._code(expression, domain)
        if axes(expression) >= set(domain.axes):
            return code
        if isinstance(expression, Constant):
            return f"tl.full({domain.sizes}, {literal(expression.value)}, real)"
        return f"tl.broadcast_to({code}, {domain.sizes})" if domain.axes else code

    def _reduced(self, definition: Reduce, cut: Axis) -> str:
        axis, over = len(definition.shape), (*definition.shape, definition.extent)
        # Rows that are added up here are those of this program: the others have the rest of the sum.
        if self.kinds and self.kinds.expression(definition.expression, over) == axis:
            cut = axis
        domain = Domain(over, cut, self.rows, order=order_of(definition))
        code = self._whole(definition.expression, domain)
        reduce, start = REDUCTIONS[definition.reduction]
        (inside,) = domain.inside([axis]) or [""]
        code = f"tl.where({inside}, {code}, {start})" if inside else code
        return reduce.format(code, domain.axes.index(axis))

    def _reduced_slowly(self, definition: Reduce) -> str:
        """One place after the other: of operands in memory."""
        axis, over = len(definition.shape), (*definition.shape, definition.extent)
        out = self.domain(definition.shape)
        code = self._whole(definition.expression, self.domain(over, loop=axis))
        total = self._named(f"tl.full({out.sizes}, {REDUCTIONS[definition.reduction][1]}, real)")
        self.lines.append(f"for j in range(0, {definition.extent}):")
        self.lines.append(f"    {total} = {COMBINE[definition.reduction].format(total, code)}")
        return total

    def _stacked(self, definition: Assemble) -> str:
        """Regions that are whole along every axis or at one place of it."""
        domain = self.domain(definition.shape)
        name = self._named(zeros(domain))
        for start, shape, expression in definition.regions:
            code = self._whole(expression, domain) if shape == definition.shape else self._code(expression, domain)
            single = [a for a in domain.axes if shape[a] != definition.shape[a]]
            where = [f"({domain.index(a)} == {start[a]})" for a in single]
            name = self._named(f"tl.where({' & '.join(where)}, {code}, {name})" if where else code)
        return name

    def _assemble(self, definition: Assemble) -> None:
        """Writes the regions into memory, one after the other."""
        written = list[tuple[Shape, Shape]]()
        for start, shape, expression in definition.regions:
            domain = self.domain(shape)
            name = self._named(self._whole(expression, domain))
            if any(_overlap(start, shape, *other) for other in written):
                self.lines.append("tl.debug_barrier()")
            written.append((start, shape))
            strides = [volume(definition.shape[a + 1 :]) for a in range(len(shape))]
            terms = [f"({domain.index(a)} + {start[a]}) * {strides[a]}" for a in domain.axes]
            offset = sum(start[a] * strides[a] for a in range(len(shape)) if a not in domain.axes)
            pointer = " + ".join([f"memory + {self.places[definition] + offset}", *terms])
            self.lines.append(f"tl.store({pointer}, {name}{_mask(domain.inside(domain.axes))})")
        self.stored.add(definition)
        self.unseen.add(definition)

    def _keep(self, definition: Definition, name: str, domain: Domain) -> None:
        self.lines.append(store(f"memory + {self.places[definition]}", name, domain))
        self.stored.add(definition)
        self.unseen.add(definition)

    def _pointer(self, definition: Definition) -> str:
        """Where the numbers of a definition lie, once every warp sees them."""
        lies = root(definition)
        given = self.given.get(lies)
        if given is not None and given.address:
            return given.address.format(t="t")
        if lies not in self.stored:
            self._store(lies)
        if lies in self.unseen:
            self.lines.append("tl.debug_barrier()")
            self.unseen.clear()
        return f"memory + {self.places[lies]}"

    def _store(self, definition: Definition) -> None:
        """Lets a definition lie in memory, if computing it does not."""
        if isinstance(definition, Assemble) and not is_stacked(definition):
            self._assemble(definition)
        elif definition in self.given:
            self._keep(definition, self.given[definition].name, self.domain(definition.shape))
        else:
            self.tile(definition)

    def _code(self, expression: Expression, domain: Domain) -> str:
        if isinstance(expression, Constant):
            return literal(expression.value)
        if isinstance(expression, Load):
            return self._read(expression, domain)
        arguments = [self._argument(a, expression, domain) for a in expression.arguments]
        return CODE[expression.function].format(*arguments)

    def _argument(self, argument: Expression, of: Apply, domain: Domain) -> str:
        if isinstance(argument, Constant):
            alone = of.function not in INFIX or all(isinstance(a, Constant) for a in of.arguments)
            return f"tl.full([], {literal(argument.value)}, real)" if alone else literal(argument.value)
        code = self._code(argument, domain)
        if self.kinds and of.function in ("add", "sub"):
            kinds = [self.kinds.expression(a, domain.shape) for a in of.arguments]
            if PART in kinds and self.kinds.expression(argument, domain.shape) != PART:
                return f"tl.where(first, {code}, 0.0)"
        return code

    def _read(self, load: Load, domain: Domain) -> str:
        definition = load.definition
        looped = domain.loop is not None and any(i.axis == domain.loop for i in load.index)
        if looped or not is_pointed(load, domain.shape):
            return self._read_from_memory(load, domain)
        if not is_whole(load, domain.shape):
            given = self.given.get(root(definition))
            if given is not None and given.address:
                return self._read_from_memory(load, domain)
            name = self._at_a_point(load)
        else:
            cut = next((a for a, i in enumerate(load.index) if i.axis == domain.cut), None) if self.cut else None
            name = self.tile(definition, cut if domain.cut is not None else None)
        places = [i.axis for i, n in zip(load.index, definition.shape, strict=True) if n > 1 and i.axis >= 0]
        return self._turned(name, places, domain)

    def _turned(self, name: str, places: list[int], domain: Domain) -> str:
        """A tile whose axes are those places of a domain."""
        ordered = [a for a in domain.axes if a in places]
        if places != ordered:
            name = f"tl.permute({name}, {[places.index(a) for a in ordered]})"
        return domain.along(name, ordered)

    def _at_a_point(self, load: Load) -> str:
        """A part of a tile: the other numbers are 0 in a sum."""
        definition = load.definition
        points = tuple(i if i.axis < 0 else Index(0) for i in load.index)
        if (definition, points) not in self.picked:
            domain = self.domain(definition.shape)
            name = self.tile(definition)
            chosen = [a for a in domain.axes if load.index[a].axis < 0]
            where = " & ".join(f"({domain.index(a)} == {load.index[a].start})" for a in chosen)
            code = f"tl.where({where}, {name}, 0.0)"
            for axis in reversed(chosen):
                code = f"tl.sum({code}, {domain.axes.index(axis)})"
            self.picked[definition, points] = self._named(code)
        return self.picked[definition, points]

    def _read_from_memory(self, load: Load, domain: Domain) -> str:
        """Number by number, wherever they lie."""
        pointer, shape = self._pointer(load.definition), load.definition.shape
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
    """Whether two boxes have a number in common."""
    return all(a < b + m and b < a + n for a, n, b, m in zip(start, shape, other, size, strict=True))


def literal(value: float) -> str:
    """A number as Triton reads it."""
    if value != value or abs(value) == inf:
        return f'float("{value}")'
    return repr(value)
