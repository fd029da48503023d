"""The cell compiled: traced once, lowered to loops, and built by the target of the device, which keeps its kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.backends._form import form_of
from fastweights.backends._transforms import transform
from fastweights.call.call import Problem
from fastweights.compiler.op import PLAIN, is_plain, scan, ways
from fastweights.compiler.specialise.specialisations import why_never
from fastweights.compiler.targets.target import TARGETS, target_of
from fastweights.core.grad_mode import wants_gradients


def refusal(problem: Problem, build: bool) -> str:
    """Why this backend cannot run the problem; empty if it can. To `build` tells whether its kernel can be built."""
    first = problem.inputs[0]
    if first.is_meta:
        return ""  # shapes need no kernel
    if first.device.type not in TARGETS:
        return f"it compiles for {' and '.join(TARGETS)}, not for {first.device.type}"
    transformed = transform()
    if transformed:
        return transformed
    if torch.compiler.is_compiling():
        return why_never(problem.cell.key, first.device.type)
    form, captured = form_of(problem)
    # Where nothing can be built, a kernel is there or is not, and to look is as cheap.
    if not build and not target_of(first.device.type).lack():
        return form.check()
    if _is_one_step(problem):
        return form.build_one_step()
    return form.build(ways(wants_gradients([*_tensors(problem), *captured])))


def build_all(problem: Problem) -> str:
    """Builds the kernels for any number of steps and for one, of which either may be asked for next; why it cannot."""
    form, _ = form_of(problem)
    return form.build(ways(True)) or form.build_one_step()


def cost(problem: Problem) -> float:
    """How long it takes: the measure of all others."""
    return 1.0


def told(problem: Problem) -> str:
    """Nothing more than that it runs."""
    return ""


def run(problem: Problem) -> tuple[Tensor, Any]:
    """Runs the compiled cell."""
    tensors = [*problem.inputs, *problem.state, *(() if problem.params is None else problem.params)]
    initial = [] if problem.reset is None else list(problem.initial)
    lengths = None if problem.lengths is None else problem.lengths.long()
    cell = problem.cell
    if not torch.compiler.is_compiling():
        form, captured = form_of(problem)
        cell, heads = form.cell, problem.leading[2]
        tensors += [x.to(tensors[0].dtype).expand(heads, *x.shape) for x in captured]
        if form.one_step is not None and _is_one_step(problem):
            y, state = form.one_step(tensors, initial, problem.reset, problem.out)
            return y.to(problem.dtype), problem.cell.State(*state)
    y, state = scan(cell, tensors, initial, problem.reset, lengths)
    return y.to(problem.dtype), problem.cell.State(*state)


def again(problem: Problem) -> Callable[..., tuple[Tensor, Any] | None] | None:
    """What runs calls of one step that are like this one without looking at them a second time; None if none can.

    It takes inputs, state, params and where to put the new state, and returns None for a call that it must not run.
    """
    if torch.compiler.is_compiling() or problem.reset is not None or not _is_one_step(problem):
        return None
    form, forms = form_of(problem)[0], problem.known["forms"]
    one_step, watch, State, dtype = form.one_step, forms.watch, problem.cell.State, problem.inputs[0].dtype
    if one_step is None or watch is None:
        return None

    def run(inputs: Any, state: Any, params: Any, out: Any) -> tuple[Tensor, Any] | None:
        tensors = [*inputs, *state] if params is None else [*inputs, *state, *params]
        # What else stands in the way would have kept the call from being known: see `agree`.
        is_same = forms.watch is watch and watch.holds()
        if not (is_same and _want_nothing([*tensors, *(out or ())]) and PLAIN.issuperset(map(type, tensors))):
            return None
        y, last = one_step([x if x.dtype is dtype else x.to(dtype) for x in tensors], out=out)
        return y if problem.dtype is dtype else y.to(problem.dtype), State(*last) if out is None else out

    return run


def _is_one_step(problem: Problem) -> bool:
    """Whether it is one step of which no gradient is wanted."""
    return problem.leading[1] == 1 and problem.lengths is None and _is_free(_tensors(problem))


def _tensors(problem: Problem) -> list[Tensor]:
    """All that a gradient may be wanted of."""
    return [*problem.inputs, *problem.state, *(problem.params or ()), *(problem.initial or ())]


def _is_free(tensors: Sequence[Tensor]) -> bool:
    """Whether nobody but the kernel must see a call."""
    return _want_nothing(tensors) and is_plain(tensors) and not transform()


def _want_nothing(tensors: Sequence[Tensor]) -> bool:
    """Whether no derivative is wanted, forwards or backwards."""
    forward = torch.autograd.forward_ad._current_level >= 0
    return not forward and not wants_gradients(tensors)
