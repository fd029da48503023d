"""What is computed for a cell before the scans of its states, between them and after: functions of tensors by name."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from fastweights.backends._form import form_of
from fastweights.call.call import Problem
from fastweights.compiler.affine.batched import Batched, batched
from fastweights.compiler.affine.form import AffineForm, Highest, Linear, Part, Read
from fastweights.compiler.ir.nodes import Input, Node, Shape, Value, behind
from fastweights.compiler.specialise.specialisations import affine_of


class Function(NamedTuple):
    """Values of the step as a function of tensors by name: those that differ from step to step, then slow weights."""

    run: Batched
    moving: tuple[str, ...]
    still: tuple[str, ...]


class Scanned(NamedTuple):
    """A stage of states that are rows of one matrix: what computes its coefficients, and which of them there are.

    `fades` is the number of axes of a decay, those of groups aside, and None if there is none. `writes` tells of every
    write whether it erases, and to which parts it gives values; `queries` of every vector that reads whether it does so
    after the step, and `across` of every one over the rows. `seen` and `crossed` have the name of every read, the place
    of its vector, the part, and the shape of what is read.
    """

    parts: tuple[Part, ...]
    function: Function
    fades: int | None
    writes: tuple[tuple[bool, tuple[bool, ...]], ...]
    queries: tuple[bool, ...]
    seen: tuple[tuple[str, int, int, Shape], ...]
    across: tuple[bool, ...]
    crossed: tuple[tuple[str, int, int, Shape], ...]


class Raised(NamedTuple):
    """A stage of a scalar that is a maximum: what computes `plus` and `floor`, its name, and those before and after."""

    state: str
    function: Function
    before: str
    after: str


class Plan(NamedTuple):
    """All stages, then the output; of which measured `kind` it is, and how the form is told."""

    stages: tuple[Scanned | Raised, ...]
    output: Function
    kind: str
    told: str


def plan_of(problem: Problem) -> Plan | str:
    """The plan of a problem's cell, or why there is none."""
    if torch.compiler.is_compiling():
        sizes = tuple((axis, int(size)) for axis, size in problem.sizes.items())
        name = name_of_plan(problem.cell.key, sizes, problem.inputs[0].dtype)
        found: Plan | str = getattr(PLANS, name)
        return found
    form, _ = form_of(problem)
    return _planned(form.affine())


PLANS = SimpleNamespace()
"""Plans of traced programs. `torch.compile` keeps no such object as the answer of a function, but finds it here."""


