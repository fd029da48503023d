"""Finds the affine form of a step.

Sums are distributed over products until every term contains the state once: alone, or in a product with a vector.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fastweights.compiler.affine.coupled import coupled
from fastweights.compiler.affine.delay import delay_of
from fastweights.compiler.affine.form import (
    AffineForm,
    Delay,
    Linear,
    Read,
    Recurrent,
    RecurrentPart,
    RunningMax,
    Stage,
)
from fastweights.compiler.affine.not_affine import NotAffine, ReadWhole, error_context
from fastweights.compiler.affine.order import in_order
from fastweights.compiler.affine.rewrite import Inliner, rebuilt
from fastweights.compiler.affine.split import split_step, splits_of
from fastweights.compiler.affine.terms import Product, Term, sum_of
from fastweights.compiler.affine.unflatten import unflattened
from fastweights.compiler.affine.update import DecayTerm, EraseTerm, Update
from fastweights.compiler.ir.builder import ExpressionBuilder, factors_of, terms_of
from fastweights.compiler.ir.functions import FUNCTIONS
from fastweights.compiler.ir.nodes import (
    Apply,
    Constant,
    Expression,
    Index,
    Input,
    Load,
    Map,
    Node,
    Reduce,
    Shape,
    Value,
    axes,
    functions,
    identity,
    loads,
    substitute,
    upstream,
)
from fastweights.compiler.ir.step import Forward


def affine_form(step: Forward, axes: Mapping[str, Sequence[str]]) -> AffineForm:
    """The affine form of a step, whose states have these `axes`.

    Raises:
        NotAffine: There is no affine form, or its gradient differs from that of the values.
    """
    if step.detached:
        raise NotAffine("a tensor is detached from the gradient", step.detached)
    step = unflattened(step)
    try:
        return Finder(step).form()
    except NotAffine as error:
        for splits in splits_of(step, axes):
            with suppress(NotAffine):
                form = Finder(unflattened(split_step(step, splits))).form()
                return replace(form, splits=splits)
        return _peeled_form(step, error)


def _peeled_form(step: Forward, error: NotAffine) -> AffineForm:
    """The form in which a loop computes the states that are not affine, and those that wait for the loop.

    Raises the error if no other state is a matrix, since a loop over all states is what other backends do.
    """
    first, recurrent = error, frozenset[str]()
    while error.states - recurrent:
        recurrent |= error.states
        try:
            form = Finder(step, recurrent).form()
        except NotAffine as another:
            error = another
        else:
            if any(len(part.shape) > 1 for stage in form.stages if isinstance(stage, Linear) for part in stage.parts):
                return form
    raise first


States = tuple[str, ...]


class Finder:
    """Finds the stages one after the other.

    Inputs replace the reads of their states in later stages and in the output. A loop computes the states `recurrent`.
    """

    def __init__(self, step: Forward, recurrent: Collection[str] = ()) -> None:
        self.step = step
        self.recurrent = [name for name in step.state if name in recurrent]
        self.builder = ExpressionBuilder()
        parts = ((step.state, False), (step.after, True))
        self.inputs: dict[Node, tuple[str, bool]] = {
            d: (name, after) for part, after in parts for name, d in part.items()
        }
        *made, y = step.lines
        self.lines = dict(zip(step.state, made, strict=True)) | {"y": y}
        self.updates: dict[States, Update] = {}
        """The updates of states that are coupled, or of one state by itself."""
        self.early: list[RunningMax | Delay | Recurrent] = []
        """The stages whose states are known for all steps before the scans."""
        self.known: set[Node] = {d for name in self.recurrent for d in (step.state[name], step.after[name])}
        """The inputs that replace these states."""
        self.reads: list[Read] = []
        self._needs: dict[Node, frozenset[str]] = {}
        self._made: dict[Node, Node] = {}

    def form(self) -> AffineForm:
        left = [name for name in self.step.state if name not in self.recurrent]
        while left:
            states = self._next(left)
            with error_context(self.lines[states[0]], states):
                self._find(states)
            left = [name for name in left if name not in states]
        with error_context(self.lines["y"]):
            y = Value(self.step.y.shape, self.replace_reads(self.step.y.expression))
        rest = self._recurrent_parts()
        stages: list[Stage] = [*self.early, *self._linears(), *([Recurrent(rest)] if rest else ())]
        with error_context(self.lines[next(iter(self.updates), ("y",))[0]]):
            return AffineForm((self.step.inputs, self.step.params), tuple(in_order(stages)), y)

    def _recurrent_parts(self) -> tuple[RecurrentPart, ...]:
        """The states that a loop computes. None of them reads the new value of another."""
        inliner = Inliner({self.step.after[name]: self.step.new_state[name] for name in self.recurrent})
        parts = []
        for name in self.recurrent:
            with error_context(self.lines[name]):
                value = self.step.new_state[name]
                new = Value(value.shape, self.replace_reads(inliner.inlined(value.expression)))
            parts.append(RecurrentPart(name, new, self.step.state[name], self.step.after[name]))
        return tuple(parts)

    def _linears(self) -> list[Linear]:
        """The states as matrices. A vector per group, such as a normaliser, may have as many groups as a matrix."""
        linears = dict[States, Linear]()
        for states in self.updates:
            with suppress(NotAffine):
                linears[states] = self._linear(states, 1)
        groups = max((linear.parts[0].matrices for linear in linears.values()), default=1)
        return [linears[states] if states in linears else self._linear(states, groups) for states in self.updates]

    def _linear(self, states: States, groups: int) -> Linear:
        with error_context(self.lines[states[0]], states):
            return self.updates[states].linear(self.reads, groups)

    def needs(self, expression: Expression) -> frozenset[str]:
        """The states that an expression is computed from."""
        return frozenset[str]().union(*(self._needs_of(d) for d in loads(expression)))

    def _needs_of(self, node: Node) -> frozenset[str]:
        if node not in self._needs:
            own = {self.inputs[node][0]} if node in self.inputs else ()
            self._needs[node] = frozenset(own).union(*(self._needs_of(d) for d in node.operands()))
        return self._needs[node]

    def _next(self, left: Sequence[str]) -> States:
        """The states to find next: one that depends on no other that is left, or several that depend on each other."""
        needs = {name: self.needs(self.step.new_state[name].expression) & {*left} for name in left}
        ancestors = {name: {name} for name in left}
        for _ in left:
            ancestors = {name: set[str]().union(names, *(needs[n] for n in names)) for name, names in ancestors.items()}
        first = min(left, key=lambda name: len(ancestors[name]))
        return tuple(name for name in left if name in ancestors[first])

    def _find(self, states: States) -> None:
        early: RunningMax | Delay | Recurrent | None = self._early(*states) if len(states) == 1 else None
        if early is None:
            try:
                return self._find_affine(states)
            except NotAffine:
                if len(states) > 1 or self.step.state[states[0]].shape:
                    raise
                early = self._counter(*states)
        self.early.append(early)
        self.known |= early.read_inputs

    def _find_affine(self, states: States) -> None:
        """Finds the update of states. A state that they add to themselves as a whole is coupled with them."""
        reads, made = list(self.reads), dict(self._made)
        try:
            self.updates[states] = self._update(states)
        except ReadWhole as error:
            others = next((group for group in self.updates if error.state in group), ())
            self.reads, self._made = reads, made
            with suppress(NotAffine):
                update = self._update((*others, *states))
                self.updates = {s: u for s, u in self.updates.items() if s != others} | {(*others, *states): update}
                return
            raise
        except NotAffine as error:
            if len(states) == 1:
                raise
            reason = f"{_listed(states)} depend on each other, and {error.reason}"
            raise NotAffine(reason, error.line, states) from None

    def _early(self, name: str) -> RunningMax | Delay | None:
        """The state as a stage before the scans; None if it is affine or of no known form."""
        value = self.step.new_state[name]
        return self._delay(name, value) if value.shape else self._running_max(name, value) or self._delay(name, value)

    def _delay(self, name: str, value: Value) -> Delay | None:
        """The state as a delay; None if it has another form. A product of two vectors is cheaper as a matrix S."""
        before, after = self.step.state[name], self.step.after[name]
        steps = delay_of(value, before)
        if steps is None or (steps == 1 and len(value.shape) > 1 and self._is_sum_of_products(name, value)):
            return None
        self.known |= {before, after}
        return Delay(name, Value(value.shape, self.replace_reads(value.expression)), steps, before, after)

    def _counter(self, name: str) -> Recurrent:
        """A scalar of any form."""
        before, after = self.step.state[name], self.step.after[name]
        self.known |= {before, after}
        value = Value((), self.replace_reads(self.step.new_state[name].expression))
        return Recurrent((RecurrentPart(name, value, before, after),))

    def _is_sum_of_products(self, name: str, value: Value) -> bool:
        """Whether a value that does not depend on its state is a sum of outer products of vectors."""
        written = self._terms_update(name, self.terms(value.expression, frozenset({name}))).written
        return all(len(axes(f)) < 2 for known in written for factor in known for f in factors_of(factor))

    def _running_max(self, name: str, value: Value) -> RunningMax | None:
        """The value in the form max(m + plus, floor); None if it has another form."""
        inside = _inside(value.expression)
        if not (isinstance(inside, Apply) and inside.function == "maximum"):
            return None
        moved = [a for a in inside.arguments if name in self.needs(a)]
        if len(moved) != 1:
            return None
        (other,) = (a for a in inside.arguments if a is not moved[0])
        terms = self.terms(moved[0], frozenset({name}))
        if any(t.known for t in terms if t.atom is not None):
            return None
        plus = sum_of(self.builder, [t.known for t in terms if t.atom is None], ())
        before, after = self.step.state[name], self.step.after[name]
        return RunningMax(name, plus, Value((), self.replace_reads(other)), before, after)

    # Reads of states that come earlier

    def replace_reads(self, expression: Expression) -> Expression:
        """An expression in which inputs replace the products of states."""
        if not self.needs(expression):
            return expression
        if isinstance(expression, Apply):
            return Apply(expression.function, tuple(map(self.replace_reads, expression.arguments)))
        assert isinstance(expression, Load)
        node, index = expression.node, expression.index
        if node in self.inputs:
            if node in self.known:
                return expression
            return self._read(Product(*self.inputs[node], index), "")
        if node not in self._made:
            self._made[node] = self._replace_reads_of(node)
        return Load(self._made[node], index)

    def _replace_reads_of(self, node: Node) -> Node:
        if isinstance(node, Reduce) and node.reduction == "sum" and (sums := self._products(node)) is not None:
            return Map(node.shape, sums, line=node.line)
        if isinstance(node, Input):
            raise NotAffine("a tensor is read as a whole", node.line)
        return rebuilt(node, self.replace_reads)

    def _products(self, node: Reduce) -> Expression | None:
        """A sum as products of one state with vectors; None if it has another form."""
        for name in sorted(self._needs_of(node)):
            if self.step.state[name] in self.known:
                continue
            try:
                terms = self.terms(Load(node, identity(node.shape)), frozenset({name}))
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
            raise ReadWhole(atom.state, line)
        index = tuple(i for a, i in enumerate(atom.place) if a not in over)
        vector = Value(shape, atom.vector)
        for read in self.reads:
            if read[:4] == (atom.state, over, vector, atom.after):
                return Load(read.input, index)
        read_input = Input(tuple(n for a, n in enumerate(shape) if a not in over))
        self.reads.append(Read(atom.state, over, vector, atom.after, read_input))
        return Load(read_input, index)

    # Sums of products

    def _update(self, states: States) -> Update:
        """The update of states in terms of all of them."""
        if len(states) == 1:
            return self._terms_update(*states, self.terms(self.step.new_state[states[0]].expression, frozenset(states)))
        inliner = Inliner({self.step.after[name]: self.step.new_state[name] for name in states})
        updates = []
        for name in states:
            with error_context(self.lines[name]):
                new_state = inliner.inlined(self.step.new_state[name].expression)
                updates.append(self._terms_update(name, self.terms(new_state, frozenset(states))))
        return coupled(updates)

    def _terms_update(self, name: str, terms: Sequence[Term]) -> Update:
        """The update of a state. Raises `NotAffine` unless every element depends on old values at the same index."""
        shape = self.step.state[name].shape
        written = [w for t in terms if t.atom is None for w in self._written(t.known, shape)]
        for atom in (t.atom for t in terms if t.atom is not None):
            if self.step.state[atom.state].shape != shape:
                raise NotAffine(f"{name} and {atom.state} have different shapes")
            if any(atom.place[a] != i for a, i in enumerate(identity(shape)) if a not in atom.over):
                raise NotAffine(f"elements of {atom.state} move to other positions")
        atoms = [(t.known, t.atom) for t in terms if t.atom is not None]
        decay_terms = tuple(DecayTerm(a.state, known) for known, a in atoms if not a.over)
        erased = tuple(EraseTerm(a.state, known, a.over, a.vector) for known, a in atoms if a.over)
        return Update(self.builder, name, shape, decay_terms, erased, tuple(written))

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

    def terms(self, expression: Expression, own: frozenset[str], line: str = "") -> list[Term]:
        """An expression from a line of the cell as a sum of terms in some states, usually one.

        Raises:
            NotAffine: The expression is not affine in these states.
        """
        if expression == Constant(0.0):
            return []
        if not own & self.needs(expression):
            return [Term((self.replace_reads(expression),), None)]
        if isinstance(expression, Load):
            return self._terms_of_load(expression, own, line)
        assert isinstance(expression, Apply)
        function, arguments = expression.function, expression.arguments
        held = [bool(own & self.needs(a)) for a in arguments]
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
                return _times(self.terms(moved, own, line), self.replace_reads(other))
            case "div" if not held[1]:
                return _times(
                    self.terms(arguments[0], own, line), Apply("reciprocal", (self.replace_reads(arguments[1]),))
                )
            case "where" if not held[0]:
                mask, (then, otherwise) = (
                    self.replace_reads(arguments[0]),
                    (self.terms(a, own, line) for a in arguments[1:]),
                )
                return _where(mask, then) + _where(Apply("logical_not", (mask,)), otherwise)
        names = own & self.needs(expression)
        by = "itself" if len(names) == 1 else "each other"
        operation = {"mul": f"multiplied by {by}", "where": "compared"}.get(function, f"passed through {function}")
        raise NotAffine(f"{_subject(names)} {operation}", line)

    def _terms_of_load(self, load: Load, own: frozenset[str], line: str) -> list[Term]:
        node, index = load.node, load.index
        line = node.line or line
        if node in self.inputs:
            return [Term((), Product(*self.inputs[node], index))]
        match node:
            case Map(_, expression):
                terms = self.terms(expression, own, line)
            case Reduce(shape, "sum", extent, expression):
                inner = self.terms(expression, own, line)
                terms = [self._summed(t, (*shape, extent), line) for t in inner]
            case Reduce(reduction=reduction):
                raise NotAffine(f"the {reduction} of {_listed(own & self._needs_of(node))} is taken", line)
            case _:
                raise NotAffine(f"{_subject(own & self._needs_of(node))} split", line)
        return [t.at(index) for t in terms]

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
            raise NotAffine(f"elements of {atom.state} at different positions are summed", line)
        others = frozenset[int]().union(*(axes(f) for f in factors)) - {last}
        if others - along.keys() or (others and len(sizes) < 3):
            raise NotAffine(f"every row of {atom.state} is multiplied by a different vector", line)
        own = [Index(along[a]) if a in along else Index(-1, 0, 0) for a in range(len(shape))]
        vector = self.builder.product(sizes, [atom.vector, *(substitute(f, own) for f in factors)])
        place = tuple(Index(-1, 0, 0) if a == bound[0] else i for a, i in enumerate(atom.place))
        return atom._replace(place=place, over=(*atom.over, bound[0]), vector=vector)

    def _is_one_vector(self, atom: Product, axis: int) -> bool:
        """Whether a product with a vector over one more axis is possible. Otherwise the sum is taken of the read
        vector."""
        update = next((update for states, update in self.updates.items() if atom.state in states), None)
        return not atom.over or update is None or any({*atom.over, axis} <= {*e.over} for e in update.erased)


def _listed(states: Iterable[str]) -> str:
    return " and ".join(sorted(states))


def _subject(states: Iterable[str]) -> str:
    """States as the subject of a sentence, with its verb."""
    names = _listed(states)
    return f"{names} {'are' if ' and ' in names else 'is'}"


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
