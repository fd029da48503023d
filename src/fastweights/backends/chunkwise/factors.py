"""Factors of a decay over the columns of S: numbers that multiply columns, or matrices that mix blocks of columns."""

import torch
from torch import Tensor


class Columns:
    """Factors `[..., F]` of steps: one number for all columns, F = 1, or one per column, F = K.

    A step turns a row s of S into `push(factor, s)`. A vector x reads `push(factor, s) . x = s . pull(factor, x)`.
    """

    def one(self, factor: Tensor) -> Tensor:
        """The factors that change nothing, in the shape of other factors."""
        return torch.ones_like(factor)

    def push(self, factor: Tensor, rows: Tensor) -> Tensor:
        """Rows `[..., n, K]` of S after a step."""
        return rows * factor.unsqueeze(-2)

    def pull(self, factor: Tensor, vectors: Tensor) -> Tensor:
        """The vectors `[..., n, K]` that read from S before a step what `vectors` read after it."""
        return vectors * factor.unsqueeze(-2)

    def joined(self, later: Tensor, earlier: Tensor) -> Tensor:
        """The factors of two steps as those of one."""
        return later * earlier


class ColumnBlocks(Columns):
    """Matrices A `[count, count]` that mix blocks of columns: `F = count^2`, or `F = count K` with a matrix per column.

    A step turns block m of a row into the sum of A[m, n] times block n.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def one(self, factor: Tensor) -> Tensor:
        identity = torch.eye(self.count, dtype=factor.dtype, device=factor.device).unsqueeze(-1)
        return identity.expand(*self._matrix(factor).shape).flatten(-3)

    def push(self, factor: Tensor, rows: Tensor) -> Tensor:
        matrix, blocks = self._matrix(factor).unsqueeze(-4), rows.unflatten(-1, (self.count, -1))
        return (matrix * blocks.unsqueeze(-3)).sum(-2).flatten(-2)

    def pull(self, factor: Tensor, vectors: Tensor) -> Tensor:
        matrix, blocks = self._matrix(factor).unsqueeze(-4), vectors.unflatten(-1, (self.count, -1))
        return (matrix * blocks.unsqueeze(-2)).sum(-3).flatten(-2)

    def joined(self, later: Tensor, earlier: Tensor) -> Tensor:
        products = self._matrix(later).unsqueeze(-2) * self._matrix(earlier).unsqueeze(-4)
        return products.sum(-3).flatten(-3)

    def _matrix(self, factor: Tensor) -> Tensor:
        """`[..., F]` -> `[..., count, count, 1 or K / count]`."""
        return factor.unflatten(-1, (self.count, self.count, -1))


COLUMNS = Columns()


def factors_of(blocks: int) -> Columns:
    """The factors for a number of blocks of columns."""
    return COLUMNS if blocks == 1 else ColumnBlocks(blocks)
