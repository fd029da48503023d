"""The memory (WKV) of RWKV-4."""

from collections.abc import Sequence
from types import ModuleType

from torch import Tensor

from fastweights.adapters.transformers.replacement import Draw, Replacement, SampleCall, in_heads, is_on_cpu
from fastweights.cell import Cell
from fastweights.cells.rwkv4 import RWKV4Inputs, RWKV4Params, RWKV4State
from fastweights.core.autocast import at_least_float32
from fastweights.dispatch import scan

CELL = Cell.from_name("rwkv4")
LEAST = -1e38
"""The exponent that the sums of an empty memory have."""


def _scan(
    time_decay: Tensor,
    time_first: Tensor,
    key: Tensor,
    value: Tensor,
    state: Sequence[Tensor] | None = None,
    return_state: bool = False,
) -> tuple[Tensor, list[Tensor] | None]:
    """key and value `[B, T, D]`; states are three tensors `[B, D]`."""
    is_returned = return_state or state is not None
    if state is None:
        zeros = at_least_float32(key.new_zeros(len(key), key.shape[2]))
        state = (zeros, zeros, zeros + LEAST)
    inputs, params = (
        RWKV4Inputs(in_heads(key), in_heads(value)),
        RWKV4Params(in_heads(time_decay), in_heads(time_first)),
    )
    y, last = scan(CELL, inputs, RWKV4State(*map(in_heads, state)), params)
    return y.flatten(2).to(key.dtype), [x.flatten(1) for x in last] if is_returned else None


def _fits(time_decay: Tensor, time_first: Tensor, key: Tensor, *_: object, **__: object) -> bool:
    # transformers computes one token in as much time as the call of a kernel takes, and need not copy its state.
    return is_on_cpu(key) and key.shape[1] > 1


def _trials(_: ModuleType, draw: Draw) -> list[SampleCall]:
    def trial(T: int, state: list[Tensor] | None, returned: bool) -> SampleCall:
        arguments = (draw(64), draw(64), draw(1, T, 64) - 0.5, draw(1, T, 64) - 0.5)
        return SampleCall(arguments, {"state": state, "return_state": returned})

    state = [draw(1, 64) for _ in range(3)]
    return [trial(5, None, False), trial(5, None, True), trial(4, state, True)]


WKV = Replacement(
    "rwkv_linear_attention",
    "the memory of RWKV-4",
    ("time_decay", "time_first", "key", "value", "state", "return_state"),
    frozenset(),
    _fits,
    _scan,
    _trials,
)
