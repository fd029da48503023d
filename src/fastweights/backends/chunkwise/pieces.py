"""States of a cell by name, where the stages know some of them as several pieces."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fastweights.call.scan_call import ScanCall
from fastweights.compiler.affine.form import StateSplit


def in_pieces(call: ScanCall, splits: Sequence[StateSplit]) -> ScanCall:
    """The call with dictionaries of states, in which pieces replace the states that are split."""
    state, initial_state = call.tensors.state, call.tensors.initial_state
    initial_pieces = None if initial_state is None else pieces_of(initial_state, splits)
    tensors = call.tensors._replace(state=pieces_of(state, splits), initial_state=initial_pieces)
    return ScanCall(call.plan, tensors, call.starts_at_zero, call.out, call.specialisation)


def pieces_of(state: Any, splits: Sequence[StateSplit]) -> dict[str, Tensor]:
    """The states `[B, H, ...]` by name, in pieces."""
    by_name = dict(zip(state._fields, state, strict=True))
    for name, axis, pieces in splits:
        by_name |= zip(pieces, by_name.pop(name).unbind(2 + axis), strict=True)
    return by_name


def joined(by_name: Mapping[str, Tensor], splits: Sequence[StateSplit], like: Any) -> Any:
    """The inverse of `pieces_of`: the record of states, of the type of another."""
    whole = {name: torch.stack([by_name[piece] for piece in pieces], 2 + axis) for name, axis, pieces in splits}
    return type(like)(*(whole[name] if name in whole else by_name[name] for name in like._fields))
