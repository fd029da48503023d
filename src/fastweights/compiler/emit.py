"""The C++ source of a cell's kernels: every step as a function, and the loops over time that call them."""

from collections.abc import Sequence
from pathlib import Path

import torch

from fastweights.compiler.ir import Definition, volume
from fastweights.compiler.loops import Writer, _number, emit_nest
from fastweights.compiler.plan import Plan
from fastweights.compiler.schedule import Buffer, Program

RUNTIME = Path(__file__).with_name("runtime.h")
AHEAD = 4
"""How many steps before it is read an input is asked for: heads lie between two steps, so no CPU sees the pattern."""
ON_STACK = 1 << 14
"""Bytes of the largest temporary that is an array on the stack; larger ones lie in the arena."""


class Source:
    """Puts the source of all kernels together."""

    def __init__(self, plan: Plan, title: str, dtype: torch.dtype, lanes: int) -> None:
        self.plan, self.title, self.dtype, self.lanes = plan, title, dtype, lanes
        self.tables: dict[Definition, str] = {}

    def text(self) -> str:
        """All of it."""
        plan = self.plan
        steps = [
            self._step(
                "forward_step", plan.forward, [*plan.state, *plan.inputs, *plan.params], [*_new(plan.state), plan.y]
            ),
            self._step(
                "again_step", plan.again, [*plan.state, *plan.inputs, *plan.params], [*_new(plan.state), *plan.kept]
            ),
            self._step("backward_step", plan.backward, self._backward_given(), self._backward_made()),
        ]
        head = f"// {self.title}\n#define FASTWEIGHTS_DOUBLE {int(self.dtype == torch.float64)}\n"
        parts = [head + RUNTIME.read_text(encoding="utf-8"), "using fw::real;", *self._tables(), *steps]
        return "\n".join([*parts, *self._layouts(), self._forward(), self._backward(), ""])

    def _backward_given(self) -> list[Buffer]:
        plan = self.plan
        d_y = Buffer("d_y", plan.y.shape)
        return [*plan.state, *plan.inputs, *plan.params, *plan.kept, d_y, *plan.d_state]

    def _backward_made(self) -> list[Buffer]:
        return [*_new(self.plan.d_state), *self.plan.d_inputs, *self.plan.d_params]

    def _tables(self) -> list[str]:
        programs = (self.plan.forward, self.plan.again, self.plan.backward)
        return [_table(b.name, d) for d, b in _tables_of(programs).items()]

    def _step(self, name: str, program: Program, given: Sequence[Buffer], made: Sequence[Buffer]) -> str:
        out = Writer()
        arguments = [f"const real* __restrict__ {b.name}" for b in given if b.name not in program.in_place]
        arguments += [f"real* __restrict__ {b.name}" for b in given if b.name in program.in_place]
        arguments += [
            f"real* __restrict__ {b.name}" for b in made if b.name.removeprefix("new_") not in program.in_place
        ]
        self._temporaries(program, out)
        for nest in program.nests:
            emit_nest(program, nest, self.lanes, out)
        head = f"\nstatic void {name}({', '.join(arguments)}, real* __restrict__ scratch) {{\n    (void)scratch;"
        return "\n".join([head, *out.lines, "}"])

    def _temporaries(self, program: Program, out: Writer) -> None:
        offset = 0
        for buffer in program.local:
            size = volume(buffer.shape)
            if buffer.is_scalar:
                out.add(f"real {buffer.name};")
            elif size * self.dtype.itemsize <= ON_STACK:
                out.add(f"alignas(64) real {buffer.name}[{size}];")
            else:
                out.add(f"real* const {buffer.name} = scratch + {offset};")
                offset += _padded(size)
        self.scratch = max(getattr(self, "scratch", 0), offset)

    def _layouts(self) -> list[str]:
        """Functions that copy a tensor into the order in which the kernels keep it, and back."""
        buffers = {b.name: b for b in [*self.plan.state, *self.plan.d_state, *self.plan.params]}
        return [_copies(b) for b in buffers.values()]

    def _forward(self) -> str:
        plan, out = self.plan, Writer(depth=0)
        out.open('\nextern "C" __attribute__((visibility("default"))) void forward(void** p, const std::int64_t* n)')
        self._sizes(out)
        self._pointers(out, ["in", "state", "param", "initial"], self._names())
        out.add("real* const all_y = (real*)*p++;")
        for b in plan.state:
            out.add(f"real* const last_{b.name} = (real*)*p++;")
        out.add("real* const checkpoints = (real*)*p++;")
        self._open_heads(out, [*_twice(plan.state), *plan.params])
        self._load_params(out)
        for b in plan.state:
            out.add(f"into_{b.name}({b.name}, first_{b.name} + m * {volume(b.shape)});")
        out.open("for (std::int64_t t = 0; t < T; ++t)")
        out.open("if (checkpoints && t % C == 0)")
        out.add(f"real* to = checkpoints + (m * ((T + C - 1) / C) + t / C) * {self._state_size()};")
        for b in plan.state:
            out.add(f"std::memcpy(to, {b.name}, sizeof(real) * {volume(b.shape)});")
            out.add(f"to += {volume(b.shape)};")
        out.close()
        self._reset(out, "")
        self._inputs_at(out, 1)
        out.add(f"real* const y = all_y + ((b * T + t) * H + h) * {volume(plan.y.shape)};")
        self._call(
            out, "forward_step", plan.forward, [*plan.state, *plan.inputs, *plan.params], [*_new(plan.state), plan.y]
        )
        for b in plan.state:
            if b.name not in plan.forward.in_place:
                out.add(f"std::swap({b.name}, new_{b.name});")
        out.close()
        for b in plan.state:
            out.add(f"from_{b.name}(last_{b.name} + m * {volume(b.shape)}, {b.name});")
        out.close(3)
        return "\n".join(out.lines)

    def _backward(self) -> str:
        plan, out = self.plan, Writer(depth=0)
        out.open('\nextern "C" __attribute__((visibility("default"))) void backward(void** p, const std::int64_t* n)')
        self._sizes(out)
        self._pointers(out, ["in", "param", "initial"], self._names())
        out.add("const real* const checkpoints = (const real*)*p++;")
        out.add("const real* const all_d_y = (const real*)*p++;")
        for b in plan.d_state:
            out.add(f"const real* const last_{b.name} = (const real*)*p++;")
        for b in plan.d_inputs:
            out.add(f"real* const all_{b.name} = (real*)*p++;")
        for b in [*plan.d_state, *plan.d_params]:
            out.add(f"real* const all_{b.name} = (real*)*p++;")
        slots = [Buffer("slots", (1,)), Buffer("keeps", (1,))]
        self._open_heads(out, [*_twice(plan.d_state), *plan.params, *plan.d_params], slots)
        self._load_params(out)
        for b in plan.d_params:
            out.add(f"std::memset({b.name}, 0, sizeof(real) * {volume(b.shape)});")
        for b in plan.d_state:
            size = volume(b.shape)
            out.add(f"if (last_{b.name}) into_{b.name}({b.name}, last_{b.name} + m * {size});")
            out.add(f"else std::memset({b.name}, 0, sizeof(real) * {size});")
        out.open("for (std::int64_t start = (T - 1) / C * C; start >= 0; start -= C)")
        out.add("const std::int64_t stop = start + C < T ? start + C : T;")
        self._recompute(out)
        self._way_back(out)
        out.close()
        for b in plan.d_state:
            out.add(f"from_{b.name}(all_{b.name} + m * {volume(b.shape)}, {b.name});")
        for b in plan.d_params:
            name = b.name.removeprefix("d_")
            out.add(f"from_{name}(all_{b.name} + m * {volume(b.shape)}, {b.name});")
        out.close(3)
        return "\n".join(out.lines)

    def _recompute(self, out: Writer) -> None:
        plan = self.plan
        out.add(f"const real* from = checkpoints + (m * ((T + C - 1) / C) + start / C) * {self._state_size()};")
        for b, offset in self._slots():
            out.add(f"std::memcpy(slots + {offset}, from, sizeof(real) * {volume(b.shape)});")
            out.add(f"from += {volume(b.shape)};")
        out.open("for (std::int64_t t = start; t < stop; ++t)")
        for b, offset in self._slots():
            out.add(f"real* const {b.name} = slots + (t - start) * {self._slot_size()} + {offset};")
            out.add(f"real* const new_{b.name} = {b.name} + {self._slot_size()};")
        self._keeps(out, "")
        self._reset(out, "")
        self._inputs_at(out, 1)
        self._call(
            out, "again_step", plan.again, [*plan.state, *plan.inputs, *plan.params], [*_new(plan.state), *plan.kept]
        )
        out.close()

    def _way_back(self, out: Writer) -> None:
        plan = self.plan
        out.open("for (std::int64_t t = stop - 1; t >= start; --t)")
        for b, offset in self._slots():
            out.add(f"const real* const {b.name} = slots + (t - start) * {self._slot_size()} + {offset};")
        self._keeps(out, "const ")
        self._inputs_at(out, -1)
        out.add("const std::int64_t at = (b * T + t) * H + h;")
        for b in plan.d_inputs:
            out.add(f"real* const {b.name} = all_{b.name} + at * {volume(b.shape)};")
        size = volume(plan.y.shape)
        out.add(f"const real* const d_y = all_d_y + at * {size};")
        out.add(f"fw::prefetch<{size}>(d_y - {AHEAD * size} * H);")
        self._call(out, "backward_step", plan.backward, self._backward_given(), self._backward_made())
        for b in plan.d_state:
            if b.name not in plan.backward.in_place:
                out.add(f"std::swap({b.name}, new_{b.name});")
        out.open("if (reset && reset[b * T + t])")
        for b in plan.d_state:
            out.add(f"std::memset({b.name}, 0, sizeof(real) * {volume(b.shape)});")
        out.close(2)

    def _names(self) -> dict[str, list[str]]:
        plan = self.plan
        return {
            "in": [f"all_{b.name}" for b in plan.inputs],
            "state": [f"first_{b.name}" for b in plan.state],
            "param": [f"all_{b.name}" for b in plan.params],
            "initial": [f"initial_{b.name}" for b in plan.state],
        }

    def _sizes(self, out: Writer) -> None:
        out.add("const std::int64_t B = n[0], T = n[1], H = n[2], C = n[3];")
        out.add("const int threads = int(n[4]);")
        out.add("const std::int64_t* const strides = n + 5;")
        out.add("(void)strides; (void)C;")

    def _pointers(self, out: Writer, kinds: Sequence[str], names: dict[str, list[str]]) -> None:
        for kind in kinds:
            for name in names[kind]:
                out.add(f"const real* const {name} = (const real*)*p++;")
                out.add(f"(void){name};")
        out.add("const bool* const reset = (const bool*)*p++;")

    def _open_heads(self, out: Writer, buffers: Sequence[Buffer], slots: Sequence[Buffer] = ()) -> None:
        """The loop over batch and heads, with memory for `buffers` in an arena a thread."""
        offsets, offset = [], _padded(self.scratch)
        for b in buffers:
            offsets.append(f"real* {b.name} = arena.start + {offset};")
            offset += _padded(volume(b.shape))
        total = str(offset)
        if slots:
            offsets.append(f"real* const slots = arena.start + {offset};")
            offsets.append(f"real* const keeps = slots + (C + 1) * {self._slot_size()};")
            offsets.append("(void)keeps;")
            total = f"{offset} + (C + 1) * {self._slot_size()} + C * {self._keep_size()}"
        out.add("#pragma omp parallel num_threads(threads) if (threads > 1 && B * H > 1)")
        out.open("")
        out.add(f"fw::Arena arena({total});")
        out.add("real* const scratch = arena.start;")
        out.add("#pragma omp for schedule(static)")
        out.open("for (std::int64_t m = 0; m < B * H; ++m)")
        out.add("const std::int64_t b = m / H, h = m % H;")
        for line in offsets:
            out.add(line)

    def _load_params(self, out: Writer) -> None:
        for b in self.plan.params:
            out.add(f"into_{b.name}({b.name}, all_{b.name} + h * {volume(b.shape)});")

    def _reset(self, out: Writer, prefix: str) -> None:
        out.open("if (reset && reset[b * T + t])")
        for b in self.plan.state:
            out.add(f"into_{b.name}({b.name}, initial_{b.name} + m * {volume(b.shape)});")
        out.close()

    def _inputs_at(self, out: Writer, way: int) -> None:
        """The inputs of step t; those of a later step on the `way` (1 forward, -1 back) are asked for meanwhile."""
        for n, b in enumerate(self.plan.inputs):
            place = f"b * strides[{3 * n}] + t * strides[{3 * n + 1}] + h * strides[{3 * n + 2}]"
            out.add(f"const real* const {b.name} = all_{b.name} + {place};")
            out.add(f"fw::prefetch<{volume(b.shape)}>({b.name} + {way * AHEAD} * strides[{3 * n + 1}]);")

    def _keeps(self, out: Writer, const: str) -> None:
        offset = 0
        for b in self.plan.kept:
            out.add(f"{const}real* const {b.name} = keeps + (t - start) * {self._keep_size()} + {offset};")
            offset += volume(b.shape)

    def _call(self, out: Writer, name: str, program: Program, given: Sequence[Buffer], made: Sequence[Buffer]) -> None:
        names = [b.name for b in given if b.name not in program.in_place]
        names += [b.name for b in given if b.name in program.in_place]
        names += [b.name for b in made if b.name.removeprefix("new_") not in program.in_place]
        out.add(f"{name}({', '.join([*names, 'scratch'])});")

    def _state_size(self) -> int:
        return sum(volume(b.shape) for b in self.plan.state)

    def _slots(self) -> list[tuple[Buffer, int]]:
        """Every state and where it lies in the slot of a step."""
        offsets, offset = [], 0
        for b in self.plan.state:
            offsets.append((b, offset))
            offset += _padded(volume(b.shape))
        return offsets

    def _slot_size(self) -> int:
        return sum(_padded(volume(b.shape)) for b in self.plan.state)

    def _keep_size(self) -> int:
        return _padded(sum(volume(b.shape) for b in self.plan.kept))


