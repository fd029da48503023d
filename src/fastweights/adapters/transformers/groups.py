"""Heads of values that share keys and queries in groups."""

from typing import NamedTuple

from torch import Tensor


class Groups(NamedTuple):
    """Sequences `[B, T, G * R, ...]` of G groups of R heads as sequences `[B * G, T, R, ...]` of R heads.

    The heads of one member of the new batch share their keys, so that a view repeats these. A sequence with an axis
    for all heads would need a copy of the keys per head.

    Attributes:
        B: Batch size.
        G: Number of groups.
    """

    B: int
    G: int

    def split(self, x: Tensor) -> Tensor:
        """A sequence `[B, T, G * R, ...]` as `[B * G, T, R, ...]`; a view if B or G is 1."""
        return x.unflatten(2, (self.G, x.shape[2] // self.G)).transpose(1, 2).flatten(0, 1)

    def shared(self, x: Tensor, heads: int) -> Tensor:
        """Keys `[B, T, G, K]` as `[B * G, T, R, K]` for `heads` = G * R heads."""
        return self.split(x).expand(-1, -1, heads // self.G, -1)

    def merged(self, y: Tensor) -> Tensor:
        """The inverse of `split`."""
        return y.unflatten(0, (self.B, self.G)).transpose(1, 2).flatten(2, 3)

    def split_state(self, state: Tensor) -> Tensor:
        """States `[B, G * R, ...]` as `[B * G, R, ...]`."""
        return state.unflatten(1, (self.G, state.shape[1] // self.G)).flatten(0, 1)

    def merged_state(self, state: Tensor) -> Tensor:
        """The inverse of `split_state`."""
        return state.unflatten(0, (self.B, self.G)).flatten(1, 2)

    def rows(self, marks: Tensor | None) -> Tensor | None:
        """Marks `[B, T]` as `[B * G, T]`."""
        return None if marks is None else marks.repeat_interleave(self.G, 0)


def per_head(x: Tensor, heads: int) -> Tensor:
    """Keys of one token, `[B, G, K]`, as `[B, 1, H, K]`: a copy of the size of the output."""
    return x.repeat_interleave(heads // x.shape[1], 1)[:, None]
