"""The RG-LRU of RecurrentGemma."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fastweights.adapters.transformers.replacement import Draw, Replacement, SampleCall, in_heads, is_on_cpu
from fastweights.cell import Cell
from fastweights.dispatch import scan

CELL = Cell.from_name("linear-recurrence")


def _scan(
    _: Any,
    hidden_states: Tensor,
    recurrent_gate: Tensor,
    reset: Tensor,
    recurrent_states: Tensor | None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """hidden_states and recurrent_gate `[B, T, D]`, reset `[B, T, 1]`, recurrent_states `[B, D]`."""
    state = None if recurrent_states is None else recurrent_states.to(recurrent_gate.device)
    state, resets = _without_first_reset(state, reset)
    gate = recurrent_gate if resets is None else recurrent_gate * ~resets
    before = None if state is None else CELL.State(in_heads(state))
    y, last = scan(CELL, CELL.Inputs(in_heads(hidden_states), in_heads(gate)), before)
    return y.flatten(2).to(hidden_states.dtype), last.h.flatten(1).to(acc_dtype)


def _without_first_reset(state: Tensor | None, reset: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The state and the resets, None where they have no effect.

    A sequence starts with a reset, and most have no other. A product of all gates with resets takes longer than the
    scan. A traced graph must not depend on values, so that it keeps the product.
    """
    if torch.compiler.is_compiling() or reset.device.type == "meta":
        return state, reset
    if state is not None and not state.requires_grad and reset[:, 0].all():
        state = None
    rest = reset[:, 1:] if state is None else reset
    return state, reset if rest.any() else None


def _fits(_: Any, hidden_states: Tensor, *__: Any, **___: Any) -> bool:
    # One time step is two operations of PyTorch, which take less time than the call of a kernel.
    return is_on_cpu(hidden_states) and hidden_states.shape[1] > 1


def _trials(_: ModuleType, draw: Draw) -> list[SampleCall]:
    def trial(state: Tensor | None, restart: int, T: int = 5) -> SampleCall:
        reset = torch.arange(T)[None, :, None] == restart
        x = {"hidden_states": draw(1, T, 64) - 0.5, "recurrent_gate": draw(1, T, 64)}
        return SampleCall((None,), {**x, "reset": reset, "recurrent_states": state})

    return [trial(state, restart) for state in (None, draw(1, 64)) for restart in (-1, 0, 2)]


RG_LRU = Replacement(
    "RecurrentGemmaRglru._rnn_scan",
    "the RG-LRU of RecurrentGemma",
    ("self", "hidden_states", "recurrent_gate", "reset", "recurrent_states", "acc_dtype"),
    frozenset(),
    _fits,
    _scan,
    _trials,
)
