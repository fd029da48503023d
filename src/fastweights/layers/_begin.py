"""Where a call of a layer begins, once what it was given is found to fit."""

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fastweights.errors import require

State = TypeVar("State")


def begin(x: Tensor, state: Any, initial: State, reset: Tensor | None) -> State:
    """`initial` if `state` is None, else `state`.

    Args:
        x: The input, `[B, T, D]`.
        state: What the caller gave as the state, or None.
        initial: The layer's initial state for B.
        reset: What the caller gave as the resets, or None.

    Raises:
        InputError: `state` is not like `initial`, or `reset` is not bool `[B, T]`.
    """
    _check_reset(x, reset)
    if state is None:
        return initial
    if type(state) is not type(initial) or _shapes(state) != _shapes(initial):
        # The message is not built before it is needed: under torch.compile it would pin the sizes that it names.
        remedy = "Take it from the layer's last call or its initial_state."
        require(False, "state", _describe(initial), _describe(state), remedy)
    return state


def _check_reset(x: Tensor, reset: Tensor | None) -> None:
    if reset is not None:
        require(reset.dtype == torch.bool, "reset", "of dtype bool", reset.dtype, "Try reset.bool().")
        require(reset.shape == x.shape[:2], "reset", "[B, T] like x", list(reset.shape))


def _shapes(state: Any) -> list[list[int]]:
    return [list(getattr(leaf, "shape", ())) for leaf in tree_leaves(state)]


def _describe(state: Any) -> str:
    return f"{type(state).__name__} of shapes {', '.join(map(str, _shapes(state)))}"
