"""Checks of `state_out`, the tensors that a scan writes the last state to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.core.errors import invalid
from fastweights.core.grad_mode import wants_gradients

_shares = torch._C._is_alias_of  # type: ignore[attr-defined]


def check_dtype(out: Any, dtype: torch.dtype) -> None:
    """Raises unless `out` has the dtype of the state."""
    for name, leaf in zip(out._fields, out, strict=True):
        if leaf.dtype != dtype:
            raise invalid(f"state_out.{name}", f"a tensor of {dtype}, the dtype of states", leaf.dtype)


def check_needs_no_gradient(out: Any, tensors: Sequence[Tensor]) -> None:
    """Raises if a derivative would need the values that the scan overwrites in `out`."""
    if wants_gradients((*tensors, *out)):
        raise invalid("state_out", "None where gradients are needed", "a state", "Use torch.no_grad().")
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        raise invalid("state_out", "None under torch.func and in forward-mode differentiation", "a state")


def check_separate_memory(out: Any, state: Any, others: Sequence[Tensor]) -> None:
    """Raises if a tensor of `out` shares memory with another tensor than the one of `state` with its name."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return  # tensors have no addresses
    for n, leaf in enumerate(out):
        if not leaf.is_contiguous():
            raise invalid(f"state_out.{out._fields[n]}", "contiguous", f"strides {leaf.stride()}")
        apart = [*others, *out[:n], *_other(n, leaf, state)]
        if any(_shares(leaf, x) and _overlap(leaf, x) for x in apart):
            requirement = "separate from all other arguments, except for the state of the same name"
            raise invalid(f"state_out.{out._fields[n]}", requirement, "shared memory", "Pass a clone().")


def _other(n: int, leaf: Tensor, state: Any) -> Sequence[Tensor]:
    """The tensors of a state that must not share memory with `leaf`: all but the n-th if that is `leaf`."""
    if state is None or (state[n] is leaf and len(state) == 1):
        return ()
    is_same = state[n].data_ptr() == leaf.data_ptr() and state[n].is_contiguous()
    return (*state[:n], *state[n + 1 :]) if is_same else state


def _overlap(one: Tensor, other: Tensor) -> bool:
    first, then = sorted((_extent(one), _extent(other)))
    return first[1] > then[0]


def _extent(x: Tensor) -> tuple[int, int]:
    """The addresses of the first byte and after the last byte of a tensor."""
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.itemsize


def put(state: Any, out: Any) -> Any:
    """Copies a state to `out`, unless a backend has written it there already; returns `out`."""
    if state is not out:
        for leaf, value in zip(out, state, strict=True):
            leaf.copy_(value)  # does nothing if both are the same tensor
    # An autograd graph that saved a tensor of `out` must see that it has changed.
    torch.autograd.graph.increment_version(out)
    return out
