"""Where the last state of a scan is written if the caller says so: over the one before, for example."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.grad_mode import wants_gradients

_shares = torch._C._is_alias_of  # type: ignore[attr-defined]


def check_dtype(out: Any, dtype: torch.dtype) -> None:
    """Raises unless the numbers of a state can be written into `out` as they are."""
    for name, leaf in zip(out._fields, out, strict=True):
        require(leaf.dtype == dtype, f"state_out.{name}", f"of {dtype}, in which states are kept", leaf.dtype)


def check_unwatched(out: Any, tensors: Sequence[Tensor]) -> None:
    """Raises if a derivative would need what `out` held before."""
    wanted = wants_gradients((*tensors, *out))
    require(not wanted, "state_out", "left out where gradients are wanted", "a state", "Use torch.no_grad().")
    is_transformed = torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    require(not is_transformed, "state_out", "left out under torch.func and derivatives forward", "a state")


def check_apart(out: Any, state: Any, others: Sequence[Tensor]) -> None:
    """Raises unless the tensors of `out` lie in memory of their own, which may be that of the same ones of `state`."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return  # there are no addresses
    for n, leaf in enumerate(out):
        if not leaf.is_contiguous():
            require(False, f"state_out.{out._fields[n]}", "contiguous", f"strides {leaf.stride()}")
        apart = [*others, *out[:n], *_other(n, leaf, state)]
        if any(_shares(leaf, x) and _overlap(leaf, x) for x in apart):
            name, wanted = f"state_out.{out._fields[n]}", "apart from all that is read, but for the state of that name"
            require(False, name, wanted, "memory that it shares", "Give it a clone().")


def _other(n: int, leaf: Tensor, state: Any) -> Sequence[Tensor]:
    """The tensors of a state but for the n-th, if it is `leaf`."""
    if state is None or (state[n] is leaf and len(state) == 1):
        return ()
    is_same = state[n].data_ptr() == leaf.data_ptr() and state[n].is_contiguous()
    return (*state[:n], *state[n + 1 :]) if is_same else state


def _overlap(one: Tensor, other: Tensor) -> bool:
    first, then = sorted((_extent(one), _extent(other)))
    return first[1] > then[0]


def _extent(x: Tensor) -> tuple[int, int]:
    """Where its memory begins and ends."""
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.itemsize


def put(state: Any, out: Any) -> Any:
    """`out` with the numbers of a state, which a backend may have written there already."""
    if state is not out:
        for leaf, value in zip(out, state, strict=True):
            leaf.copy_(value)  # nothing, where it is the same
    # A graph that has kept one must see that it has changed.
    torch.autograd.graph.increment_version(out)
    return out
