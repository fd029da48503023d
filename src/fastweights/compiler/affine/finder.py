"""Finds the affine form of a step.

Sums are distributed over products until every term contains the state once: alone, or in a product with a vector.
"""

from collections.abc import Iterator, Sequence

from fastweights.compiler.affine.delay import delay_of
from fastweights.compiler.affine.form import AffineForm, Delay, Highest, Linear, Read, Stage
from fastweights.compiler.affine.not_affine import NotAffine, within
from fastweights.compiler.affine.order import in_order
from fastweights.compiler.affine.terms import Product, Term, sum_of
from fastweights.compiler.affine.update import Erased, Update
from fastweights.compiler.ir.builder import ExpressionBuilder, factors_of, terms_of
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    Apply,
    Assemble,
    Constant,
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
    axes,
    functions,
    identity,
    loads,
    substitute,
    upstream,
    whole,
)
from fastweights.compiler.ir.step import Forward


def affine_form(step: Forward) -> AffineForm:
    """The affine form of a step.

    Raises:
        NotAffine: There is no affine form, or its gradient differs from that of the values.
    """
    if step.detached:
        raise NotAffine("a tensor is taken out of the gradient", step.detached)
    return Finder(step).form()


class Finder:
    """Finds the stages one after the other. `seen` replaces reads of the states for later stages and the output."""

    def __init__(self, step: Forward) -> None:
        self.step = step
        self.builder = ExpressionBuilder()
        parts = ((step.state, False), (step.after, True))
        self.inputs: dict[Node, tuple[str, bool]] = {
            d: (name, after) for part, after in parts for name, d in part.items()
        }
        *made, y = step.lines
        self.lines = dict(zip(step.state, made, strict=True)) | {"y": y}
        self.updates: dict[str, Update] = {}
        self.early: list[Highest | Delay] = []
        """The stages whose states are known for all steps before the scans."""
        self.known: set[Node] = set()
        """The inputs that replace these states."""
        self.reads: list[Read] = []
        self._needs: dict[Node, frozenset[str]] = {}
        self._made: dict[Node, Node] = {}

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
        stages: list[Stage] = [*self.early, *(self._linear(name) for name in self.updates)]
        with within(self.lines[next(iter(self.updates), "y")]):
            return AffineForm((self.step.inputs, self.step.params), tuple(in_order(stages)), y)

    def _linear(self, name: str) -> Linear:
        with within(self.lines[name]):
            return self.updates[name].linear(self.reads)

    def needs(self, expression: Expression) -> frozenset[str]:
        """The states that an expression is computed from."""
        return frozenset[str]().union(*(self._needs_of(d) for d in loads(expression)))

    def _needs_of(self, node: Node) -> frozenset[str]:
        if node not in self._needs:
            own = {self.inputs[node][0]} if node in self.inputs else ()
            self._needs[node] = frozenset(own).union(*(self._needs_of(d) for d in node.operands()))
        return self._needs[node]

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
        early = self._delay(name, value) if value.shape else self._highest(name, value) or self._delay(name, value)
        if early is None:
            self.updates[name] = self._update(name, self.terms(value.expression, name))
        else:
            self.early.append(early)
            self.known |= {early.before, early.after}

    def _delay(self, name: str, value: Value) -> Delay | None:
        """The state as a delay; None if it has another form. A product of two vectors is cheaper as a matrix S."""
        before, after = self.step.state[name], self.step.after[name]
        steps = delay_of(value, before)
        if steps is None or (steps == 1 and len(value.shape) > 1 and self._is_sum_of_products(name, value)):
            return None
        self.known |= {before, after}
        return Delay(name, Value(value.shape, self.seen(value.expression)), steps, before, after)

    def _is_sum_of_products(self, name: str, value: Value) -> bool:
        """Whether a value that does not depend on its state is a sum of outer products of vectors."""
        written = self._update(name, self.terms(value.expression, name)).written
        return all(len(axes(f)) < 2 for known in written for factor in known for f in factors_of(factor))

    def _highest(self, name: str, value: Value) -> Highest | None:
        """The value in the form max(m + plus, floor); None if it has another form."""
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
        plus = sum_of(self.builder, [t.known for t in terms if t.atom is None], ())
        before, after = self.step.state[name], self.step.after[name]
        return Highest(name, plus, Value((), self.seen(other)), before, after)

    # What is seen of states that come earlier

    def seen(self, expression: Expression) -> Expression:
        """An expression in which inputs replace the products of states."""
        if not self.needs(expression):
            return expression
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(map(self.seen, expression.arguments)))
        assert isinstance(expression, Load)
        node, index = expression.node, expression.index
        if node in self.inputs:
            if node in self.known:
                return expression
            return self._read(Product(*self.inputs[node], index), "")
        if node not in self._made:
            self._made[node] = self._seen(node)
        return Load(self._made[node], index)

    def _seen(self, node: Node) -> Node:
        shape, line = node.shape, node.line
        match node:
            case Map(_, expression):
                return Map(shape, self.seen(expression), line=line)
            case Reduce(_, reduction, extent, expression):
                found = self._products(node) if reduction == "sum" else None
                if found is not None:
                    return Map(shape, found, line=line)
                return Reduce(shape, reduction, extent, self.seen(expression), line=line)
            case Assemble(_, regions):
                parts = tuple(Region(start, part, self.seen(e)) for start, part, e in regions)
                return Assemble(shape, parts, line=line)
            case Reshape(_, base):
                inside = self.seen(whole(base).expression)
                assert isinstance(inside, Load)
                return Reshape(shape, inside.node, line=line)
        raise NotAffine("a tensor that is read whole", line)

    def _products(self, node: Reduce) -> Expression | None:
        """A sum as products of one state with vectors; None if it has another form."""
        for name in sorted(self._needs_of(node)):
            if self.step.state[name] in self.known:
                continue
            try:
                terms = self.terms(Load(node, identity(node.shape)), name)
            except NotAffine:
                continue
            if any(t.atom is not None and t.atom.over for t in terms):
                return sum_of(self.builder, [self._factors(t, node.line) for t in terms], node.shape).expression
        return None

    def _factors(self, term: Term, line: str) -> tuple[Expression, ...]:
        return term.known if term.atom is None else (*term.known, self._read(term.atom, line))

    def _read(self, atom: Product, line: str) -> Expression:
        """The input that replaces a product with a state."""
        shape, over = self.step.state[atom.state].shape, tuple(sorted(atom.over))
        if not over and 1 not in shape and len(shape) > 1:
            raise NotAffine(f"numbers of {atom.state} are seen one by one, not in a product with a vector", line)
        index = tuple(i for a, i in enumerate(atom.place) if a not in over)
        vector = Value(shape, atom.vector)
        for read in self.reads:
            if read[:4] == (atom.state, over, vector, atom.after):
                return Load(read.seen, index)
        seen = Input(tuple(n for a, n in enumerate(shape) if a not in over))
        self.reads.append(Read(atom.state, over, vector, atom.after, seen))
        return Load(seen, index)

    # Sums of products

    def _update(self, name: str, terms: Sequence[Term]) -> Update:
        """The update of a state. Raises `NotAffine` unless every element depends on its old value at the same index."""
        shape = self.step.state[name].shape
        written = [w for t in terms if t.atom is None for w in self._written(t.known, shape)]
        for atom in (t.atom for t in terms if t.atom is not None):
            if any(atom.place[a] != i for a, i in enumerate(identity(shape)) if a not in atom.over):
                raise NotAffine(f"numbers of {name} change their places")
        stays = tuple(t.known for t in terms if t.atom is not None and not t.atom.over)
        erased = tuple(Erased(t.known, t.atom.over, t.atom.vector) for t in terms if t.atom is not None and t.atom.over)
        return Update(self.builder, name, shape, stays, erased, tuple(written))

    def _written(self, known: Sequence[Expression], shape: Shape) -> list[tuple[Expression, ...]]:
        """A product as a sum of outer products of vectors."""
        for n, factor in enumerate(known):
            if len(axes(factor)) > 1:
                parts = terms_of(factor)
                if len(parts) > 1:
                    signs = {"add": Constant(1.0), "sub": Constant(-1.0)}
                    split = [(*known[:n], signs[sign], part, *known[n + 1 :]) for sign, part in parts]
                    return [w for each in split for w in self._written(each, shape)]
        return [tuple(known)]

    def terms(self, expression: Expression, own: str, line: str = "") -> list[Term]:
        """An expression from a line of the cell as a sum of terms in one state.

        Raises:
            NotAffine: The expression is not affine in that state.
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
                mask, (then, otherwise) = self.seen(arguments[0]), (self.terms(a, own, line) for a in arguments[1:])
                return _where(mask, then) + _where(Apply("logical_not", (mask,)), otherwise)
        what = "multiplied with itself" if function == "mul" else f"put through {function}"
        raise NotAffine(f"{own} is {what}", line)

    def _terms_of_load(self, load: Load, own: str, line: str) -> list[Term]:
        node, index = load.node, load.index
        line = node.line or line
        if node in self.inputs:
            return [Term((), Product(*self.inputs[node], index))]
        match node:
            case Map(_, expression):
                found = self.terms(expression, own, line)
            case Reduce(shape, "sum", extent, expression):
                inner = self.terms(expression, own, line)
                found = [self._summed(t, (*shape, extent), line) for t in inner]
            case Reduce(reduction=reduction):
                raise NotAffine(f"its {reduction} is taken of {own}", line)
            case _:
                raise NotAffine(f"{own} is taken apart", line)
        return [t.at(index) for t in found]

    def _summed(self, term: Term, shape: Shape, line: str) -> Term:
        """The sum of a term over the last axis."""
        axis = len(shape) - 1
        inside = [f for f in term.known if axis in axes(f)]
        outside = tuple(f for f in term.known if axis not in axes(f))
        atom = term.atom
        bound = [] if atom is None else [n for n, i in enumerate(atom.place) if i.axis == axis]
        if not bound:
            total = self.builder.product(shape, inside or [Constant(1.0)])
            return Term((*outside, self.builder.reduce("sum", shape, total, axis)), atom)
        assert atom is not None
        return Term(outside, self._product(atom, inside, bound, shape, line))

    def _product(
        self, atom: Product, factors: Sequence[Expression], bound: Sequence[int], shape: Shape, line: str
    ) -> Product:
        """The sum over the last axis of `factors` times an element of a state. The axes `bound` run along the last
        axis."""
        sizes, last = self.step.state[atom.state].shape, len(shape) - 1
        # Where an axis of the sum goes along one of the state, from end to end.
        along = {i.axis: a for a, i in enumerate(atom.place) if i == Index(i.axis) and shape[i.axis] == sizes[a]}
        if len(bound) > 1 or last not in along or not self._is_one_vector(atom, bound[0]):
            raise NotAffine(f"numbers of {atom.state} are added up that lie elsewhere", line)
        others = frozenset[int]().union(*(axes(f) for f in factors)) - {last}
        if others - along.keys() or (others and len(sizes) < 3):
            raise NotAffine(f"every row of {atom.state} is in a product with a vector of its own", line)
        own = [Index(along[a]) if a in along else Index(-1, 0, 0) for a in range(len(shape))]
        vector = self.builder.product(sizes, [atom.vector, *(substitute(f, own) for f in factors)])
        place = tuple(Index(-1, 0, 0) if a == bound[0] else i for a, i in enumerate(atom.place))
        return atom._replace(place=place, over=(*atom.over, bound[0]), vector=vector)

    def _is_one_vector(self, atom: Product, axis: int) -> bool:
        """Whether a product with a vector over one more axis is possible. Otherwise the sum is taken of the read
        vector."""
        update = self.updates.get(atom.state)
        return not atom.over or update is None or any({*atom.over, axis} <= {*e.over} for e in update.erased)


def _inside(expression: Expression) -> Expression:
    if isinstance(expression, Load) and isinstance(expression.node, Map):
        return _inside(substitute(expression.node.expression, expression.index))
    return expression


def _where(mask: Expression, terms: Sequence[Term]) -> list[Term]:
    """The terms where a mask is true, and 0 elsewhere even if a term is infinite there."""
    return [Term(tuple(_masked_factors(mask, t.known)), _masked_atom(mask, t.atom)) for t in terms]


def _masked_factors(mask: Expression, known: Sequence[Expression]) -> Iterator[Expression]:
    inside: Expression = Constant(1.0)
    for factor in known:
        if axes(factor) <= axes(mask):
            inside = Apply("mul", (inside, factor))
        else:
            yield _masked(mask, factor)
    yield Apply("where", (mask, inside, Constant(0.0)))


def _masked_atom(mask: Expression, atom: Product | None) -> Product | None:
    if atom is None or not atom.over or axes(mask):
        return atom
    return atom._replace(vector=_masked(mask, atom.vector))


def _masked(mask: Expression, factor: Expression) -> Expression:
    """A factor under a mask. A factor with other axes stays as it is, so that it keeps its axes."""
    is_needed = axes(mask) <= axes(factor) and _is_slow(factor)
    return Apply("where", (mask, factor, Constant(0.0))) if is_needed else factor


def _is_slow(expression: Expression) -> bool:
    """Whether an expression has functions other than sums and products, which can overflow to infinity."""
    parts = [expression, *(body.expression for d in upstream(loads(expression)) for body in d.bodies)]
    return any(FUNCTIONS[name].is_slow for part in parts for name in functions(part))


def _times(terms: Sequence[Term], factor: Expression) -> list[Term]:
    return [Term((*t.known, factor), t.atom) for t in terms]
