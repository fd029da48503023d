"""Chunks of time as matrix products, for cells whose states the compiler finds affine in themselves.

`compiler/affine.py` says what is computed before the scans of the states, what between them, and what after the last:
all of it for all time at once, in plain PyTorch on any device. `_chunks.py` scans.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.backends._chunks import Chunks, Over, Writes, chunk_size, scan
from fastweights.backends._form import form_of
from fastweights.backends._transforms import transform
from fastweights.compiler.affine import AffineForm, Highest, Linear, Part
from fastweights.compiler.batched import Batched, batched
from fastweights.compiler.forms import affine_of
from fastweights.compiler.ir import Definition, Input, Value, behind
from fastweights.lengths import only
from fastweights.problem import FILL, Problem
from fastweights.state import where

SHORT = 64
"""Up to so many steps, nothing is computed twice."""
LARGE = {"sums": {"short": 10_000, "long": 1 << 16}, "other": {"short": 1 << 16, "long": 1 << 17}}
"""Numbers in the state of a head from which training is faster than by a compiled kernel, measured on CPUs: of memories
that only add up, and of others."""


class Function(NamedTuple):
    """Values of the step as a function of tensors by name: those that differ from step to step, then slow weights."""

    run: Batched
    moving: tuple[str, ...]
    still: tuple[str, ...]


class Scanned(NamedTuple):
    """A stage of states that are rows of one matrix: what computes its coefficients, and which of them there are.

    `fades` is the number of axes of a decay, None if there is none. `writes` tells of every write whether it erases, and to which parts it gives values; `queries` of every vector
    that reads whether it does so after the step; `seen` the names of what is read, each with its vector and its part.
    """

    parts: tuple[Part, ...]
    function: Function
    fades: int | None
    writes: tuple[tuple[bool, tuple[bool, ...]], ...]
    queries: tuple[bool, ...]
    seen: tuple[tuple[str, int, int], ...]


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


def refusal(problem: Problem, build: bool) -> str:
    """Why this backend cannot run the problem; empty if it can."""
    plan = _plan(problem.mapped)
    return plan if isinstance(plan, str) else transform()


def cost(problem: Problem) -> float:
    """In the time of a compiled kernel: 3 to 20 were measured, but less than 1 where large states are trained on a CPU,
    since a chunk's states of the compiled kernel leave the cache."""
    return 0.8 if problem.inputs[0].device.type == "cpu" and _is_ahead(problem) else 5.0


def _is_ahead(problem: Problem) -> bool:
    """Whether it trains faster than a compiled kernel, on a CPU."""
    if torch.compiler.is_exporting():
        return False  # T may be any: nothing is asked of it.
    T = problem.leading[1]
    trains = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in problem.inputs)
    size, length = sum(leaf[0, 0].numel() for leaf in problem.state), "short" if T <= SHORT else "long"
    if not trains or T == 1 or size < LARGE["sums"][length]:
        return False
    plan = _plan(problem.mapped)
    return not isinstance(plan, str) and plan.kind in LARGE and size >= LARGE[plan.kind][length]


