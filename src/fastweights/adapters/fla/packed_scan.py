"""Any cell over sequences that flash-linear-attention packs into one row."""

from typing import Any

from torch import Tensor

from fastweights.cell import Cell
from fastweights.core.packing import SequenceGroup, check_packed, group_by_length, in_order, pack
from fastweights.dispatch import scan


def packed_scan(
    cell: Cell, inputs: Any, state: Any = None, params: Any = None, cu_seqlens: Tensor | None = None
) -> tuple[Tensor, Any]:
    """`scan` with a state per packed sequence.

    Args:
        cell: The cell.
        inputs: Inputs `[B, T, H, ...]`, B = 1 if sequences are packed.
        state: States `[N, H, ...]`; zeros if None.
        params: Parameters of the cell.
        cu_seqlens: Boundaries of N packed sequences, `[N + 1]`; None for N = B sequences.

    Returns:
        The output `[B, T, H, ...]` and the states after the sequences.
    """
    if cu_seqlens is None:
        return scan(cell, inputs, state, params)
    check_packed(cu_seqlens, inputs[0])
    groups = [SequenceGroup.of(cu_seqlens, chosen) for chosen in group_by_length(cu_seqlens)]
    results = [_scan_group(cell, inputs, state, params, group) for group in groups]
    outputs, states = zip(*results, strict=True)
    last = [in_order(groups, parts) for parts in zip(*states, strict=True)]
    return pack(groups, outputs), cell.State(*last)


def _scan_group(cell: Cell, inputs: Any, state: Any, params: Any, group: SequenceGroup) -> tuple[Tensor, Any]:
    inputs = type(inputs)(*map(group.unpack, inputs))
    state = None if state is None else type(state)(*(part[group.chosen] for part in state))
    return scan(cell, inputs, state, params, lengths=group.lengths)
