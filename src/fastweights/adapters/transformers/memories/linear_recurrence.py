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
    before = None if recurrent_states is None else CELL.State(in_heads(recurrent_states.to(recurrent_gate.device)))
    y, last = scan(CELL, CELL.Inputs(in_heads(hidden_states), in_heads(recurrent_gate * ~reset)), before)
    return y.flatten(2).to(hidden_states.dtype), last.h.flatten(1).to(acc_dtype)


def _fits(_: Any, hidden_states: Tensor, *__: Any, **___: Any) -> bool:
    # One time step is two operations of PyTorch, which take less time than the call of a kernel.
    return is_on_cpu(hidden_states) and hidden_states.shape[1] > 1


def _trials(_: ModuleType, draw: Draw) -> list[SampleCall]:
    def trial(T: int, state: Tensor | None) -> SampleCall:
        reset = torch.arange(T)[None, :, None] == 2
        x = {"hidden_states": draw(1, T, 64) - 0.5, "recurrent_gate": draw(1, T, 64)}
        return SampleCall((None,), {**x, "reset": reset, "recurrent_states": state})

    return [trial(5, None), trial(5, draw(1, 64))]


RG_LRU = Replacement(
    "RecurrentGemmaRglru._rnn_scan",
    "the RG-LRU of RecurrentGemma",
    ("self", "hidden_states", "recurrent_gate", "reset", "recurrent_states", "acc_dtype"),
    frozenset(),
    _fits,
    _scan,
    _trials,
)