def told(problem: Problem) -> str:
    """The form that was found."""
    plan = _plan(problem.mapped)
    return plan if isinstance(plan, str) else plan.told


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the affine form of the cell chunk by chunk."""
    problem = problem.mapped
    plan = _plan(problem)
    assert not isinstance(plan, str)
    given = _given(problem)
    last: dict[str, Tensor] = {}
    for stage in plan.stages:
        found, ends = (_raise if isinstance(stage, Raised) else _scan)(stage, problem, given)
        given, last = given | found, last | ends
    return _output(plan, problem, given), type(problem.state)(*(last[name] for name in problem.state._fields))


class Stretch(NamedTuple):
    """What a stretch of time does with any S `[B, H, R, K]`: reads `base + S queries`, ends with `S kept + written`."""

    base: Tensor  # [B, T, H, n, R]
    queries: Tensor  # [B, T, H, n, K]
    kept: Tensor  # [B, H, K, K]
    written: Tensor  # [B, H, R, K]
    plan: Plan
    problem: Problem
    given: Mapping[str, Tensor]

    def after(self, state: Any) -> Any:
        """The last state."""
        (stage,) = self.plan.stages
        assert isinstance(stage, Scanned)
        ends = _states(stage, _matrix(stage, state) @ self.kept + self.written)
        return type(state)(*(ends[name] for name in state._fields))

    def output(self, state: Any) -> Tensor:
        """What every step says."""
        (stage,) = self.plan.stages
        assert isinstance(stage, Scanned)
        read = self.base + torch.einsum("bhrk,bthnk->bthnr", _matrix(stage, state), self.queries)
        return _output(self.plan, self.problem, {**self.given, **_seen(stage, read)})


def stretch(problem: Problem) -> Stretch | None:
    """That of a problem whose states are rows of one matrix, from S = 0; None for others."""
    problem = problem.mapped
    plan = _plan(problem)
    if isinstance(plan, str) or len(plan.stages) > 1 or not isinstance(stage := plan.stages[0], Scanned):
        return None
    given, K = _given(problem), stage.parts[0].columns
    # From S = 0 and, in further rows to which nothing is written, from S = I.
    zeros = torch.zeros_like(_matrix(stage, problem.state))
    eye = torch.eye(K, dtype=zeros.dtype, device=zeros.device).expand(*zeros.shape[:2], K, K)
    read, last = scan(_begun(stage, problem, given, K).over, torch.cat([zeros, eye], -2))
    rows = [zeros.shape[-2], K]
    (base, queries), (written, kept) = read.split(rows, -1), last.split(rows, -2)
    return Stretch(base, queries, kept, written, plan, problem, given)


def _output(plan: Plan, problem: Problem, given: Mapping[str, Tensor]) -> Tensor:
    """y of all that is seen."""
    (y,) = _call(plan.output, problem, given)
    y = y.expand(*problem.leading, *y.shape[3:]).to(problem.dtype)
    inside = problem.inside
    return y if inside is None else only(inside, y)


# What is computed


def _plan(problem: Problem) -> Plan | str:
    """The plan of a problem's cell, or why there is none."""
    if torch.compiler.is_compiling():
        sizes = tuple((axis, int(size)) for axis, size in problem.sizes.items())
        return planned(problem.cell.key, sizes, problem.inputs[0].dtype)
    form, _ = form_of(problem)
    return _planned(form.affine())


def planned(key: str, sizes: tuple[tuple[str, int], ...], dtype: torch.dtype) -> Plan | str:
    """The same for `torch.compile`, which asks while it traces."""
    return _planned(affine_of(key, sizes, dtype))


# As by torch.compiler.assume_constant_result, whose import would take seconds: a trace calls it and keeps the answer.
planned._dynamo_marked_constant = True  # type: ignore[attr-defined]

_PLANS: dict[AffineForm, Plan | str] = {}


def _planned(form: AffineForm | str) -> Plan | str:
    if isinstance(form, str):
        return form
    if form not in _PLANS:
        _PLANS[form] = Planner(form).plan()
    return _PLANS[form]


class Planner:
    """Names what is given, and makes functions of values."""

    def __init__(self, form: AffineForm) -> None:
        self.form = form
        inputs, params = form.given
        self.moving: dict[Definition, str] = {d: f"in_{name}" for name, d in inputs.items()}
        self.still: dict[Definition, str] = {d: f"param_{name}" for name, d in params.items()}
        for stage in form.stages:
            if isinstance(stage, Highest):
                self.moving |= {stage.before: f"before_{stage.state}", stage.after: f"after_{stage.state}"}
            else:
                self.moving |= {read.seen: f"seen_{len(self.moving) + n}" for n, read in enumerate(stage.reads)}

    def plan(self) -> Plan | str:
        """All of it; why not, if a state is read along its other axis."""
        for stage in self.form.stages:
            for read in stage.reads if isinstance(stage, Linear) else ():
                if read.axis != stage.parts[0].column and read.axis not in {p.column for p in stage.parts if p.state == read.state}:
                    return f"{read.state} is read along one axis, and fades or is erased along the other"
        stages = [self._raised(s) if isinstance(s, Highest) else self._scanned(s) for s in self.form.stages]
        return Plan(tuple(stages), self._function([self.form.y]), self._kind(), str(self.form))

    def _kind(self) -> str:
        """Which measured kind it is; empty if none."""
        stages = [s for s in self.form.stages if isinstance(s, Linear)]
        if len(stages) < len(self.form.stages) or any(s.decay is not None and s.decay.shape for s in stages):
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
        vectors = list(dict.fromkeys((read.vector, read.after) for read in stage.reads))
        names = [part.state for part in stage.parts]
        seen = [
            (self.moving[r.seen], vectors.index((r.vector, r.after)), names.index(r.state)) for r in stage.reads
        ]
        values = [stage.decay, *(v for w in writes for v in (w.key, w.erase, *w.values)), *(v for v, _ in vectors)]
        kinds = tuple((w.erase is not None, tuple(v is not None for v in w.values)) for w in writes)
        function = self._function([v for v in values if v is not None])
        after = tuple(is_after for _, is_after in vectors)
        return Scanned(stage.parts, function, None if stage.decay is None else len(stage.decay.shape), kinds, after, tuple(seen))


