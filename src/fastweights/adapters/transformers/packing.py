"""Marks of several sequences that are packed into one row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.padding import INTEGERS


class Packing(NamedTuple):
    """Marks of packed sequences as transformers names them, each of which may be None.

    Attributes:
        position_ids: Places of the tokens in their sequences, int `[B, T]` or `[1, T]`.
        seq_idx: Numbers of the tokens' sequences, int `[B, T]` or `[1, T]`.
        cu_seq_lens_q: Ends of the sequences of a single row, int `[n + 1]`, from 0 to T.
        cu_seq_lens_k: The same as `cu_seq_lens_q`.
    """

    position_ids: Any = None
    seq_idx: Any = None
    cu_seq_lens_q: Any = None
    cu_seq_lens_k: Any = None

    def starts(self, gather: Callable[[Tensor], Tensor], B: int, T: int) -> Tensor | None:
        """Tokens that start a sequence behind another sequence, bool `[B, L]`; None if there are none.

        A sequence starts where its number changes and where the positions do not rise.

        Args:
            gather: Picks the tokens `[B, L]` out of the positions `[B, T]`.
            B: Number of rows.
            T: Number of positions.

        Raises:
            InputError: a mark does not fit the batch.
        """
        marks = []
        if self.position_ids is not None:
            positions = gather(_per_position("position_ids", self.position_ids, B, T))
            marks.append(positions[:, 1:] <= positions[:, :-1])
        if self.seq_idx is not None:
            marks.append(gather(_per_position("seq_idx", self.seq_idx, B, T)).diff() != 0)
        for name in ("cu_seq_lens_q", "cu_seq_lens_k"):
            if (ends := getattr(self, name)) is not None:
                marks.append(gather(_numbers(name, ends, B, T)).diff() != 0)
        if not marks:
            return None
        begins = torch.nn.functional.pad(torch.stack(marks).any(0), (1, 0))
        return begins if begins.any() else None


def _per_position(name: str, x: Any, B: int, T: int) -> Tensor:
    fits = isinstance(x, Tensor) and x.dtype in INTEGERS and x.ndim == 2 and x.shape[1] == T and x.shape[0] in (1, B)
    require(fits, name, f"int [B, T] = [{B}, {T}]", list(x.shape) if isinstance(x, Tensor) else type(x).__name__)
    numbers: Tensor = x.expand(B, T)
    return numbers


def _numbers(name: str, ends: Any, B: int, T: int) -> Tensor:
    """Numbers of the sequences with these ends, int64 `[1, T]`."""
    require(B == 1, name, "left out for a batch of several rows", f"{B} rows", "Use seq_idx.")
    is_vector = isinstance(ends, Tensor) and ends.dtype in INTEGERS and ends.ndim == 1 and len(ends) >= 2
    fits = is_vector and ends[0] == 0 and ends[-1] == T and bool((ends.diff() >= 0).all())
    require(fits, name, f"int [n + 1], rising from 0 to T={T}", ends.tolist() if is_vector else ends)
    positions = torch.arange(T, device=ends.device)
    return torch.bucketize(positions, ends[1:].long(), right=True).unsqueeze(0)
