"""The programs of a cell's kernels. All passes are planned together, so that they agree on the layout of the states."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fastweights.compiler.ir.nodes import ConstantTensor, Input, Load, Node, Value, ancestors, whole
from fastweights.compiler.ir.passes import Pass, Passes
from fastweights.compiler.targets.cpp.layout import choose_layouts
from fastweights.compiler.targets.cpp.layout_constraints import Constraints, constraints
from fastweights.compiler.targets.cpp.lookahead import NextStepNodes, as_nodes, first_reads, shared_operands
from fastweights.compiler.targets.cpp.schedule import (
    Buffer,
    Layout,
    Output,
    Program,
    Role,
    overwritable,
    schedule,
    updated_in_place,
)


@dataclass(frozen=True)
class PassPlan:
    """The programs of one pass. `step` reads `state`, `moving` and `ahead`, and stores the new state and `made`.

    The pass is software-pipelined: each step also computes the tensors in `ahead` for the next step. The program
    `begin` computes them for the first step.
    """

    step: Program
    begin: Program
    state: list[Buffer]
    moving: list[Buffer]
    made: list[Buffer]
    ahead: list[Buffer]


@dataclass(frozen=True)
class LoopPlan:
    """The plans of all passes, and the buffers that the loop over time passes to their programs."""

    forward: PassPlan
    recompute: PassPlan
    backward: PassPlan
    params: list[Buffer]
    d_params: list[Buffer]
    inputs: list[Buffer]
    d_inputs: list[Buffer]
    saved: list[Buffer]
    y: Buffer
    d_y: Buffer
    fields: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class StepPlan:
    """The program of a single time step. The new states in `in_place` may be stored over the old ones."""

    step: Program
    state: list[Buffer]
    moving: list[Buffer]
    params: list[Buffer]
    new: list[Buffer]
    in_place: frozenset[str]
    y: Buffer
    fields: Mapping[str, Sequence[str]]


def plan(passes: Passes, lanes: int) -> LoopPlan:
    """Plans all passes for vectors of `lanes` numbers."""
    buffers = Buffers(passes)
    forward = _plan_pass(passes.forward, buffers, in_place=True)
    recompute = _plan_pass(passes.recompute, buffers, in_place=False)
    backward = _plan_pass(passes.backward, buffers, in_place=True)
    choose_layouts([forward.step, recompute.step, backward.step], lanes)
    placeholders, made = buffers.placeholders, buffers.made
    return LoopPlan(
        forward,
        recompute,
        backward,
        params=[placeholders[d] for d in passes.params.values()],
        d_params=[made[name] for name in passes.backward.added],
        inputs=forward.moving,
        d_inputs=[made[name] for name in passes.backward.made],
        saved=recompute.made,
        y=made["y"],
        d_y=placeholders[passes.backward.moving["d_y"]],
        fields=passes.fields,
    )


def plan_one_step(passes: Passes, lanes: int) -> StepPlan:
    """Plans a single time step. It has no software pipeline, and every tensor is in memory in the order of its axes,
    since a change of layout takes longer than a step."""
    buffers, forward = Buffers(passes), passes.forward
    records = (forward.carried.values(), forward.moving.values(), passes.params.values())
    state, moving, params = ([buffers.placeholders[d] for d in record] for record in records)
    placeholders = {d: buffers.placeholders[d] for d in [*records[0], *records[1], *buffers.fixed]}
    for buffer in placeholders.values():
        buffer.layout.fixed = True
    new = [b.to(Role.NEW) for b in state]
    results = [Output(b, value) for b, value in zip(new, as_nodes(list(forward.new.values())), strict=True)]
    program = schedule(placeholders, [Output(buffers.made["y"], forward.made["y"]), *results], buffers.constraints)
    choose_layouts([program], lanes)
    in_place = overwritable(program, state)
    return StepPlan(program, state, moving, params, new, in_place, buffers.made["y"], passes.fields)


class Buffers:
    """The buffers that the loop over time passes to the steps: `placeholders` by node, and `made` by name."""

    def __init__(self, passes: Passes) -> None:
        nodes = ancestors(v for each in passes.by_name.values() for v in each.results)
        tables = sorted((d for d in nodes if isinstance(d, ConstantTensor)), key=lambda d: d.serial)
        self.constraints = constraints(nodes)
        self.matrices = [d for each in (passes.forward, passes.backward) for d in each.carried.values() if d.is_matrix]
        self.fixed = [*passes.params.values(), *tables]
        self.placeholders: dict[Node, Buffer] = {d: Buffer(f"table{n}", d.shape) for n, d in enumerate(tables)}
        for name, d in {**passes.forward.carried, **passes.backward.carried, **passes.params}.items():
            self.placeholders[d] = Buffer(
                name, d.shape, Layout(tuple(range(len(d.shape))), d in self.constraints.in_order)
            )
        for name, moving in {**passes.forward.moving, **passes.backward.moving}.items():
            self.placeholders.setdefault(moving, Buffer(name, moving.shape))
        self.made = self._made(passes)

    def _made(self, passes: Passes) -> dict[str, Buffer]:
        made = {name: self.placeholders[d] for name, d in passes.backward.moving.items()}
        for name, value in {**passes.forward.made, **passes.backward.made}.items():
            made[name] = Buffer(name, value.shape)
        for name, param in zip(passes.backward.added, passes.params.values(), strict=True):
            made[name] = Buffer(name, param.shape, self.placeholders[param].layout)
        return made

    def of(self, nodes: Iterable[Node]) -> dict[Node, Buffer]:
        """The given buffers of some nodes."""
        return {d: self.placeholders[d] for d in nodes}


def _plan_pass(kernel_pass: Pass, buffers: Buffers, in_place: bool) -> PassPlan:
    step = _time_step(kernel_pass, buffers)
    ahead = _lookahead(step, buffers)  # lookahead: the nodes that each time step computes for the next one
    program = _scheduled(step, ahead)  # schedule: the nodes in memory, and the loop nests
    placed = updated_in_place(program, step.state.values()) if in_place else program  # place: one buffer per state
    begin = schedule(step.placeholders, [Output(b, whole(d)) for d, b in ahead.buffers.items()], ahead.constraints)
    made = [output.buffer for output in step.outputs]
    return PassPlan(placed, begin, [*step.state.values()], [*step.moving.values()], made, [*ahead.buffers.values()])


@dataclass(frozen=True)
class StepLoops:
    """One time step of a pass, before software pipelining.

    It reads the nodes in `state`, `moving` and `fixed`, and stores the `new` value of every state and the `outputs`.
    """

    state: dict[Node, Buffer]
    moving: dict[Node, Buffer]
    fixed: dict[Node, Buffer]
    new: dict[Node, Value]
    outputs: list[Output]

    @property
    def placeholders(self) -> dict[Node, Buffer]:
        """All nodes that the step reads."""
        return {**self.state, **self.moving, **self.fixed}

    @property
    def values(self) -> list[Value]:
        """All values that the step stores."""
        return [*self.new.values(), *(output.value for output in self.outputs)]


def _time_step(kernel_pass: Pass, buffers: Buffers) -> StepLoops:
    made = [Output(buffers.made[name], value) for name, value in kernel_pass.made.items()]
    added = [Output(buffers.made[name], value, add=True) for name, value in kernel_pass.added.items()]
    state = buffers.of(kernel_pass.carried.values())
    new = dict(zip(state, as_nodes(list(kernel_pass.new.values())), strict=True))
    return StepLoops(state, buffers.of(kernel_pass.moving.values()), buffers.of(buffers.fixed), new, [*made, *added])


@dataclass(frozen=True)
class Lookahead:
    """The nodes that each time step computes for the next one, with their buffers.

    The list `later` has the same nodes of the next step, and `moving` the moving tensors of the next step. The nodes in
    `first` are computed before the nest that stores the new matrix, because the later nodes are computed inside it.
    """

    buffers: dict[Node, Buffer]
    later: list[Node]
    moving: dict[Node, Buffer]
    first: list[Node]
    constraints: Constraints


def _lookahead(step: StepLoops, buffers: Buffers) -> Lookahead:
    reads = first_reads(step.values, step.state, step.placeholders, buffers.matrices)
    shared = shared_operands(reads, step.values, step.placeholders, {*step.state, *step.moving})
    handed = [d for d in shared if d not in buffers.constraints.in_order]
    new = {d: _node(value) for d, value in step.new.items()}
    moving: dict[Node, Node] = {d: Input(d.shape) for d in step.moving}
    renamed = NextStepNodes({**moving, **new})
    later = [renamed.node(d) for d in [*reads, *handed]]
    matrices = [new.get(d) for d in buffers.matrices]
    return Lookahead(
        _ahead(step.state, reads, handed),
        later,
        {moving[d]: b.to(Role.NEXT) for d, b in step.moving.items()},
        [o for d in later[: len(reads)] for o in d.operands() if o not in matrices],
        buffers.constraints.extended(renamed.known),
    )


def _ahead(state: Mapping[Node, Buffer], reads: Sequence[Node], handed: Sequence[Node]) -> dict[Node, Buffer]:
    """The buffers of the first reads of a matrix of the state, and of the operands that are handed on with them."""
    matrix = next((b.tensor for d, b in state.items() if d.is_matrix), "")
    ahead = {d: Buffer(f"{matrix}_read_{n}", d.shape) for n, d in enumerate(reads)}
    return ahead | {d: Buffer(f"{matrix}_handed_on_{n}", d.shape) for n, d in enumerate(handed)}


def _scheduled(step: StepLoops, ahead: Lookahead) -> Program:
    new = [Output(b.to(Role.NEW), step.new[d]) for d, b in step.state.items()]
    later = [Output(b.to(Role.NEXT), whole(d)) for b, d in zip(ahead.buffers.values(), ahead.later, strict=True)]
    placeholders = {**step.placeholders, **ahead.buffers, **ahead.moving}
    return schedule(placeholders, [*step.outputs, *new, *later], ahead.constraints, ahead.first)


def _node(value: Value) -> Node:
    assert isinstance(value.expression, Load)
    return value.expression.node
