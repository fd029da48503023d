"""The kernels of a cell: a step forward, the step again for the way back, and the gradient of the step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastweights.compiler.ahead import Later, first_reads, is_matrix, settled, upstream
from fastweights.compiler.ir import Definition, Load, identity, loads
from fastweights.compiler.layout import choose_layouts
from fastweights.compiler.lower import Step
from fastweights.compiler.operations.value import Value
from fastweights.compiler.schedule import Buffer, Layout, Program, Target, schedule


@dataclass(frozen=True)
class Phase:
    """One kernel: from `state` and what is `moving` with the steps it makes the new state and what is `made`. The sums
    in `ahead` it is given by the step before, and makes for the step after; `begin` makes the first ones."""

    step: Program
    begin: Program
    state: list[Buffer]
    moving: list[Buffer]
    made: list[Buffer]
    ahead: list[Buffer]


@dataclass(frozen=True)
class Plan:
    """The kernels, and the buffers that the loop over time hands to them, by role."""

    forward: Phase
    again: Phase
    backward: Phase
    params: list[Buffer]
    d_params: list[Buffer]
    inputs: list[Buffer]
    d_inputs: list[Buffer]
    kept: list[Buffer]
    y: Buffer
    d_y: Buffer


def plan(step: Step, lanes: int) -> Plan:
    """Schedules all of them together, so that they agree on how the states lie in memory."""
    state = {d: _free(f"state_{n}", d) for n, d in step.state.items()}
    d_state = {d: _free(f"d_state_{n}", d) for n, d in step.d_state.items()}
    params = {d: _free(f"param_{n}", d) for n, d in step.params.items()}
    inputs = {d: Buffer(f"in_{n}", d.shape) for n, d in step.inputs.items()}
    kept = {d: Buffer(f"kept_{n}", d.shape) for n, d in enumerate(_kept(step))}
    d_y = {step.d_y: Buffer("d_y", step.d_y.shape)}
    y = Buffer("y", step.y.shape)
    d_inputs = [Buffer(f"d_in_{n}", d.shape) for n, d in step.inputs.items()]
    d_params = [Buffer(f"d_param_{n}", d.shape, params[d].layout) for n, d in step.params.items()]
    fixed = {**params, **_tables(step)}
    matrices = [d for d in (*state, *d_state) if is_matrix(d)]

    forward = _phase(state, inputs, fixed, step.new_state, [Target(y, step.y)], matrices, in_place=True)
    keeping = [Target(b, _whole(d)) for d, b in kept.items()]
    again = _phase(state, {**inputs, **d_y}, fixed, step.new_state, keeping, matrices, in_place=False)
    targets = [
        *map(Target, d_inputs, step.gradients["inputs"].values()),
        *(Target(b, v, add=True) for b, v in zip(d_params, step.gradients["params"].values(), strict=True)),
    ]
    moving = {**state, **inputs, **kept, **d_y}
    backward = _phase(d_state, moving, fixed, step.gradients["state"], targets, matrices, in_place=True)
    choose_layouts([forward.step, again.step, backward.step], lanes)
    lists = [list(d.values()) for d in (params, inputs, kept)]
    return Plan(forward, again, backward, lists[0], d_params, lists[1], d_inputs, lists[2], y, d_y[step.d_y])


def _phase(
    state: Mapping[Definition, Buffer],
    moving: Mapping[Definition, Buffer],
    fixed: Mapping[Definition, Buffer],
    new_state: Mapping[str, Value],
    targets: Sequence[Target],
    matrices: Sequence[Definition],
    in_place: bool,
) -> Phase:
    """A step from `state` to `new_state`, with its first reads of a matrix done by the step before."""
    given = {**state, **moving, **fixed}
    new = dict(zip(state, settled(list(new_state.values())), strict=True))
    reads = first_reads([*new.values(), *(t.value for t in targets)], state, given, matrices)
    source = next((b.name for d, b in state.items() if is_matrix(d)), "")
    ahead = {d: Buffer(f"{source}_read_{n}", d.shape) for n, d in enumerate(reads)}
    following = {d: Definition("input", d.shape) for d in moving}
    stored = {d: _definition(v) for d, v in new.items()}
    later = Later({**following, **stored})
    reads_later = [later.definition(d) for d in reads]
    results = [Target(b.named(f"new_{b.name}"), new[d]) for d, b in state.items()]
    results += [Target(b.named(f"next_{b.name}"), _whole(d)) for b, d in zip(ahead.values(), reads_later, strict=True)]
    everything = {**given, **ahead, **{following[d]: b.named(f"next_{b.name}") for d, b in moving.items()}}
    pairs = [(b.name, f"new_{b.name}") for b in state.values()] if in_place else []
    # What the sums of the next step need must be there before a new matrix passes by.
    first = [o for d in reads_later for o in d.operands() if o not in map(stored.get, matrices)]
    step = schedule(everything, [*targets, *results], pairs, first)
    begin = schedule(given, [Target(b, _whole(d)) for d, b in ahead.items()], [])
    made = [target.buffer for target in targets]
    return Phase(step, begin, list(state.values()), list(moving.values()), made, list(ahead.values()))


def _whole(definition: Definition) -> Value:
    return Value(definition.shape, Load(definition, identity(definition.shape)))


def _definition(value: Value) -> Definition:
    assert isinstance(value.expression, Load)
    return value.expression.definition


def _free(name: str, definition: Definition) -> Buffer:
    return Buffer(name, definition.shape, Layout(tuple(range(len(definition.shape))), definition.contiguous))


def _tables(step: Step) -> dict[Definition, Buffer]:
    """The constant tensors of a cell, which stand in the source."""
    gradients = [v for kind in step.gradients.values() for v in kind.values()]
    known = _upstream([*step.new_state.values(), step.y, *gradients])
    tables = sorted((d for d in known if d.kind == "table"), key=lambda d: d.serial)
    return {d: Buffer(f"table{n}", d.shape) for n, d in enumerate(tables)}


def _upstream(values: Sequence[Value]) -> set[Definition]:
    return upstream((d for v in values for d in loads(v.expression)), ())


def _kept(step: Step) -> list[Definition]:
    """Small tensors of the step forward that its gradient reads, rather kept a chunk long than computed twice; and what
    the gradient reads off the state without the gradient of the next state, so that a pass over the state does both."""
    most = sum(d.size for d in step.state.values()) // 8
    forward = _upstream(list(step.new_state.values()))
    found: dict[Definition, None] = {}
    seen: set[Definition] = set()
    queue = [d for kind in step.gradients.values() for value in kind.values() for d in loads(value.expression)]
    while queue:
        definition = queue.pop()
        if definition in seen:
            continue
        seen.add(definition)
        if _is_kept(definition, most) and (definition in forward or _is_early(definition, step)):
            found[definition] = None
        else:
            queue.extend(definition.operands())
    return sorted(found, key=lambda d: d.serial)


def _is_kept(definition: Definition, most: int) -> bool:
    """A small tensor; but a maximum is found again, since its gradient compares it with what it was chosen from."""
    small = definition.size <= most or sum(n > 1 for n in definition.shape) <= 1
    return small and definition.kind in ("map", "reduce") and definition.reduction in ("", "sum")


def _is_early(definition: Definition, step: Step) -> bool:
    """A sum over a matrix of the state that does not wait for the gradient of the next state."""
    reads = any(d in step.state.values() and is_matrix(d) for d in definition.operands())
    return bool(definition.reduction) and reads and upstream([definition], ()).isdisjoint(step.d_state.values())
