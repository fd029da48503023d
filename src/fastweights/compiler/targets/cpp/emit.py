"""The C++ source of a cell's kernels: every step as a function, and the loop over time that calls it."""

from collections.abc import Mapping, Sequence

import torch

from fastweights.compiler.ir.nodes import volume
from fastweights.compiler.targets.arguments import BACKWARD, FORWARD
from fastweights.compiler.targets.cpp.loops import CppWriter
from fastweights.compiler.targets.cpp.plan import LoopPlan, PassPlan
from fastweights.compiler.targets.cpp.prologue import EXPORTED, Functions, beginning, open_kernel, padded, tables
from fastweights.compiler.targets.cpp.schedule import Buffer, Program, Role

AHEAD = 4
"""Number of steps by which inputs are prefetched. Other heads lie between two steps, so CPUs do not see the pattern."""
SELDOM = "__attribute__((noinline)) "
"""The attribute of functions that a sequence calls a few times. Inlining them in the loops costs compile time."""


class CppSource:
    """Prints the source text of a library with one kernel."""

    def __init__(self, plan: LoopPlan, title: str, dtype: torch.dtype, lanes: int) -> None:
        self.plan, self.title, self.dtype = plan, title, dtype
        self.state = plan.forward.state
        self.functions = Functions(dtype, lanes)

    def forward(self, linkage: str = EXPORTED) -> str:
        """The library with the function `forward`."""
        return "\n".join([*self._parts({"forward": self.plan.forward}, self.state), self._forward(linkage), ""])

    def backward(self) -> str:
        """The library with the function `backward`, which runs the recompute and the backward pass of each chunk."""
        plan = self.plan
        passes, states = {"recompute": plan.recompute, "backward": plan.backward}, [*self.state, *plan.backward.state]
        return "\n".join([*self._parts(passes, states), self._backward(), ""])

    def _parts(self, passes: Mapping[str, PassPlan], states: Sequence[Buffer]) -> list[str]:
        """The code above the loops over time."""
        constants = tables([pass_plan.step for pass_plan in passes.values()])
        steps = [function for name, pass_plan in passes.items() for function in self._functions(name, pass_plan)]
        copies = [_copies(b) for b in {b.name: b for b in [*states, *self.plan.params]}.values()]
        return [*beginning(self.title, self.dtype), *constants, *steps, *copies]

    def _functions(self, name: str, pass_plan: PassPlan) -> list[str]:
        step = self._function(f"{name}_step", pass_plan.step, *self._of_step(pass_plan))
        if not pass_plan.ahead:
            return [step]
        return [self._function(f"{name}_begin", pass_plan.begin, *self._of_begin(pass_plan)), step]

    def _of_step(self, pass_plan: PassPlan) -> tuple[list[Buffer], list[Buffer]]:
        """The buffers that a step reads, and those that it stores."""
        ahead = [*pass_plan.ahead, *_to(Role.NEXT, pass_plan.moving)] if pass_plan.ahead else []
        placeholders = [*pass_plan.state, *pass_plan.moving, *self.plan.params, *ahead]
        return placeholders, [*_to(Role.NEW, pass_plan.state), *pass_plan.made, *_to(Role.NEXT, pass_plan.ahead)]

    def _of_begin(self, pass_plan: PassPlan) -> tuple[list[Buffer], list[Buffer]]:
        return [*pass_plan.state, *pass_plan.moving, *self.plan.params], pass_plan.ahead

    def _function(self, name: str, program: Program, placeholders: Sequence[Buffer], made: Sequence[Buffer]) -> str:
        constant, changed = _arguments(program, placeholders, made)
        arguments = [f"const real* __restrict__ {b}" for b in constant] + [f"real* __restrict__ {b}" for b in changed]
        return self.functions.write(name, program, arguments, SELDOM if name.endswith("_begin") else "")

    def _forward(self, linkage: str) -> str:
        plan, out = self.plan, CppWriter(depth=0)
        open_kernel(out, "forward", FORWARD, plan.fields, linkage)
        ahead = plan.forward.ahead
        states = [*self.state, *_to(Role.NEW, self.state)]
        self._open_heads(out, [*states, *ahead, *_to(Role.NEXT, ahead), *plan.params])
        self._load_params(out)
        for b in self.state:
            out.add(f"into_{b.name}({b.name}, first_{b.name} + m * {volume(b.shape)});")
        out.add("const int64_t start = 0, stop = length;")
        out.open("for (int64_t t = start; t < stop; ++t)")
        out.open("if (checkpoints && t % C == 0)")
        out.add(f"real* to = checkpoints + (m * ((T + C - 1) / C) + t / C) * {self._state_size()};")
        for b in self.state:
            out.add(f"memcpy(to, {b.name}, sizeof(real) * {volume(b.shape)});")
            out.add(f"to += {volume(b.shape)};")
        out.close()
        self._reset(out)
        size = volume(plan.y.shape)
        out.add(f"real* const y = all_y + ((b * T + t) * H + h) * {size};")
        out.add(f"fw::prefetch<{size}, 1>(y + {AHEAD * size} * H);")
        self._run(out, "forward", plan.forward, 1)
        self._swap(out, plan.forward)
        out.close()
        self._clear_padding(out, "all_y", size)
        for b in self.state:
            out.add(f"from_{b.name}(last_{b.name} + m * {volume(b.shape)}, {b.name});")
        out.close(3)
        return "\n".join(out.lines)

    def _backward(self) -> str:
        plan, out = self.plan, CppWriter(depth=0)
        open_kernel(out, "backward", BACKWARD, plan.fields)
        d_state = plan.backward.state
        d_initial = _to(Role.INITIAL, d_state)
        ahead = [*plan.recompute.ahead, *plan.backward.ahead]
        carried = [*d_state, *_to(Role.NEW, d_state), *ahead, *_to(Role.NEXT, ahead)]
        self._open_heads(out, [*carried, *plan.params, *plan.d_params, *d_initial], with_slots=True)
        self._load_params(out)
        for b in [*plan.d_params, *d_initial]:
            out.add(f"memset({b.name}, 0, sizeof(real) * {volume(b.shape)});")
        for b in plan.d_inputs:
            self._clear_padding(out, f"all_{b.name}", volume(b.shape))
        for b in d_state:
            size = volume(b.shape)
            out.add(f"if (last_{b.name}) into_{b.name}({b.name}, last_{b.name} + m * {size});")
            out.add(f"else memset({b.name}, 0, sizeof(real) * {size});")
        # Without a time step, the last chunk begins before the first one.
        out.open("for (int64_t start = length ? (length - 1) / C * C : -1; start >= 0; start -= C)")
        out.add("const int64_t stop = start + C < length ? start + C : length;")
        self._recompute(out)
        self._run_backward(out)
        out.close()
        for b in d_state:
            out.add(f"from_{b.name}(all_{b.name} + m * {volume(b.shape)}, {b.name});")
        for param, b in zip(plan.params, plan.d_params, strict=True):
            out.add(f"from_{param.name}(all_{b.name} + m * {volume(b.shape)}, {b.name});")
        for b, of_state in zip(d_initial, d_state, strict=True):
            out.add(f"if (reset) from_{of_state.name}(all_{b.name} + m * {volume(b.shape)}, {b.name});")
        out.close(3)
        return "\n".join(out.lines)

    def _recompute(self, out: CppWriter) -> None:
        plan = self.plan
        out.add(f"const real* from = checkpoints + (m * ((T + C - 1) / C) + start / C) * {self._state_size()};")
        for b, offset in self._slots():
            out.add(f"memcpy(slots + {offset}, from, sizeof(real) * {volume(b.shape)});")
            out.add(f"from += {volume(b.shape)};")
        out.open("for (int64_t t = start; t < stop; ++t)")
        for b, offset in self._slots():
            out.add(f"real* const {b.name} = slots + (t - start) * {self._slot_size()} + {offset};")
            out.add(f"real* const {b.to(Role.NEW).name} = {b.name} + {self._slot_size()};")
        for b in plan.saved:
            out.add(f"real* const {b.name} = {self._places()[b.name].format(t='t')};")
        self._reset(out)
        self._run(out, "recompute", plan.recompute, 1)
        self._swap(out, plan.recompute)
        out.close()

    def _run_backward(self, out: CppWriter) -> None:
        plan = self.plan
        out.open("for (int64_t t = stop - 1; t >= start; --t)")
        out.add("const int64_t at = (b * T + t) * H + h;")
        for b in plan.d_inputs:
            size = volume(b.shape)
            out.add(f"real* const {b.name} = all_{b.name} + at * {size};")
            out.add(f"fw::prefetch<{size}, 1>({b.name} - {AHEAD * size} * H);")
        self._run(out, "backward", plan.backward, -1)
        self._swap(out, plan.backward)
        out.open("if (reset && reset[b * T + t])")
        for b in plan.backward.state:
            size = volume(b.shape)
            out.add(f"for (int n = 0; n < {size}; ++n) initial_{b.name}[n] += {b.name}[n];")
            out.add(f"memset({b.name}, 0, sizeof(real) * {size});")
        out.close(2)

    def _run(self, out: CppWriter, name: str, pass_plan: PassPlan, sign: int) -> None:
        """A step with its moving tensors. The program `begin` runs before the first step and after every reset."""
        places, far = self._places(), [b.name for b in [*self.plan.inputs, self.plan.d_y]]
        for b in pass_plan.moving:
            out.add(f"const real* const {b.name} = {places[b.name].format(t='t')};")
            if b.name in far:
                out.add(f"fw::prefetch<{volume(b.shape)}>({places[b.name].format(t=f'(t + {sign * AHEAD})')});")
        if pass_plan.ahead:
            out.add(f"const int64_t then = {'t + 1 < stop ? t + 1 : t' if sign > 0 else 't > start ? t - 1 : t'};")
            for b in pass_plan.moving:
                out.add(f"const real* const {b.to(Role.NEXT).name} = {places[b.name].format(t='then')};")
            first, before = ("start", "t") if sign > 0 else ("stop - 1", "t + 1")
            out.open(f"if (t == {first} || (reset && reset[b * T + {before}]))")
            self._call(out, f"{name}_begin", pass_plan.begin, *self._of_begin(pass_plan))
            out.close()
        self._call(out, f"{name}_step", pass_plan.step, *self._of_step(pass_plan))

    def _swap(self, out: CppWriter, pass_plan: PassPlan) -> None:
        """Hands the results of this step to the next one."""
        for b in pass_plan.ahead:
            out.add(f"fw::swap({b.name}, {b.to(Role.NEXT).name});")
        for b in pass_plan.state if pass_plan is not self.plan.recompute else []:
            if b.tensor not in pass_plan.step.in_place:
                out.add(f"fw::swap({b.name}, {b.to(Role.NEW).name});")

    def _places(self) -> dict[str, str]:
        """The address of every moving tensor at the step `{t}`."""
        head = "((b * T + {t}) * H + h)"
        places = {self.plan.d_y.name: f"all_d_y + {head} * {volume(self.plan.d_y.shape)}"}
        for n, b in enumerate(self.plan.inputs):
            strides = f"b * strides[{3 * n}] + {{t}} * strides[{3 * n + 1}] + h * strides[{3 * n + 2}]"
            places[b.name] = f"all_{b.name} + {strides}"
        for b, offset in self._slots():
            places[b.name] = f"slots + ({{t}} - start) * {self._slot_size()} + {offset}"
        offset = 0
        for b in self.plan.saved:
            places[b.name] = f"keeps + ({{t}} - start) * {self._keep_size()} + {offset}"
            offset += volume(b.shape)
        return places

    def _open_heads(self, out: CppWriter, buffers: Sequence[Buffer], with_slots: bool = False) -> None:
        """Opens the loop over batch and heads, with memory for `buffers` in one arena per thread.

        With slots, the arena also has the states and the kept tensors of one chunk of time steps.
        """
        offsets, offset = [], padded(self.functions.scratch)
        for b in buffers:
            offsets.append(f"real* {b.name} = arena.start + {offset};")
            offset += padded(volume(b.shape))
        total = str(offset)
        if with_slots:
            offsets.append(f"real* const slots = arena.start + {offset};")
            offsets.append(f"real* const keeps = slots + (C + 1) * {self._slot_size()};")
            offsets.append("(void)keeps;")
            total = f"{offset} + (C + 1) * {self._slot_size()} + C * {self._keep_size()}"
        out.add("#pragma omp parallel num_threads(threads) if (threads > 1)")
        out.open("")
        out.add(f"fw::Arena arena({total});")
        out.add("real* const scratch = arena.start;")
        out.add("#pragma omp for schedule(static)")
        out.open("for (int64_t m = first_head; m < last_head; ++m)")
        out.add("const int64_t b = m / H, h = m % H, length = lengths ? lengths[b] : T;")
        for line in offsets:
            out.add(line)

    def _load_params(self, out: CppWriter) -> None:
        for b in self.plan.params:
            out.add(f"into_{b.name}({b.name}, all_{b.name} + h * {volume(b.shape)});")

    def _reset(self, out: CppWriter) -> None:
        out.open("if (reset && reset[b * T + t])")
        for b in self.state:
            out.add(f"into_{b.name}({b.name}, initial_{b.name} + m * {volume(b.shape)});")
        out.close()

    def _clear_padding(self, out: CppWriter, name: str, size: int) -> None:
        """Fills the padding of a sequence with zeros."""
        out.open("for (int64_t t = length; t < T; ++t)")
        out.add(f"memset({name} + ((b * T + t) * H + h) * {size}, 0, sizeof(real) * {size});")
        out.close()

    def _call(
        self, out: CppWriter, name: str, program: Program, placeholders: Sequence[Buffer], made: Sequence[Buffer]
    ) -> None:
        constant, changed = _arguments(program, placeholders, made)
        out.add(f"{name}({', '.join([*constant, *changed, 'scratch'])});")

    def _state_size(self) -> int:
        return sum(volume(b.shape) for b in self.state)

    def _slots(self) -> list[tuple[Buffer, int]]:
        """Every state, and its offset in the slot of a step."""
        offsets, offset = [], 0
        for b in self.state:
            offsets.append((b, offset))
            offset += padded(volume(b.shape))
        return offsets

    def _slot_size(self) -> int:
        return sum(padded(volume(b.shape)) for b in self.state)

    def _keep_size(self) -> int:
        return padded(sum(volume(b.shape) for b in self.plan.saved))