def _padded(size: int) -> int:
    return (size + 15) // 16 * 16


def _new(buffers: Sequence[Buffer]) -> list[Buffer]:
    return [Buffer(f"new_{b.name}", b.shape, b.layout) for b in buffers]


def _twice(buffers: Sequence[Buffer]) -> list[Buffer]:
    return [*buffers, *_new(buffers)]


def _tables_of(programs: Sequence[Program]) -> dict[Definition, Buffer]:
    return {d: b for p in programs for d, b in p.buffers.items() if d.kind == "table"}


def _table(name: str, definition: Definition) -> str:
    numbers = ", ".join(_number(x) for x in definition.numbers)
    return f"alignas(64) static const real {name}[{definition.size}] = {{{numbers}}};"


def _copies(buffer: Buffer) -> str:
    """`into_NAME` and `from_NAME`: between the order of the axes and that of the layout."""
    size, name = volume(buffer.shape), buffer.name
    plain = f"std::memcpy(to, from, sizeof(real) * {size});"
    if buffer.layout.order == tuple(range(len(buffer.shape))):
        into = back = plain
    else:
        loops = "".join(f"for (int i{a} = 0; i{a} < {n}; ++i{a}) " for a, n in enumerate(buffer.shape))
        axes = range(len(buffer.shape))
        outside = " + ".join(f"{volume(buffer.shape[a + 1 :])} * i{a}" for a in axes)
        inside = " + ".join(f"{stride} * i{a}" for a, stride in zip(axes, buffer.strides, strict=True))
        into, back = f"{loops}to[{inside}] = from[{outside}];", f"{loops}to[{outside}] = from[{inside}];"
    head = "static void {}_{}(real* __restrict__ to, const real* __restrict__ from) {{ {} }}"
    return "\n".join([head.format("into", name, into), head.format("from", name, back)])