def name_of_plan(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> str:
    """Makes the plan of a cell, or says why there is none, under a name in `PLANS`."""
    plan = _planned(affine_of(key, sizes, dtype))
    name = f"plan_{sha256(repr((key, sizes, dtype)).encode()).hexdigest()}"
    setattr(PLANS, name, plan)
    return name


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
name_of_plan._dynamo_marked_constant = True  # type: ignore[attr-defined]

_PLANS: dict[AffineForm, Plan | str] = {}


def _planned(form: AffineForm | str) -> Plan | str:
    if isinstance(form, str):
        return form
    if form not in _PLANS:
        _PLANS[form] = _idle(form) or Planner(form).plan()
    return _PLANS[form]


def _idle(form: AffineForm) -> str:
    """Why there is nothing to walk through in chunks; empty if there is."""
    linear = [stage for stage in form.stages if isinstance(stage, Linear)]
    idle = [part.state for stage in linear if not stage.writes for part in stage.parts]
    return f"nothing is written to {' and '.join(idle)}" if idle else ""


class Planner:
    """Names what is given, and makes functions of values."""

    def __init__(self, form: AffineForm) -> None:
        self.form = form
        inputs, params = form.given
        self.moving: dict[Node, str] = {d: f"in_{name}" for name, d in inputs.items()}
        self.still: dict[Node, str] = {d: f"param_{name}" for name, d in params.items()}
        for stage in form.stages:
            if isinstance(stage, Highest):
                self.moving |= {stage.before: f"before_{stage.state}", stage.after: f"after_{stage.state}"}
            else:
                self.moving |= {read.seen: f"seen_{len(self.moving) + n}" for n, read in enumerate(stage.reads)}

    def plan(self) -> Plan:
        """All of it."""
        stages = [self._raised(s) if isinstance(s, Highest) else self._scanned(s) for s in self.form.stages]
        return Plan(tuple(stages), self._function([self.form.y]), self._kind(), str(self.form))

    def _kind(self) -> str:
        """Which measured kind it is; empty if none."""
        stages = [s for s in self.form.stages if isinstance(s, Linear)]
        others = any(s.across or s.fades_by_column or s.parts[0].groups or len(s.parts[0].columns) > 1 for s in stages)
        if len(stages) < len(self.form.stages) or others:
            return ""
        plain = all(s.decay is None and all(w.erase is None for w in s.writes) for s in stages)
        return "sums" if plain else "other"

    def _function(self, values: Sequence[Value]) -> Function:
        found = behind(values)
        moving = {d: name for d, name in self.moving.items() if d in found} or dict(list(self.moving.items())[:1])
        still = {d: name for d, name in self.still.items() if d in found}
        run = batched(values, [d for d in (*moving, *still) if isinstance(d, Input)])
        return Function(run, tuple(moving.values()), tuple(still.values()))

    def _raised(self, stage: Highest) -> Raised:
        function = self._function([stage.plus, stage.floor])
        return Raised(stage.state, function, self.moving[stage.before], self.moving[stage.after])

    def _scanned(self, stage: Linear) -> Scanned:
        writes = sorted(stage.writes, key=lambda w: w.erase is None)
        along = [read for read in stage.reads if read not in stage.across]
        (vectors, places), (over_rows, at) = _vectors(along), _vectors(stage.across)
        names = [part.state for part in stage.parts]
        seen, crossed = (
            [(self.moving[r.seen], n, names.index(r.state), r.seen.shape) for r, n in zip(reads, placed, strict=True)]
            for reads, placed in ((along, places), (stage.across, at))
        )
        values = [stage.decay, *(v for w in writes for v in (w.key, w.erase, *w.values))]
        values += [vector for vector, _ in (*vectors, *over_rows)]
        kinds = tuple((w.erase is not None, tuple(v is not None for v in w.values)) for w in writes)
        function = self._function([v for v in values if v is not None])
        fades = None if stage.decay is None else len(stage.decay.shape) - len(stage.parts[0].groups)
        queries, across = (tuple(is_after for _, is_after in found) for found in (vectors, over_rows))
        return Scanned(stage.parts, function, fades, kinds, queries, tuple(seen), across, tuple(crossed))


def _vectors(reads: Sequence[Read]) -> tuple[list[tuple[Value, bool]], list[int]]:
    """The vectors that read, after the step or before it, each once; and which of them each read has."""
    found = list(dict.fromkeys((read.vector, read.after) for read in reads))
    return found, [found.index((read.vector, read.after)) for read in reads]


def given_to(problem: Problem) -> dict[str, Tensor]:
    """The inputs and slow weights by name, those from elsewhere among them."""
    given = {f"in_{name}": x for name, x in zip(problem.inputs._fields, problem.finite_inputs, strict=True)}
    names, params = list(problem.cell.slots.get("Params", {})), list(problem.params or ())
    if not torch.compiler.is_compiling():
        form, captured = form_of(problem)
        names, heads = list(form.cell.slots.get("Params", {})), problem.leading[2]
        params += [x.to(problem.inputs[0].dtype).expand(heads, *x.shape) for x in captured]
    return given | {f"param_{name}": x for name, x in zip(names, params, strict=True)}


def call(function: Function, problem: Problem, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """For all steps, `[B, T, H, ...]`."""
    return function.run(problem.leading, *(given[name] for name in (*function.moving, *function.still)))
