"""The C++ of a single time step. It reads every tensor in the order of its axes, and may update states in place."""

from collections.abc import Sequence

import torch

from fastweights.compiler.ir.nodes import volume
from fastweights.compiler.targets.arguments import ONE_STEP
from fastweights.compiler.targets.cpp.loops import CppWriter
from fastweights.compiler.targets.cpp.plan import StepPlan
from fastweights.compiler.targets.cpp.prologue import Functions, beginning, open_kernel, padded, tables
from fastweights.compiler.targets.cpp.schedule import Buffer, Role


def one_step_source(plan: StepPlan, title: str, dtype: torch.dtype, lanes: int) -> str:
    """The source text of the library."""
    functions = Functions(dtype, lanes)
    step = functions.write("step", plan.step, [declaration(b, plan) for b in step_arguments(plan)])
    kernel = _kernel(plan, padded(functions.scratch))
    return "\n".join([*beginning(title, dtype), *tables([plan.step]), step, kernel, ""])


def step_arguments(plan: StepPlan) -> list[Buffer]:
    """The buffers that a call of one step passes, in order."""
    return [*plan.state, *plan.moving, *plan.params, *plan.new, plan.y]


def declaration(buffer: Buffer, plan: StepPlan) -> str:
    """The declaration of the argument that holds a buffer."""
    changed = "" if buffer in [*plan.new, plan.y] else "const "
    # The old and the new buffer of a state may be the same.
    unique = "" if buffer in plan.state or is_in_place(buffer, plan) else "__restrict__ "
    return f"{changed}real* {unique}{buffer.name}"


def is_in_place(buffer: Buffer, plan: StepPlan) -> bool:
    """Whether a buffer is a new state that may be stored over the old one."""
    return buffer.role is Role.NEW and buffer.tensor in plan.in_place


def _kernel(plan: StepPlan, scratch: int) -> str:
    out = CppWriter(depth=0)
    open_kernel(out, "one_step", ONE_STEP, plan.fields)
    apart = [b for b in plan.new if not is_in_place(b, plan)]
    out.add("#pragma omp parallel num_threads(threads) if (threads > 1)")
    out.open("")
    out.add(f"fw::Arena arena({scratch + sum(padded(volume(b.shape)) for b in apart)});")
    out.add("#pragma omp for schedule(static)")
    out.open("for (int64_t m = first_head; m < last_head; ++m)")
    out.add("const int64_t b = m / H, h = m % H;")
    for line in _places(plan, apart, scratch):
        out.add(line)
    out.add(f"step({', '.join([*(b.name for b in step_arguments(plan)), 'arena.start'])});")
    for b in apart:
        out.add(f"memcpy(last_{b.tensor} + m * {volume(b.shape)}, {b.name}, sizeof(real) * {volume(b.shape)});")
    out.close(3)
    return "\n".join(out.lines)


def _places(plan: StepPlan, apart: Sequence[Buffer], offset: int) -> list[str]:
    """The addresses of all buffers of a head."""
    lines = []
    for b in plan.state:
        first = f"(reset && reset[b] ? initial_{b.name} : first_{b.name})"
        lines.append(f"const real* const {b.name} = {first} + m * {volume(b.shape)};")
    for n, b in enumerate(plan.moving):
        lines.append(f"const real* const {b.name} = all_{b.name} + b * strides[{3 * n}] + h * strides[{3 * n + 2}];")
    for b in plan.params:
        lines.append(f"const real* const {b.name} = all_{b.name} + h * {volume(b.shape)};")
    for b in plan.new:
        place = f"arena.start + {offset}" if b in apart else f"last_{b.tensor} + m * {volume(b.shape)}"
        lines.append(f"real* const {b.name} = {place};")
        offset += padded(volume(b.shape)) if b in apart else 0
    return [*lines, f"real* const {plan.y.name} = all_y + m * {volume(plan.y.shape)};"]
