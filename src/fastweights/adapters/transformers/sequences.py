"""PackedRows that are packed into the rows of a batch, as transformers hands them to a layer."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require


class PackedRows(NamedTuple):
    """The sequences of B rows of T positions, the rows laid one behind the other.

    Attributes:
        ends: Ends of the sequences, int64 `[N + 1]`, from 0 to B * T. Every row starts a sequence.
        B: Number of rows.
        T: Number of positions per row.
    """

    ends: Tensor
    B: int
    T: int

    @staticmethod
    def of(options: Mapping[str, Any], B: int, T: int) -> "PackedRows | None":
        """The sequences that the keywords of a call mark; None if they mark none.

        Positions in front of the marked ones, which a cache puts there, belong to the first sequence of their row.

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
            return PackedRows(torch.cat([ends[:1], ends[1:] + (T - ends[-1])]).long(), B, T)
        if numbers is None:
            return None
        fits = len(numbers) == B and numbers.shape[1] <= T
        require(fits, "seq_idx", f"[B, T] = [{B}, {T}]", list(numbers.shape))
        starts = torch.nn.functional.pad(numbers.diff() != 0, (T - numbers.shape[1] + 1, 0))
        starts[:, 0] = True
        indices = starts.flatten().nonzero()[:, 0]
        return PackedRows(torch.cat([indices, indices.new_tensor([B * T])]), B, T)

    def in_a_row(self, x: Tensor) -> Tensor:
        """x `[B, T, ...]` as `[1, B * T, ...]`."""
        return x.flatten(0, 1).unsqueeze(0)

    def in_rows(self, x: Tensor) -> Tensor:
        """x `[1, B * T, ...]` as `[B, T, ...]`."""
        return x[0].unflatten(0, (self.B, self.T))

    def initial(self, states: Tensor | None) -> Tensor | None:
        """Initial states of all sequences, `[N, ...]`: those of the rows, `[B, ...]`, and zeros for other sequences."""
        if states is None:
            return None
        first = torch.searchsorted(self.ends, self._edges()[:-1], right=True) - 1
        return states.new_zeros(len(self.ends) - 1, *states.shape[1:]).index_copy(0, first, states)

    def final(self, states: Tensor | None) -> Tensor | None:
        """Final states of the rows, `[B, ...]`, out of those of all sequences, `[N, ...]`."""
        return None if states is None else states[torch.searchsorted(self.ends, self._edges()[1:]) - 1]

    def _edges(self) -> Tensor:
        return torch.arange(self.B + 1, device=self.ends.device) * self.T