def _given(problem: Problem) -> dict[str, Tensor]:
    """The inputs and slow weights by name, those from elsewhere among them."""
    given = {f"in_{name}": x for name, x in zip(problem.inputs._fields, problem.finite_inputs, strict=True)}
    names, params = list(problem.cell.slots.get("Params", {})), list(problem.params or ())
    if not torch.compiler.is_compiling():
        form, captured = form_of(problem)
        names, heads = list(form.cell.slots.get("Params", {})), problem.leading[2]
        params += [x.to(problem.inputs[0].dtype).expand(heads, *x.shape) for x in captured]
    return given | {f"param_{name}": x for name, x in zip(names, params, strict=True)}


def _call(function: Function, problem: Problem, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """For all steps, `[B, T, H, ...]`."""
    return function.run(problem.leading, *(given[name] for name in (*function.moving, *function.still)))


# Scalars that are maxima


def _raise(stage: Raised, problem: Problem, given: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """m before and after every step: m[t] = max(m[t-1] + plus[t], floor[t]), every round joining twice as many steps."""
    plus, floor = (x.expand(problem.leading) for x in _call(stage.function, problem, given))
    m = getattr(problem.state, stage.state)
    before = None
    if problem.reset is not None:
        start = getattr(problem.initial, stage.state)[:, None]
        reset = problem.reset[..., None]
        floor = torch.where(reset, torch.maximum(start + plus, floor), floor)
        plus = torch.where(reset, -torch.inf, plus)
    if problem.inside is not None:
        plus, floor = only(problem.inside, plus), only(problem.inside, floor, -torch.inf)
    joined = 1
    while joined < plus.shape[1]:
        floor = torch.maximum(_later(floor, joined, -torch.inf) + plus, floor)
        plus = plus + _later(plus, joined)
        joined *= 2
    after = torch.maximum(m[:, None] + plus, floor)
    before = torch.cat([m[:, None], after[:, :-1]], 1)
    if problem.reset is not None:
        before = torch.where(reset, start, before)
    return {stage.before: before, stage.after: after}, {stage.state: after[:, -1]}


def _later(x: Tensor, steps: int, fill: float = 0.0) -> Tensor:
    """`[B, T, ...]` so many steps later."""
    return pad(x[:, :-steps], [0, 0] * (x.ndim - 2) + [steps, 0], value=fill)


# States that are matrices


def _scan(stage: Scanned, problem: Problem, given: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is seen of the states of a stage, and the last ones."""
    begun, state = _begun(stage, problem, given), problem.state
    if problem.reset is not None:
        # At the first step a reset replaces the carried state, so that not even a NaN in it survives.
        state = where(problem.reset[:, 0], problem.initial, state)
    read, last = scan(begun.over, _matrix(stage, state))
    if begun.start is not None and begun.left is not None:
        last = last + begun.start * begun.left.unsqueeze(-2)
    return _seen(stage, read), _states(stage, last)


def _seen(stage: Scanned, read: Tensor) -> dict[str, Tensor]:
    """By name, of what every vector reads of all parts."""
    rows = read.split([part.rows for part in stage.parts], -1)
    return {name: _shaped(rows[part][..., vector, :], stage.parts[part]) for name, vector, part in stage.seen}


def _shaped(x: Tensor, part: Part) -> Tensor:
    """`[..., R]` without that axis if the state has none of rows."""
    return x if part.has_rows else x.squeeze(-1)


def _matrix(stage: Scanned, state: Any) -> Tensor:
    """The states of a stage below each other, `[B, H, R, K]`."""
    parts = [_rows(getattr(state, part.state), part) for part in stage.parts]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -2)


def _rows(x: Tensor, part: Part) -> Tensor:
    if len(part.shape) == 2:
        return x if part.column == 1 else x.mT
    return x[..., None, :] if part.column == 0 else x.unsqueeze(-1) if part.shape else x[..., None, None]


def _states(stage: Scanned, S: Tensor) -> dict[str, Tensor]:
    """The states back from it."""
    rows = S.split([part.rows for part in stage.parts], -2)
    return {part.state: _state(x, part) for x, part in zip(rows, stage.parts, strict=True)}


def _state(x: Tensor, part: Part) -> Tensor:
    if len(part.shape) == 2:
        return x if part.column == 1 else x.mT
    return x[..., 0, :] if part.column == 0 else x[..., 0] if part.shape else x[..., 0, 0]


class Begun(NamedTuple):
    """A scan, and what is to be added to its last S where resets go back to a `start` `[B, H, R, K]`, of which so much
    is `left` at the end, `[B, H, 1]` or `[B, H, K]`.

    What is scanned then is S - start * left, with `left` the decays since the last reset (0 if there was none). That
    difference is 0 after a reset, as chunks need it, and affine like S, with start * (left before the step) given to
    what erases.
    """

    over: Over
    start: Tensor | None
    left: Tensor | None


def _begun(stage: Scanned, problem: Problem, given: Mapping[str, Tensor], extra: int = 0) -> Begun:
    """The scan of a stage; with `extra` rows to which nothing is written."""
    time = {name: given[name] for name in stage.function.moving}
    still = [given[name] for name in stage.function.still]
    fills, start, left = dict.fromkeys(time, FILL), None, None
    marks: dict[str, tuple[Tensor, float]] = {}
    if problem.inside is not None:
        marks["inside"] = problem.inside[..., None], 0.0
    if problem.reset is not None:
        marks["stays"] = ~problem.reset[..., None], 1.0
    if problem.reset is not None and not problem.from_zero:
        start = _matrix(stage, problem.initial)
        before, after = _left(stage, problem, given)
        marks |= {"left_before": (before, 0.0), "left_after": (after, 0.0)}
        left, still = after[:, -1], [*still, start]
    time |= {name: mark for name, (mark, _) in marks.items()}
    fills |= {name: fill for name, (_, fill) in marks.items()}
    columns, rows = stage.parts[0].columns, sum(part.rows for part in stage.parts) + extra
    made = Made(stage, tuple(time), len(stage.function.still), extra)
    B, T, H = problem.leading
    numbers = B * H * len(stage.writes) * (columns + rows)
    size = chunk_size(T, columns)
    return Begun(Over(made, tuple(time.values()), tuple(fills.values()), tuple(still), size, numbers), start, left)


class Write(NamedTuple):
    """One of a step's: u key^T with u = value - S erase."""

    key: Tensor
    erase: Tensor | None
    value: Tensor


class Step(NamedTuple):
    """The coefficients of all steps of all chunks, `[N, B, H, C, ...]`; `offsets` are added to what the queries read."""

    decay: Tensor | None
    writes: list[Write]
    queries: list[Tensor]
    offsets: list[Tensor]


class Made:
    """Makes the coefficients of a stage for chunks, of what is given of the same steps by `names`."""

    def __init__(self, stage: Scanned, names: tuple[str, ...], still: int, extra: int) -> None:
        self.stage, self.names, self.still, self.extra = stage, names, still, extra

    def __call__(self, time: Sequence[Tensor], still: Sequence[Tensor], missing: int) -> Chunks:
        stage, front = self.stage, tuple(time[0].shape[:4])
        count = len(stage.function.moving)
        # Slow weights differ from head to head, not from step to step.
        params = [x.unsqueeze(1) for x in still[: self.still]]
        found = iter(stage.function.run(front, *time[:count], *params))
        step = Step(
            decay=None if stage.fades is None else _wide(next(found), front, stage.fades),
            writes=[self._write(found, front, *kind) for kind in stage.writes],
            queries=[_wide(next(found), front, 1) for _ in stage.queries],
            offsets=[],
        )
        marks = dict(zip(self.names[count:], time[count:], strict=True))
        if "left_before" in marks:
            step = _apart(step, stage, still[-1], marks["left_before"], marks["left_after"])
        if "stays" in marks:
            step = _cut_off(step, stage, marks["stays"].unsqueeze(-1))
        if "inside" in marks or missing:
            step = _hold(step, _inside(marks.get("inside"), missing, front, time[0].device))
        return _chunks(step, stage)

    def _write(self, found: Iterator[Tensor], front: tuple[int, ...], erases: bool, given: Sequence[bool]) -> Write:
        key = _wide(next(found), front, 1)
        erase = _wide(next(found), front, 1) if erases else None
        rows = [part.rows for part in self.stage.parts]
        values = [
            _wide(next(found), front, bool(part.has_rows)) if is_given else key.new_zeros(()).expand(*front, part.rows)
            for part, is_given in zip(self.stage.parts, given, strict=True)
        ]
        value = values[0] if len(rows) == 1 else torch.cat(values, -1)
        return Write(key, erase, pad(value, (0, self.extra)) if self.extra else value)


def _wide(x: Tensor, front: tuple[int, ...], axes: int) -> Tensor:
    """A number or a vector for every step, with its axis."""
    x = x if axes else x.unsqueeze(-1)
    return x.expand(*front, x.shape[-1])


def _apart(step: Step, stage: Scanned, start: Tensor, before: Tensor, after: Tensor) -> Step:
    """For S - start * left in the place of S: see `Begun`."""

    def of_start(vector: Tensor) -> Tensor:
        return torch.einsum("bhrk,nbhck->nbhcr", start, vector)

    writes = [
        w if w.erase is None else w._replace(value=w.value - of_start(before * w.erase)) for w in step.writes
    ]
    offsets = [of_start((after if a else before) * q) for q, a in zip(step.queries, stage.queries, strict=True)]
    return step._replace(writes=writes, offsets=offsets)


def _cut_off(step: Step, stage: Scanned, stays: Tensor) -> Step:
    """Forgets everything before a reset: there nothing is left, and nothing to erase or to read."""
    queries = [q if after else q * stays for q, after in zip(step.queries, stage.queries, strict=True)]
    decay = stays.to(queries[0].dtype).expand(*queries[0].shape[:-1], 1) if step.decay is None else step.decay * stays
    writes = [w if w.erase is None else w._replace(erase=w.erase * stays) for w in step.writes]
    return step._replace(decay=decay, writes=writes, queries=queries)


def _inside(inside: Tensor | None, missing: int, front: tuple[int, ...], device: torch.device) -> Tensor:
    """Which steps are those of a sequence, `[N, B or 1, 1, C, 1]`: not its padding, nor what fills up the last chunk."""
    if inside is None:
        steps = front[0] * front[3]
        inside = (torch.arange(steps, device=device) < steps - missing).view(front[0], 1, 1, front[3])
    return inside.unsqueeze(-1)


def _hold(step: Step, inside: Tensor) -> Step:
    """Changes nothing where a sequence has ended: there nothing fades, and nothing is erased or written."""
    writes = [
        Write(w.key, w.erase if w.erase is None else torch.where(inside, w.erase, 0.0), torch.where(inside, w.value, 0.0))
        for w in step.writes
    ]
    return step._replace(decay=step.decay if step.decay is None else torch.where(inside, step.decay, 1.0), writes=writes)


def _chunks(step: Step, stage: Scanned) -> Chunks:
    """Members and heads on one axis, and several vectors a step on one."""
    decay = None if step.decay is None else step.decay.flatten(1, 2)
    erasing, rest = ([w for w in step.writes if (w.erase is not None) == does] for does in (True, False))
    kinds = [Writes(*(_stacked(parts) for parts in zip(*kind, strict=True))) for kind in (erasing, rest) if kind]
    offsets = _stacked(step.offsets) if step.offsets else None
    return Chunks(decay, tuple(kinds), _stacked(step.queries), stage.queries, offsets)


def _stacked(vectors: Sequence[Any]) -> Any:
    """`[N, B, H, C, K]` each -> `[N, B H, C, n, K]`; None of none."""
    if vectors[0] is None:
        return None
    return (vectors[0].unsqueeze(-2) if len(vectors) == 1 else torch.stack(list(vectors), -2)).flatten(1, 2)


def _left(stage: Scanned, problem: Problem, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Products of all decays since the last reset, before and after every step, `[B, T, H, 1 or K]`; 0 if there was
    none.

    before[t] = a[t] before[t-1] + b[t] is a chain of maps: every round joins those of twice as many steps.
    """
    assert problem.reset is not None
    like = problem.inputs[0]
    decays = like.new_ones(()).expand(*problem.leading, 1)
    if stage.fades is not None:
        decays = _wide(_call(stage.function, problem, given)[0], problem.leading, stage.fades)
    if problem.inside is not None:
        decays = only(problem.inside, decays, 1.0)
    began = problem.reset[:, :, None, None].expand(decays.shape)
    a, before = torch.where(began, 0.0, _later(decays, 1)), began.to(like.dtype)
    joined = 1
    while joined < began.shape[1]:
        a, before = a * _later(a, joined), before + a * _later(before, joined)
        joined *= 2
    return before, decays * before
