"""A checked call of `scan`, the argument of every backend."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastweights.call.plan import CallPlan, plan_of
from fastweights.call.tensors import Tensors
from fastweights.cell import Cell, initial_state
from fastweights.core.grad_mode import wants_gradients
from fastweights.core.padding import check_ends, mask_steps, valid_steps

FILL = 0.5
"""The value of padding in finite inputs. It is not 0, since a cell may divide by the length of a key."""


@dataclass(eq=False)
class ScanCall:
    """A call of `scan` whose tensors fit the cell.

    The state and the params have the dtype of the computation. The inputs of `tensors` may have half precision, and
    `inputs` are cast. `tensors.state` is never None. `tensors.initial_state` is the state `[B, H, ...]` after a reset,
    None without resets. Padding has no resets. A backend may write the last state to `out`.
    """

    plan: CallPlan
    tensors: Tensors
    starts_at_zero: bool = True
    """Whether the initial state is zeros."""
    out: Any = None
    specialisation: Any = None
    """The specialisation of the step for this call, which compiling backends look up at most once per call."""
    inner: "ScanCall | None" = None
    """The cached result of `with_inner_cell`."""
    cast_inputs: Any = None
    """The cached result of `inputs`."""

    @property
    def cell(self) -> Cell:
        """The cell of the plan."""
        return self.plan.cell

    @property
    def valid(self) -> Tensor | None:
        """Mask of the time steps that are not padding, bool `[B, T]`; None without padding."""
        lengths = self.tensors.lengths
        return None if lengths is None else valid_steps(lengths, self.plan.leading[1])

    @property
    def inputs(self) -> Any:
        """The inputs in the dtype of the computation."""
        if not self.plan.needs_cast:
            return self.tensors.inputs
        if self.cast_inputs is None:
            inputs, dtype = self.tensors.inputs, self.plan.compute_dtype
            self.cast_inputs = type(inputs)(*[x.to(dtype) for x in inputs])
        return self.cast_inputs

    def finite(self, inputs: Any) -> Any:
        """Inputs with `FILL` in place of the padding, for backends that compute there and need finite numbers."""
        valid = self.valid
        return inputs if valid is None else type(inputs)(*[mask_steps(valid, x, FILL) for x in inputs])

    def replace(self, tensors: Tensors) -> "ScanCall":
        """The same call with other tensors, whose batch and number of steps may differ."""
        B, T, H = tensors.inputs[0].shape[:3]
        wants = wants_gradients(tensors.all())
        plan = self.plan._replace(leading=(B, T, H), wants_gradients=wants, order=[], fast_paths={})
        return ScanCall(plan, tensors, self.starts_at_zero, self.out)

    def with_inner_cell(self) -> "ScanCall":
        """The call of the inner cell, with inputs mapped for all steps at once; the call itself without an inner cell.

        Step-by-step backends use it, since mapping the inputs of one step would take as long as the step.
        """
        if self.cell.inner_cell is None:
            return self
        if self.inner is None:
            cell, map_inputs = self.cell.inner_cell
            plan = self.plan._replace(cell=cell, order=[], fast_paths={})
            tensors = self.tensors._replace(inputs=map_inputs(self.finite(self.inputs)))
            self.inner = ScanCall(plan, tensors, self.starts_at_zero, self.out)
        return self.inner

    def __str__(self) -> str:
        B, T, H = self.plan.leading
        sizes = " ".join(f"{axis}={size}" for axis, size in self.plan.sizes.items())
        kind = f"{str(self.plan.dtype).removeprefix('torch.')} on {self.tensors.inputs[0].device.type}"
        return f"{self.cell.name}, B={B} T={T} H={H} {sizes}, {kind}"


def scan_call(cell: Cell, tensors: Tensors, out: Any = None) -> ScanCall:
    """Checks the tensors of a call and casts all but the inputs to the dtype of the computation.

    Raises:
        InputError: a tensor does not fit the cell.
    """
    return prepare(plan_of(cell, tensors, out), tensors, out)


def prepare(plan: CallPlan, tensors: Tensors, out: Any = None) -> ScanCall:
    """The call of a plan with tensors of its signature: cast, and with the state that the first step starts from."""
    lengths, reset, inputs = tensors.lengths, tensors.reset, tensors.inputs
    if lengths is not None:
        check_ends(lengths, plan.leading[1])
    if _has_negated_view(tensors):
        tensors = tensors.map(Tensor.resolve_neg)
        inputs = tensors.inputs
    if plan.needs_cast:
        tensors = tensors._replace(inputs=()).map(lambda x: x.to(plan.compute_dtype))
    state, start = tensors.state, None
    if state is None or reset is not None:
        start = _start(plan, tensors.initial_state, inputs[0])
    if reset is not None and lengths is not None:
        reset = reset & valid_steps(lengths, plan.leading[1])
    starts_at_zero = tensors.initial_state is None
    tensors = Tensors(
        inputs,
        start if state is None else state,
        tensors.params,
        reset,
        lengths,
        None if reset is None else start,
    )
    return ScanCall(plan, tensors, starts_at_zero, out)


def _start(plan: CallPlan, per_head: Any, like: Tensor) -> Any:
    """The state `[B, H, ...]` before the first step: the initial state `[H, ...]` of the heads, or zeros."""
    B, _, H = plan.leading
    if per_head is not None:
        return type(per_head)(*[leaf.expand(B, *leaf.shape) for leaf in per_head])
    if plan.start_shapes is None:
        like = like.to(plan.compute_dtype)
        return initial_state(plan.cell, plan.sizes, (B, H), like)  # raises: only a passed state has all sizes
    device = like.device
    zeros = [torch.zeros(shape, dtype=plan.compute_dtype, device=device) for shape in plan.start_shapes]
    return plan.cell.State(*zeros)


def _has_negated_view(tensors: Tensors) -> bool:
    """Whether a tensor is a view whose memory holds the negated values, such as the imaginary part of `x.conj()`."""
    return not torch.compiler.is_compiling() and any(map(Tensor.is_neg, tensors.all()))
