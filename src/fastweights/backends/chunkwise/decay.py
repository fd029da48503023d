"""The decay between two steps of a chunk: none, one factor per step, or one per column and step.

In place of a factor per column, a step may have a matrix that mixes blocks of columns.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fastweights.backends.chunkwise.factors import Columns


class Decay(ABC):
    """The decay in chunks of C steps, applied to vectors `[..., C, n, K]`."""

    chunk_decay: Tensor | float
    """The factors from the start of a chunk to its end, `[..., 1, F]`."""

    @abstractmethod
    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        """x[i] . (keys[j], decayed until after step i, or until before it), `[..., C n, C m]`; 0 for later j."""

    @abstractmethod
    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        """sum_j scores[i, j] (keys[j], decayed until after step i, or until before it) over j <= i, `[..., C n, K]`."""

    @abstractmethod
    def since(self, x: Tensor, after: bool) -> Tensor:
        """The vectors that read from the S at the start of the chunk what x reads after its step, or before it."""

    @abstractmethod
    def carried(self, rows: Tensor, after: bool) -> Tensor:
        """Rows of the S at the start of the chunk, decayed until after a step, or until before it."""

    @abstractmethod
    def until(self, keys: Tensor) -> Tensor:
        """The keys, decayed until the end of the chunk."""


def decay_of(decay: Tensor | None, factors: Columns) -> Decay:
    """The decay of factors `[..., C, F]`."""
    if decay is None:
        return NoDecay()
    return ScalarDecay(decay) if decay.shape[-1] == 1 else ColumnDecay(decay, factors)


class NoDecay(Decay):
    """No decay."""

    chunk_decay = 1.0

    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        mask = lower(x[..., 0, :], 0 if after else -1)
        # In place: a product is not kept for its gradient.
        return _products(x, keys).mul_(_repeated(mask, x.shape[-2], keys.shape[-2]))

    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        return _spread(scores, lower(keys[..., 0, :], 0 if after else -1), keys)

    def since(self, x: Tensor, after: bool) -> Tensor:
        return x

    def carried(self, rows: Tensor, after: bool) -> Tensor:
        return rows

    def until(self, keys: Tensor) -> Tensor:
        return keys


class ScalarDecay(Decay):
    """One factor per step. The products between all pairs of steps are kept in a matrix."""

    def __init__(self, decay: Tensor) -> None:
        self.between = between(decay.squeeze(-1))
        self.after = self.between[..., :1] * decay[..., :1, :]
        self.before = torch.cat([torch.ones_like(self.after[..., :1, :]), self.after[..., :-1, :]], dim=-2)
        self.chunk_decay = self.after[..., -1:, :]

    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        return _products(x, keys) * _repeated(self._left(after), x.shape[-2], keys.shape[-2])

    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        return _spread(scores, self._left(after), keys)

    def _left(self, after: bool) -> Tensor:
        return self.between if after else pad(self.between[..., :-1, :], (0, 0, 1, 0))

    def since(self, x: Tensor, after: bool) -> Tensor:
        return x * (self.after if after else self.before).unsqueeze(-2)

    def carried(self, rows: Tensor, after: bool) -> Tensor:
        return self.since(rows, after)

    def until(self, keys: Tensor) -> Tensor:
        return keys * self.between[..., -1, :, None, None]


def between(d: Tensor) -> Tensor:
    """P[i, j] = product of d[j+1..i] for j <= i, else 0, by halving: exact for zeros, with no logarithm or division."""
    C = d.shape[-1]
    if C == 1:
        return torch.ones_like(d).unsqueeze(-1)
    halves = d.unflatten(-1, (2, C // 2))
    first, second = between(halves).unbind(-3)
    since = second[..., :1] * halves[..., 1, :1, None]
    corner = since * first[..., -1:, :]
    upper = torch.cat([first, first.new_zeros(()).expand_as(first)], dim=-1)
    return torch.cat([upper, torch.cat([corner, second], dim=-1)], dim=-2)


class ColumnDecay(Decay):
    """One factor per step and column. The decay between two steps is split in the middle of the smallest block of 2^n
    steps that holds both: the decay since the middle multiplies the later vector, the decay until there the earlier.

    There is no division, no product has other factors than the decays between the two steps, and zeros are exact.
    """

    def __init__(self, decay: Tensor, factors: Columns) -> None:
        self.factors, one = factors, factors.one(decay).unsqueeze(-2)
        self.levels = [Level(decay.unsqueeze(-2), one, one)]
        while self.levels[-1].after.shape[-3] > 1:
            self.levels.append(self.levels[-1].doubled(factors))
        self.chunk_decay: Tensor = self.levels[-1].after[..., 0, -1:, :]

    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        x, keys = x.unsqueeze(-3), keys.unsqueeze(-3)  # blocks of one step
        scores = _products(x, keys)
        scores = scores if after else torch.zeros_like(scores)
        for level in self.levels[:-1]:
            scores = self._doubled(scores, level, x, keys, after)
            x, keys = _pairs(x), _pairs(keys)
        return scores.squeeze(-3)

    def _doubled(self, scores: Tensor, level: "Level", x: Tensor, keys: Tensor, after: bool) -> Tensor:
        """The scores of blocks twice as long."""
        corner = _products(self.later(x, level, after), self.earlier(keys, level))
        first, second = scores[..., ::2, :, :], scores[..., 1::2, :, :]
        upper = torch.cat([first, first.new_zeros(()).expand_as(first)], dim=-1)
        return torch.cat([upper, torch.cat([corner, second], dim=-1)], dim=-2)

    def later(self, x: Tensor, level: "Level", after: bool) -> Tensor:
        """The vectors of every second block as vectors that read at the end of the block before."""
        return self.factors.pull((level.after if after else level.before)[..., 1::2, :, :], x[..., 1::2, :, :, :])

    def earlier(self, keys: Tensor, level: "Level") -> Tensor:
        """The keys of every second block, from the first on, decayed until its end."""
        return self.factors.push(level.until[..., ::2, :, :], keys[..., ::2, :, :, :])

    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        C = keys.shape[-3]
        own = _diagonal(scores.unflatten(-1, (C, -1)).unflatten(-3, (C, -1))) @ keys
        sums = (own if after else torch.zeros_like(own)).unsqueeze(-3)
        keys = keys.unsqueeze(-3)  # blocks of one step
        for level in self.levels[:-1]:
            sums = self._spread_on(sums, level, scores, keys, after)
            keys = _pairs(keys)
        return sums.squeeze(-4).flatten(-3, -2)

    def _spread_on(self, sums: Tensor, level: "Level", scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        """The same for blocks twice as long, `[..., blocks, steps, n, K]`: the later half reads the earlier."""
        pairs = keys.shape[-4] // 2
        corner = _diagonal(
            scores.unflatten(-1, (pairs, 2, -1)).unflatten(-4, (pairs, 2, -1)).select(-5, 1).select(-2, 0)
        )
        return self.added(sums, level, corner, self.earlier(keys, level), after)

    def added(self, sums: Tensor, level: "Level", corner: Tensor, earlier: Tensor, after: bool) -> Tensor:
        """The sums `[..., blocks, steps, n, K]` of blocks twice as long: the later half adds `corner` times keys of the
        earlier, which are decayed until its end."""
        read = (corner @ earlier.flatten(-3, -2)).unflatten(-2, (earlier.shape[-3], -1))
        read = self.factors.push((level.after if after else level.before)[..., 1::2, :, :], read)
        return torch.cat([sums[..., ::2, :, :, :], sums[..., 1::2, :, :, :] + read], dim=-3)

    def since(self, x: Tensor, after: bool) -> Tensor:
        return self.factors.pull(self._whole(after), x)

    def carried(self, rows: Tensor, after: bool) -> Tensor:
        return self.factors.push(self._whole(after), rows)

    def until(self, keys: Tensor) -> Tensor:
        return self.factors.push(self.levels[-1].until[..., 0, :, :], keys)

    def _whole(self, after: bool) -> Tensor:
        level = self.levels[-1]
        return (level.after if after else level.before)[..., 0, :, :]


def sums_decayed_both_ways(
    x: Tensor, keys: Tensor, values: Tensor, after: bool, columns: ColumnDecay, rows: ColumnDecay
) -> Tensor:
    """sum_j (x[i] . keys[j]) values[j] over j <= i, `[..., C, n, R]`, for keys `[..., C, m, K]` that decay by `columns`
    and values `[..., C, m, R]` that decay by `rows`."""
    sums = (x @ keys.mT) @ values if after else torch.zeros_like(x[..., :1] * values[..., :1, :])
    sums, x, keys, values = (y.unsqueeze(-3) for y in (sums, x, keys, values))  # blocks of one step
    for by_column, by_row in zip(columns.levels[:-1], rows.levels[:-1], strict=True):
        corner = _products(columns.later(x, by_column, after), columns.earlier(keys, by_column))
        sums = rows.added(sums, by_row, corner, rows.earlier(values, by_row), after)
        x, keys, values = _pairs(x), _pairs(keys), _pairs(values)
    return sums.squeeze(-4)


class Level(NamedTuple):
    """Products of factors in blocks `[..., blocks, steps, F]`: from the start up to a step, up to the step before,
    and after the step until the end."""

    after: Tensor
    before: Tensor
    until: Tensor

    def doubled(self, factors: Columns) -> "Level":
        """The products in blocks of twice the size."""
        total = self.after[..., -1:, :]
        first, second = total[..., ::2, :, :], total[..., 1::2, :, :]
        return Level(
            torch.cat([self.after[..., ::2, :, :], factors.joined(self.after[..., 1::2, :, :], first)], -2),
            torch.cat([self.before[..., ::2, :, :], factors.joined(self.before[..., 1::2, :, :], first)], -2),
            torch.cat([factors.joined(second, self.until[..., ::2, :, :]), self.until[..., 1::2, :, :]], -2),
        )


def _pairs(x: Tensor) -> Tensor:
    """`[..., blocks, steps, n, K]` in blocks twice as long."""
    return x.unflatten(-4, (-1, 2)).flatten(-4, -3)


def _products(x: Tensor, keys: Tensor) -> Tensor:
    """`[..., C, n, K]`, `[..., D, m, K]` -> `[..., C n, D m]`."""
    x, keys = x.flatten(-3, -2), keys.flatten(-3, -2)
    return x @ keys.mT


def _diagonal(x: Tensor) -> Tensor:
    """The blocks on the diagonal of `[..., G, n, G, m]`, `[..., G, n, m]`."""
    return x.diagonal(0, -4, -2).movedim(-1, -3)


def _spread(scores: Tensor, left: Tensor, keys: Tensor) -> Tensor:
    """The sums of decayed keys `[..., C, m, K]` under scores `[..., C n, C m]`; `left` `[..., C, C]` is the decay."""
    n = scores.shape[-2] // keys.shape[-3]
    return (scores * _repeated(left, n, keys.shape[-2])) @ keys.flatten(-3, -2)


def _repeated(mask: Tensor, n: int, m: int) -> Tensor:
    """`[..., C, C]` for n vectors a step by m: `[..., C n, C m]`."""
    mask = mask if n == 1 else mask.repeat_interleave(n, -2)
    return mask if m == 1 else mask.repeat_interleave(m, -1)


def lower(like: Tensor, diagonal: int = 0) -> Tensor:
    """C by C ones on and below a diagonal. Multiplying by it is several times as fast on CPU as `tril` of a batch."""
    C = like.shape[-2]
    return torch.ones(C, C, dtype=like.dtype, device=like.device).tril(diagonal)
