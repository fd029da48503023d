"""The programs of a cell's kernels: every way over time scheduled, all together, so that they agree on the layouts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastweights.compiler.ir.nodes import Definition, Input, Load, Table, Value, behind, whole
from fastweights.compiler.ir.passes import Pass, Passes
from fastweights.compiler.targets.cpp.layout import choose_layouts
from fastweights.compiler.targets.cpp.layout_constraints import demands
from fastweights.compiler.targets.cpp.lookahead import Later, first_reads, handed_on, settled
from fastweights.compiler.targets.cpp.schedule import Buffer, Layout, Program, Target, schedule


@dataclass(frozen=True)
class Way:
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

    forward: Way
    recompute: Way
    backward: Way
    params: list[Buffer]
    d_params: list[Buffer]
    inputs: list[Buffer]
    d_inputs: list[Buffer]
    kept: list[Buffer]
    y: Buffer
    d_y: Buffer
    fields: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class OneStep:
    """A step by itself: from `state`, `moving` and `params`, where and as they lie, to `new` states and `y`. Those of
    the `new` ones that are in `over` may lie where the old ones do."""

    step: Program
    state: list[Buffer]
    moving: list[Buffer]
    params: list[Buffer]
    new: list[Buffer]
    over: set[str]
    y: Buffer
    fields: Mapping[str, Sequence[str]]


def plan_one_step(passes: Passes, lanes: int) -> OneStep:
    """Schedules a step that nothing follows: it reads nothing ahead, and keeps every tensor in the order of its axes,
    since to turn a matrix over takes longer than a step."""
    planner, forward = Planner(passes), passes.forward
    records = (forward.carried.values(), forward.moving.values(), passes.params.values())
    state, moving, params = ([planner.given[d] for d in record] for record in records)
    given = {d: planner.given[d] for d in [*records[0], *records[1], *planner.fixed]}
    for buffer in given.values():
        buffer.layout.fixed = True
    new = [b.named(f"new_{b.name}") for b in state]
    results = [Target(b, value) for b, value in zip(new, settled(list(forward.new.values())), strict=True)]
    targets = [Target(planner.made["y"], forward.made["y"]), *results]
    pairs = [(b.name, f"new_{b.name}") for b in state]
    program = schedule(given, targets, pairs, planner.asked)
    over, program.in_place = {f"new_{name}" for name in program.in_place}, set()
    for b, old in zip(new, state, strict=True):
        b.name = f"new_{old.name}"  # by itself, even where it may take the place of the old one
    choose_layouts([program], lanes)
    return OneStep(program, state, moving, params, new, over, planner.made["y"], passes.fields)


def plan(passes: Passes, lanes: int) -> Plan:
    """Schedules all of them together, so that they agree on how the states lie in memory."""
    planner = Planner(passes)
    forward = planner.way(passes.forward, in_place=True)
    recompute = planner.way(passes.recompute, in_place=False)
    backward = planner.way(passes.backward, in_place=True)
    choose_layouts([forward.step, recompute.step, backward.step], lanes)
    given, made = planner.given, planner.made
    return Plan(
        forward,
        recompute,
        backward,
        params=[given[d] for d in passes.params.values()],
        d_params=[made[name] for name in passes.backward.added],
        inputs=forward.moving,
        d_inputs=[made[name] for name in passes.backward.made],
        kept=recompute.made,
        y=made["y"],
        d_y=given[passes.backward.moving["d_y"]],
        fields=passes.fields,
    )


class Planner:
    """Makes the ways of one cell: `given` are the buffers of what is given, `made` those of what is made, by name."""

    def __init__(self, passes: Passes) -> None:
        known = behind(v for way in passes.by_name.values() for v in way.results)
        tables = sorted((d for d in known if isinstance(d, Table)), key=lambda d: d.serial)
        self.asked = demands(known)
        self.matrices = [d for way in (passes.forward, passes.backward) for d in way.carried.values() if d.is_matrix]
        self.given: dict[Definition, Buffer] = {d: Buffer(f"table{n}", d.shape) for n, d in enumerate(tables)}
        self.fixed = [*passes.params.values(), *tables]
        for name, d in {**passes.forward.carried, **passes.backward.carried, **passes.params}.items():
            self.given[d] = Buffer(name, d.shape, Layout(tuple(range(len(d.shape))), d in self.asked.in_order))
        for name, moving in {**passes.forward.moving, **passes.backward.moving}.items():
            self.given.setdefault(moving, Buffer(name, moving.shape))
        self.made = {name: self.given[d] for name, d in passes.backward.moving.items()}
        for name, value in {**passes.forward.made, **passes.backward.made}.items():
            self.made[name] = Buffer(name, value.shape)
        for name, param in zip(passes.backward.added, passes.params.values(), strict=True):
            self.made[name] = Buffer(name, param.shape, self.given[param].layout)

    def way(self, phase: Pass, in_place: bool) -> Way:
        """A step with what it carries, and with its first reads of a matrix done by the step before."""
        state, moving, fixed = (
            {d: self.given[d] for d in ds} for ds in (phase.carried.values(), phase.moving.values(), self.fixed)
        )
        targets = [
            *(Target(self.made[name], value) for name, value in phase.made.items()),
            *(Target(self.made[name], value, add=True) for name, value in phase.added.items()),
        ]
        given = {**state, **moving, **fixed}
        new = dict(zip(state, settled(list(phase.new.values())), strict=True))
        values = [*new.values(), *(t.value for t in targets)]
        reads = first_reads(values, state, given, self.matrices)
        source = next((b.name for d, b in state.items() if d.is_matrix), "")
        ahead = {d: Buffer(f"{source}_read_{n}", d.shape) for n, d in enumerate(reads)}
        handed = [d for d in handed_on(reads, values, given, {*state, *moving}) if d not in self.asked.in_order]
        ahead |= {d: Buffer(f"{source}_handed_on_{n}", d.shape) for n, d in enumerate(handed)}
        following: dict[Definition, Definition] = {d: Input(d.shape) for d in moving}
        stored = {d: _definition(v) for d, v in new.items()}
        later = Later({**following, **stored})
        ahead_later = [later.definition(d) for d in ahead]
        asked = self.asked.of(later.known)
        results = [Target(b.named(f"new_{b.name}"), new[d]) for d, b in state.items()]
        results += [
            Target(b.named(f"next_{b.name}"), whole(d)) for b, d in zip(ahead.values(), ahead_later, strict=True)
        ]
        everything = {**given, **ahead, **{following[d]: b.named(f"next_{b.name}") for d, b in moving.items()}}
        pairs = [(b.name, f"new_{b.name}") for b in state.values()] if in_place else []
        # What the sums of the next step need must be there before a new matrix passes by.
        first = [o for d in ahead_later[: len(reads)] for o in d.operands() if o not in map(stored.get, self.matrices)]
        step = schedule(everything, [*targets, *results], pairs, asked, first)
        begin = schedule(given, [Target(b, whole(d)) for d, b in ahead.items()], [], asked)
        made = [target.buffer for target in targets]
        return Way(step, begin, list(state.values()), list(moving.values()), made, list(ahead.values()))


def _definition(value: Value) -> Definition:
    assert isinstance(value.expression, Load)
    return value.expression.definition
