"""The three kernels of a cell: a step forward, the step again for the way back, and the gradient of the step."""

from dataclasses import dataclass

from fastweights.compiler.ir import Definition, Load, identity, loads
from fastweights.compiler.layout import choose_layouts
from fastweights.compiler.lower import Step, Value
from fastweights.compiler.schedule import Buffer, Layout, Program, Target, schedule


@dataclass(frozen=True)
class Plan:
    """Programs and the buffers that the loop over time hands to them, by role."""

    forward: Program
    again: Program
    backward: Program
    state: list[Buffer]
    d_state: list[Buffer]
    params: list[Buffer]
    d_params: list[Buffer]
    inputs: list[Buffer]
    d_inputs: list[Buffer]
    kept: list[Buffer]
    y: Buffer


def plan(step: Step, lanes: int) -> Plan:
    """Schedules all three together, so that they agree on how the states lie in memory."""
    state = {d: _free(f"state_{n}", d) for n, d in step.state.items()}
    params = {d: _free(f"param_{n}", d) for n, d in step.params.items()}
    inputs = {d: Buffer(f"in_{n}", d.shape) for n, d in step.inputs.items()}
    given = {**state, **params, **inputs, **_tables(step)}
    y = Buffer("y", step.y.shape)
    pairs = [(b.name, f"new_{b.name}") for b in state.values()]
    new = [(_beside(b, "new_"), v) for b, v in zip(state.values(), step.new_state.values(), strict=True)]
    results = [Target(b, v) for b, v in new]
    forward = schedule(given, [Target(y, step.y), *results], pairs)
    kept = {d: Buffer(f"kept_{n}", d.shape) for n, d in enumerate(_kept(step))}
    values = [Target(b, Value(d.shape, Load(d, identity(d.shape)))) for d, b in kept.items()]
    again = schedule(dict(given), values + [Target(_beside(b, ""), v) for b, v in new], [])
    backward, d_state, d_params, d_inputs = _backward(step, {**given, **kept})
    choose_layouts([forward, again, backward], lanes)
    lists = [list(d.values()) for d in (state, params, inputs, kept)]
    return Plan(forward, again, backward, lists[0], d_state, lists[1], d_params, lists[2], d_inputs, lists[3], y)


def _free(name: str, definition: Definition) -> Buffer:
    return Buffer(name, definition.shape, Layout(tuple(range(len(definition.shape))), definition.contiguous))


def _beside(buffer: Buffer, prefix: str) -> Buffer:
    name = f"{prefix or 'new_'}{buffer.name.removeprefix('new_')}"
    return Buffer(name, buffer.shape, buffer.layout)


def _backward(step: Step, given: dict[Definition, Buffer]) -> tuple[Program, list[Buffer], list[Buffer], list[Buffer]]:
    d_state = {d: _free(f"d_state_{n}", d) for n, d in step.d_state.items()}
    given = {**given, **d_state, step.d_y: Buffer("d_y", step.d_y.shape)}
    old = [_beside(b, "new_") for b in d_state.values()]
    d_inputs = [Buffer(f"d_in_{n}", d.shape) for n, d in step.inputs.items()]
    d_params = [Buffer(f"d_param_{n}", d.shape, given[d].layout) for n, d in step.params.items()]
    targets = [
        *map(Target, d_inputs, step.gradients["inputs"].values()),
        *(Target(b, v, add=True) for b, v in zip(d_params, step.gradients["params"].values(), strict=True)),
        *map(Target, old, step.gradients["state"].values()),
    ]
    pairs = [(b.name, f"new_{b.name}") for b in d_state.values()]
    return schedule(given, targets, pairs), list(d_state.values()), d_params, d_inputs


def _tables(step: Step) -> dict[Definition, Buffer]:
    """The constant tensors of a cell, which stand in the source."""
    known: set[Definition] = set()
    results = [*step.new_state.values(), step.y, *(v for kind in step.gradients.values() for v in kind.values())]
    for value in results:
        for definition in loads(value.expression):
            _reach(definition, known)
    tables = sorted((d for d in known if d.kind == "table"), key=lambda d: d.serial)
    return {d: Buffer(f"table{n}", d.shape) for n, d in enumerate(tables)}


def _kept(step: Step) -> list[Definition]:
    """Small tensors of the step forward that its gradient reads: rather kept a chunk long than computed twice."""
    most = sum(d.size for d in step.state.values()) // 8
    known: set[Definition] = set()
    for value in step.new_state.values():
        for definition in loads(value.expression):
            _reach(definition, known)
    gradients = [v for kind in step.gradients.values() for v in kind.values()]
    found: dict[Definition, None] = {}
    seen: set[Definition] = set()
    queue = [d for value in gradients for d in loads(value.expression)]
    while queue:
        definition = queue.pop()
        if definition in seen:
            continue
        seen.add(definition)
        if definition in known and _is_kept(definition, most):
            found[definition] = None
        else:
            queue.extend(definition.operands())
    return sorted(found, key=lambda d: d.serial)


def _reach(definition: Definition, known: set[Definition]) -> None:
    if definition not in known:
        known.add(definition)
        for operand in definition.operands():
            _reach(operand, known)


def _is_kept(definition: Definition, most: int) -> bool:
    """A small tensor; but a maximum is found again, since its gradient compares it with what it was chosen from."""
    small = definition.size <= most or sum(n > 1 for n in definition.shape) <= 1
    return small and definition.kind in ("map", "reduce") and definition.reduction in ("", "sum")
