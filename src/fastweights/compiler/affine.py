"""Whether the states of a step are affine in themselves with coefficients that do not wait for them, and how.

A state S of that kind, as a matrix `[R, C]` or its transpose, goes in a step to

    S <- S diag(decay) + sum_r u_r key_r^T,     u_r = value_r - S erase_r,

and everything else sees it in products with vectors, before the step or after it. Then whole chunks of time are
matrix products (`backends/chunkwise.py`). The coefficients may depend on what was read of other such states: these
come first. A scalar m <- max(m + plus, floor), as of a stabiliser, also comes first.

Sums are distributed over the products until every term holds the state once: as it is, or in a product with a vector.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from fastweights.compiler.algebra import Graph, factors_of, terms_of
from fastweights.compiler.ir import (
    Apply,
    Assemble,
    Constant,
    Definition,
    Expression,
    Index,
    Input,
    Load,
    Map,
    Reduce,
    Region,
    Reshape,
    Shape,
    Value,
    axes,
    behind,
    identity,
    loads,
    substitute,
    upstream,
    volume,
    whole,
)
from fastweights.compiler.step import Forward


class NotAffine(Exception):
    """What stands in the way of an affine form, and in which line of the cell."""

    def __init__(self, what: str, line: str = "") -> None:
        super().__init__(f"{what}{f', in {line}' if line else ''}")
        self.what, self.line = what, line


@contextmanager
def within(line: str) -> Iterator[None]:
    """What stands in the way does so in this line, if nobody knows a closer one."""
    try:
        yield
    except NotAffine as error:
        raise error if error.line else NotAffine(error.what, line) from None


class Read(NamedTuple):
    """What is seen of a state: its product with a vector over one of its axes (None: one of size 1 that it lacks),
    after the step or before, and what stands for it."""

    state: str
    axis: int | None
    vector: Value
    after: bool
    seen: Input


class Part(NamedTuple):
    """A state as rows of S: which of its axes goes along the columns of S, if any does."""

    state: str
    shape: Shape
    column: int | None

    @property
    def rows(self) -> int:
        """How many rows of S it is."""
        return volume([n for axis, n in enumerate(self.shape) if axis != self.column])

    @property
    def has_rows(self) -> bool:
        """Whether an axis of it goes along them."""
        return len(self.shape) > (self.column is not None)

    @property
    def columns(self) -> int:
        """How many columns S has."""
        return 1 if self.column is None else self.shape[self.column]


class Write(NamedTuple):
    """u key^T with u = value - S erase: what each part is given; what is 0 is None."""

    key: Value
    erase: Value | None
    values: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Linear:
    """States that are affine with the same coefficients but for their values: below each other they are one S.

    A decay is None where nothing fades, else one number or one a column. Vectors over the columns read S, and also
    those over the rows where S is one state.
    """

    parts: tuple[Part, ...]
    decay: Value | None
    writes: tuple[Write, ...]
    reads: tuple[Read, ...]

    @property
    def across(self) -> tuple[Read, ...]:
        """The reads by vectors over the rows."""
        columns = {part.state: part.column for part in self.parts}
        return tuple(read for read in self.reads if read.axis != columns[read.state])

    def __str__(self) -> str:
        name = " and ".join(
            part.state + ("^T" if part.column == 0 and len(part.shape) > 1 else "") for part in self.parts
        )
        decay = "" if self.decay is None else " diag(a)" if self.decay.shape else " a"
        erased = [w for w in self.writes if w.erase is not None]
        given = [w for w in self.writes if any(v is not None for v in w.values)]
        told = [f"{name}{decay}", *_told(erased, f"- {name} e f^T"), *_told(given, "+ v k^T")]
        return f"{name} <- {' '.join(told)}"


def _told(writes: Sequence[Write], term: str) -> list[str]:
    """One term, or several alike."""
    return [f"{term[:2]}{len(writes)} ({term[2:]})" if len(writes) > 1 else term] if writes else []


@dataclass(frozen=True, eq=False)
class Highest:
    """A scalar m <- max(m + plus, floor), and what stands for it before and after the step."""

    state: str
    plus: Value
    floor: Value
    before: Input
    after: Input

    def __str__(self) -> str:
        return f"{self.state} <- max({self.state} + a, b)"


Stage = Linear | Highest


@dataclass(frozen=True, eq=False)
class AffineForm:
    """States in the order in which they can be computed, each for all time at once, and the output."""

    given: tuple[Mapping[str, Input], Mapping[str, Input]]
    """The inputs and the params of the step."""
    stages: tuple[Stage, ...]
    y: Value

    def __str__(self) -> str:
        return ", ".join(map(str, self.stages))


class Element(NamedTuple):
    """A number of a state, at an index."""

    state: str
    after: bool
    place: tuple[Index, ...]


class Product(NamedTuple):
    """What a state gives in a product with a vector over one of its axes, at an index of the other."""

    state: str
    after: bool
    axis: int
    vector: Value
    place: tuple[Index, ...]


class Term(NamedTuple):
    """A product of what is known and at most one `Element` or `Product` of a state."""

    known: tuple[Expression, ...]
    atom: Element | Product | None


def affine_form(step: Forward) -> AffineForm:
    """The affine form of a step.

    Raises:
        NotAffine: it has none.
    """
    return Finder(step).form()


class Finder:
    """Finds the stages one after the other; `seen` is what later ones and the output see of the states."""

    def __init__(self, step: Forward) -> None:
        self.step = step
        self.graph = Graph()
        parts = ((step.state, False), (step.after, True))
        self.inputs: dict[Definition, tuple[str, bool]] = {
            d: (name, after) for part, after in parts for name, d in part.items()
        }
        *made, y = step.lines
        self.lines = dict(zip(step.state, made, strict=True)) | {"y": y}
        self.updates: dict[str, _Update] = {}
        self.highest: list[Highest] = []
        self.reads: list[Read] = []
        self.scalars: set[Input] = set()
        self._needs: dict[Definition, frozenset[str]] = {}
        self._made: dict[Definition, Definition] = {}

    def form(self) -> AffineForm:
        left = list(self.step.state)
        while left:
            ready = [name for name in left if not self._waits_for(name, left)]
            name = ready[0] if ready else left[0]
            with within(self.lines[name]):
                if not ready:
                    raise self._circle(left)
                self._find(name)
            left.remove(name)
        with within(self.lines["y"]):
            y = Value(self.step.y.shape, self.seen(self.step.y.expression))
        stages: list[Stage] = [*self.highest, *(self._linear(name) for name in self.updates)]
        with within(self.lines[next(iter(self.updates), "y")]):
            return AffineForm((self.step.inputs, self.step.params), tuple(_in_order(stages)), y)

    def _linear(self, name: str) -> Linear:
        with within(self.lines[name]):
            return self.updates[name].linear(self.reads)

    def needs(self, expression: Expression) -> frozenset[str]:
        """The states that an expression is computed from."""
        return frozenset[str]().union(*(self._needs_of(d) for d in loads(expression)))

    def _needs_of(self, definition: Definition) -> frozenset[str]:
        if definition not in self._needs:
            own = {self.inputs[definition][0]} if definition in self.inputs else ()
            self._needs[definition] = frozenset(own).union(*(self._needs_of(d) for d in definition.operands()))
        return self._needs[definition]

    def _waits_for(self, name: str, left: Sequence[str]) -> bool:
        return bool((self.needs(self.step.new_state[name].expression) & {*left}) - {name})

    def _circle(self, left: Sequence[str]) -> NotAffine:
        name = left[0]
        other = min(self.needs(self.step.new_state[name].expression) & {*left} - {name})
        given = {self.step.state[other], self.step.after[other]}
        found = [d for d in upstream(loads(self.step.new_state[name].expression)) if given & {*d.operands()}]
        line = next((d.line for d in sorted(found, key=lambda d: d.serial) if d.line), "")
        return NotAffine(f"{name} is made from {other}, which waits for {name}", line)

    def _find(self, name: str) -> None:
        value = self.step.new_state[name]
        highest = self._highest(name, value) if not value.shape else None
        if highest is None:
            self.updates[name] = self._update(name, self.terms(value.expression, name))
        else:
            self.highest.append(highest)
            self.scalars |= {highest.before, highest.after}

    def _highest(self, name: str, value: Value) -> Highest | None:
        """As max(m + plus, floor), if it is one."""
        inside = _inside(value.expression)
        if not (isinstance(inside, Apply) and inside.function == "maximum"):
            return None
        moved = [a for a in inside.arguments if name in self.needs(a)]
        if len(moved) != 1:
            return None
        (other,) = (a for a in inside.arguments if a is not moved[0])
        terms = self.terms(moved[0], name)
        if any(t.known for t in terms if t.atom is not None):
            return None
        plus = sum_of(self.graph, [t.known for t in terms if t.atom is None], ())
        before, after = self.step.state[name], self.step.after[name]
        return Highest(name, plus, Value((), self.seen(other)), before, after)

    # What is seen of states that come earlier

    def seen(self, expression: Expression) -> Expression:
        """An expression in which products of states stand as inputs."""
        if not self.needs(expression):
            return expression
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(map(self.seen, expression.arguments)))
        assert isinstance(expression, Load)
        definition, index = expression.definition, expression.index
        if definition in self.inputs:
            if definition in self.scalars:
                return expression
            return self._read(Element(*self.inputs[definition], index), "")
        if definition not in self._made:
            self._made[definition] = self._seen(definition)
        return Load(self._made[definition], index)

    def _seen(self, definition: Definition) -> Definition:
        shape, line = definition.shape, definition.line
        match definition:
            case Map(_, expression):
                return Map(shape, self.seen(expression), line=line)
            case Reduce(_, reduction, extent, expression):
                found = self._products(definition) if reduction == "sum" else None
                if found is not None:
                    return Map(shape, found, line=line)
                return Reduce(shape, reduction, extent, self.seen(expression), line=line)
            case Assemble(_, regions):
                parts = tuple(Region(start, part, self.seen(e)) for start, part, e in regions)
                return Assemble(shape, parts, line=line)
            case Reshape(_, base):
                inside = self.seen(whole(base).expression)
                assert isinstance(inside, Load)
                return Reshape(shape, inside.definition, line=line)
        raise NotAffine("a tensor that is read whole", line)

    def _products(self, definition: Reduce) -> Expression | None:
        """A sum as products of one state with vectors; None if it is none."""
        for name in sorted(self._needs_of(definition)):
            if self.step.state[name] in self.scalars:
                continue
            try:
                terms = self.terms(Load(definition, identity(definition.shape)), name)
            except NotAffine:
                continue
            if any(isinstance(t.atom, Product) for t in terms):
                return sum_of(
                    self.graph, [self._factors(t, definition.line) for t in terms], definition.shape
                ).expression
        return None

    def _factors(self, term: Term, line: str) -> tuple[Expression, ...]:
        return term.known if term.atom is None else (*term.known, self._read(term.atom, line))

    def _read(self, atom: Element | Product, line: str) -> Expression:
        """An input in the place of a product with a state."""
        shape, axis, index = self.step.state[atom.state].shape, None, atom.place
        vector = Value((1,), Constant(1.0))
        if isinstance(atom, Product):
            axis, vector = atom.axis, atom.vector
        elif len(shape) > 1:
            axis = next((a for a in (1, 0) if shape[a] == 1), None)
            if axis is None:
                raise NotAffine(f"numbers of {atom.state} are seen one by one, not in a product with a vector", line)
            index = tuple(i for a, i in enumerate(index) if a != axis)
        for read in self.reads:
            if read[:4] == (atom.state, axis, vector, atom.after):
                return Load(read.seen, index)
        seen = Input(tuple(n for a, n in enumerate(shape) if a != axis))
        self.reads.append(Read(atom.state, axis, vector, atom.after, seen))
        return Load(seen, index)

    # Sums of products

    def _update(self, name: str, terms: Sequence[Term]) -> "_Update":
        """Raises `NotAffine` unless a state is taken as it is, and in products along one axis."""
        shape = self.step.state[name].shape
        stays, erased, written = [], [], []
        for term in terms:
            if term.atom is None:
                written.extend(self._written(term.known, shape))
            elif isinstance(term.atom, Element):
                stays.append(term)
            else:
                erased.append(term)
        for term in (*stays, *erased):
            place = identity(shape)
            axis = term.atom.axis if isinstance(term.atom, Product) else None
            if term.atom is None or term.atom.place != tuple(i for a, i in enumerate(place) if a != axis):
                raise NotAffine(f"numbers of {name} change their places")
        return _Update(self.graph, name, shape, tuple(t.known for t in stays), tuple(erased), tuple(written))

    def _written(self, known: Sequence[Expression], shape: Shape) -> list[tuple[Expression, ...]]:
        """A product as a sum of those of vectors."""
        for n, factor in enumerate(known):
            if len(axes(factor)) > 1:
                parts = terms_of(factor)
                if len(parts) > 1:
                    signs = {"add": Constant(1.0), "sub": Constant(-1.0)}
                    split = [(*known[:n], signs[sign], part, *known[n + 1 :]) for sign, part in parts]
                    return [w for each in split for w in self._written(each, shape)]
        return [tuple(known)]

    def terms(self, expression: Expression, own: str, line: str = "") -> list[Term]:
        """An expression, in a line of the cell, as a sum of terms in one state.

        Raises:
            NotAffine: it is not affine in that state.
        """
        if own not in self.needs(expression):
            return [Term((self.seen(expression),), None)]
        if isinstance(expression, Load):
            return self._terms_of_load(expression, own, line)
        assert isinstance(expression, Apply)
        function, arguments = expression.function, expression.arguments
        held = [own in self.needs(a) for a in arguments]
        match function:
            case "add" | "sub":
                first, second = (self.terms(a, own, line) for a in arguments)
                return first + (second if function == "add" else _times(second, Constant(-1.0)))
            case "neg":
                return _times(self.terms(arguments[0], own, line), Constant(-1.0))
            case "identity":
                return self.terms(arguments[0], own, line)
            case "mul" if not all(held):
                (moved,) = (a for a, holds in zip(arguments, held, strict=True) if holds)
                (other,) = (a for a, holds in zip(arguments, held, strict=True) if not holds)
                return _times(self.terms(moved, own, line), self.seen(other))
            case "div" if not held[1]:
                return _times(self.terms(arguments[0], own, line), Apply("reciprocal", (self.seen(arguments[1]),)))
            case "where" if not held[0]:
                mask = self.seen(arguments[0])
                chosen = (Apply("where", (mask, Constant(a), Constant(1 - a))) for a in (1.0, 0.0))
                return [
                    t for a, c in zip(arguments[1:], chosen, strict=True) for t in _times(self.terms(a, own, line), c)
                ]
        what = "multiplied with itself" if function == "mul" else f"put through {function}"
        raise NotAffine(f"{own} is {what}", line)

    def _terms_of_load(self, load: Load, own: str, line: str) -> list[Term]:
        definition, index = load.definition, load.index
        line = definition.line or line
        if definition in self.inputs:
            return [Term((), Element(*self.inputs[definition], index))]
        match definition:
            case Map(_, expression):
                found = self.terms(expression, own, line)
            case Reduce(shape, "sum", extent, expression):
                inner = self.terms(expression, own, line)
                found = [self._summed(t, (*shape, extent), line) for t in inner]
            case Reduce(reduction=reduction):
                raise NotAffine(f"its {reduction} is taken of {own}", line)
            case _:
                raise NotAffine(f"{own} is taken apart", line)
        return [_moved(t, index) for t in found]

    def _summed(self, term: Term, shape: Shape, line: str) -> Term:
        """The sum of a term over the last axis."""
        axis = len(shape) - 1
        inside = [f for f in term.known if axis in axes(f)]
        outside = tuple(f for f in term.known if axis not in axes(f))
        atom = term.atom
        bound = [] if atom is None else [n for n, i in enumerate(atom.place) if i.axis == axis]
        if not bound:
            total = self.graph.product(shape, inside or [Constant(1.0)])
            return Term((*outside, self.graph.reduce("sum", shape, total, axis)), atom)
        if not isinstance(atom, Element) or len(bound) > 1 or atom.place[bound[0]] != Index(axis):
            raise NotAffine(f"numbers of {atom.state} are added up that lie elsewhere", line)  # type: ignore[union-attr]
        if any(axes(f) != {axis} for f in inside):
            raise NotAffine(f"every row of {atom.state} is in a product with a vector of its own", line)
        only = [Index(0) if a == axis else Index(-1, 0, 0) for a in range(len(shape))]
        vector = self.graph.product((shape[axis],), [substitute(f, only) for f in inside] or [Constant(1.0)])
        rest = tuple(i for n, i in enumerate(atom.place) if n != bound[0])
        return Term(outside, Product(atom.state, atom.after, bound[0], Value((shape[axis],), vector), rest))


def _inside(expression: Expression) -> Expression:
    if isinstance(expression, Load) and isinstance(expression.definition, Map):
        return _inside(substitute(expression.definition.expression, expression.index))
    return expression


def _times(terms: Sequence[Term], factor: Expression) -> list[Term]:
    return [Term((*t.known, factor), t.atom) for t in terms]


def _moved(term: Term, mapping: Sequence[Index]) -> Term:
    """A term of the axes of a definition, at an index of it."""
    known = tuple(substitute(f, mapping) for f in term.known)
    if term.atom is None:
        return Term(known, None)
    # The index of an atom is one of a load, whatever is loaded.
    index = substitute(Load(_NOTHING, term.atom.place), mapping).index  # type: ignore[union-attr]
    return Term(known, term.atom._replace(place=index))


_NOTHING = Input(())


# One state


@dataclass(frozen=True)
class _Update:
    """How a state is affine in itself, over its own axes: what stays of it, what is erased of it, what is written."""

    graph: Graph
    state: str
    shape: Shape
    stays: tuple[tuple[Expression, ...], ...]
    erased: tuple[Term, ...]
    written: tuple[tuple[Expression, ...], ...]

    def linear(self, reads: Sequence[Read]) -> Linear:
        """As rows of a matrix, or of its transpose."""
        mine = tuple(r for r in reads if r.state == self.state)
        column = self._column(mine)
        part = Part(self.state, self.shape, column)
        return Linear((part,), self._decay(part), tuple(self._writes(part)), mine)

    def _column(self, reads: Sequence[Read]) -> int | None:
        """The axis along which vectors erase, or numbers fade, or else the one along which it is read."""
        erased = {t.atom.axis for t in self.erased}  # type: ignore[union-attr]
        fading = {a for known in self.stays for f in known for a in axes(f)}
        if len(erased) > 1:
            raise NotAffine(f"{self.state} is multiplied from both sides")
        if len(fading) > 1:
            raise NotAffine(f"every number of {self.state} fades by itself")
        if erased and fading - erased:
            raise NotAffine(f"the rows of {self.state} fade by themselves, and are erased together")
        found = [*erased, *fading, *(r.axis for r in reads)]
        return found[0] if found else len(self.shape) - 1 if self.shape else None

    def _decay(self, part: Part) -> Value | None:
        if self.stays == ((),):
            return None
        fades = any(axes(f) for known in self.stays for f in known)
        return self._sum(self.stays, part.column if fades else None, part)

    def _writes(self, part: Part) -> list[Write]:
        """Those along one key are one."""
        keys: dict[Expression, tuple[list[Any], list[Any]]] = {}
        for term in self.erased:
            assert isinstance(term.atom, Product)
            key, rest = self._split(term.known, part)
            if any(axes(f) for f in rest):
                raise NotAffine(f"what is erased of {self.state} differs from row to row")
            keys.setdefault(key, ([], []))[0].append((*rest, Constant(-1.0), term.atom.vector.expression))
        for known in self.written:
            key, rest = self._split(known, part)
            keys.setdefault(key, ([], []))[1].append(rest)
        rows = next((a for a in range(len(self.shape)) if a != part.column), None)
        return [
            Write(
                Value((part.columns,), key),
                sum_of(self.graph, erase, (part.columns,)) if erase else None,
                (self._sum(value, rows, part) if value else None,),
            )
            for key, (erase, value) in keys.items()
        ]

    def _split(self, known: Sequence[Expression], part: Part) -> tuple[Expression, list[Expression]]:
        """The factors along the columns as one vector, and the others."""
        flat = [g for f in known for g in factors_of(f)]
        if any(len(axes(f)) > 1 for f in flat):
            raise NotAffine(f"a whole matrix is added to {self.state}, not the product of two vectors")
        along = [f for f in flat if part.column in axes(f)]
        only = self._onto(part.column)
        key = self.graph.product((part.columns,), [substitute(f, only) for f in along])
        return key, [f for f in flat if part.column not in axes(f)]

    def _sum(self, products: Sequence[Sequence[Expression]], axis: int | None, part: Part) -> Value:
        """A sum of products over one axis of the state."""
        moved = [[substitute(f, self._onto(axis)) for f in known] for known in products]
        return sum_of(self.graph, moved, () if axis is None else (self.shape[axis],))

    def _onto(self, axis: int | None) -> list[Index]:
        return [Index(0) if a == axis else Index(-1, 0, 0) for a in range(len(self.shape))]


def sum_of(graph: Graph, products: Iterable[Sequence[Expression]], shape: Shape) -> Value:
    """A sum of products over a shape."""
    parts = [graph.product(shape, factors) for factors in products]
    if not parts:
        return Value(shape, Constant(0.0))
    return Value(shape, graph.map(shape, reduce(lambda a, b: Apply("add", (a, b)), parts)))


# All of them


def _in_order(stages: Sequence[Stage]) -> list[Stage]:
    """The stages in an order in which each needs only what those before it give, those of one form put together."""
    left, placed = list(stages), list[Stage]()
    while left:
        waiting = {d for stage in left for d in _gives(stage)}
        ready = next((s for s in left if not _needed(s) & waiting), None)
        if ready is None:
            names = " and ".join(p.state for s in left if isinstance(s, Linear) for p in s.parts)
            raise NotAffine(f"what is read of {names} waits for what is read of the others")
        left.remove(ready)
        _put(placed, ready)
    return placed


def _put(placed: list[Stage], stage: Stage) -> None:
    for n, other in enumerate(placed):
        known = {d for earlier in placed[n:] for d in _gives(earlier)}
        if _is_alike(other, stage) and not _needed(stage) & known:
            placed[n] = _joined(other, stage)  # type: ignore[arg-type]
            return
    placed.append(stage)


def _is_alike(one: Stage, other: Stage) -> bool:
    """Whether two may be rows of one matrix."""
    if not (isinstance(one, Linear) and isinstance(other, Linear)) or one.across or other.across:
        return False
    return one.decay == other.decay and [w[:2] for w in one.writes] == [w[:2] for w in other.writes]


def _joined(one: Linear, other: Linear) -> Linear:
    writes = [a._replace(values=a.values + b.values) for a, b in zip(one.writes, other.writes, strict=True)]
    return Linear(one.parts + other.parts, one.decay, tuple(writes), one.reads + other.reads)


def _gives(stage: Stage) -> set[Definition]:
    if isinstance(stage, Highest):
        return {stage.before, stage.after}
    return {read.seen for read in stage.reads}


def values_of(stage: Stage) -> list[Value]:
    """All that a stage is computed from."""
    if isinstance(stage, Highest):
        return [stage.plus, stage.floor]
    parts = [stage.decay, *(r.vector for r in stage.reads)]
    parts += [v for w in stage.writes for v in (w.key, w.erase, *w.values)]
    return [v for v in parts if v is not None]


def _needed(stage: Stage) -> set[Definition]:
    return {d for d in behind(values_of(stage)) if isinstance(d, Input)}
