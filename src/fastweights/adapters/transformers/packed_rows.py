"""Sequences that are packed into the rows of a batch, as transformers marks them for a layer."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fastweights.core.errors import require


def is_packed(options: Mapping[str, Any]) -> bool:
    """Whether the keywords of a call mark packed sequences."""
    return any(options.get(name) is not None for name in ("cu_seqlens", "cu_seq_lens_q", "seq_idx"))


def resets(options: Mapping[str, Any], B: int, T: int) -> Tensor | None:
    """Marks the first position of every packed sequence, bool `[B, T]`: the `reset` of a scan. None without packing.

    The first position of a row has no mark, since a row starts from its own state. Positions in front of the marked
    ones, which a cache puts there, belong to the first sequence of their row.

    Args:
        options: Keywords of a call: `cu_seqlens` or `cu_seq_lens_q`, int `[N + 1]`, of a single row; or `seq_idx`,
            int `[B, T]`.
        B: Number of rows.
        T: Number of positions per row.

    Raises:
        InputError: the marks do not fit the rows.
    """
    ends, numbers = options.get("cu_seqlens", options.get("cu_seq_lens_q")), options.get("seq_idx")
    if ends is not None:
        require(B == 1, "cu_seq_lens_q", "left out for a batch of several rows", f"{B} rows", "Use seq_idx.")
        positions = torch.arange(T, device=ends.device)[:, None]
        return (positions == ends[1:-1] + (T - ends[-1])).any(1)[None]
    if numbers is None:
        return None
    fits = len(numbers) == B and numbers.shape[1] <= T
    require(fits, "seq_idx", f"[B, T] = [{B}, {T}]", list(numbers.shape))
    return torch.nn.functional.pad(numbers.diff() != 0, (T - numbers.shape[1] + 1, 0))