def _to(role: Role, buffers: Sequence[Buffer]) -> list[Buffer]:
    return [b.to(role) for b in buffers]


def _arguments(program: Program, placeholders: Sequence[Buffer], made: Sequence[Buffer]) -> tuple[list[str], list[str]]:
    """The names of the buffers that a program only reads, and of those that it changes."""
    constant = [b.name for b in placeholders if b.tensor not in program.in_place]
    in_place = [b.name for b in placeholders if b.tensor in program.in_place]
    made = [b for b in made if b.role is not Role.NEW or b.tensor not in program.in_place]
    return constant, in_place + [b.name for b in made]


def _copies(buffer: Buffer) -> str:
    """The functions `into_NAME` and `from_NAME`, which copy from the order of the axes to the layout and back."""
    size, shape = volume(buffer.shape), buffer.shape
    into = back = f"memcpy(to, from, sizeof(real) * {size});"
    if buffer.layout.order != tuple(range(len(shape))):
        loop = f"for (int n = 0; n < {size}; n += {volume(shape[-2:])})"
        into, back = (f"{loop} fw::transpose<{r}, {c}>(to + n, from + n);" for r, c in (shape[-2:], shape[:-3:-1]))
    head = SELDOM + "static void {}_{}(real* __restrict__ to, const real* __restrict__ from) {{ {} }}"
    return "\n".join([head.format("into", buffer.name, into), head.format("from", buffer.name, back)])
