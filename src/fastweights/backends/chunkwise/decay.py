"""The decay between two steps of a chunk: none, one factor per step, or one per column and step."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import pad


class Decay(ABC):
    """Products of decays in chunks of C steps, applied to vectors `[..., C, n, K]`."""

    kept: Tensor | float
    """What is left of the start of a chunk at its end, `[..., 1, 1]` or `[..., 1, K]`."""

    @abstractmethod
    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        """x[i] . (what is left of keys[j] after step i, or before it), `[..., C n, C m]`; 0 for later j."""

    @abstractmethod
    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        """sum_j scores[i, j] (what is left of keys[j] after step i, or before it) over j <= i, `[..., C n, K]`."""

    @abstractmethod
    def since(self, x: Tensor, after: bool) -> Tensor:
        """x times what is left of the start after its step, or before it."""

    @abstractmethod
    def until(self, keys: Tensor) -> Tensor:
        """What is left of keys at the end of the chunk."""


def decay_of(decay: Tensor | None) -> Decay:
    """The decay of factors `[..., C, 1]` or `[..., C, K]`."""
    if decay is None:
        return NoDecay()
    return ScalarDecay(decay) if decay.shape[-1] == 1 else ColumnDecay(decay)


class NoDecay(Decay):
    """No decay."""

    kept = 1.0

    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        mask = lower(x[..., 0, :], 0 if after else -1)
        # In place: a product is not kept for its gradient.
        return _products(x, keys).mul_(_repeated(mask, x.shape[-2], keys.shape[-2]))

    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        return _spread(scores, lower(keys[..., 0, :], 0 if after else -1), keys)

    def since(self, x: Tensor, after: bool) -> Tensor:
        return x

    def until(self, keys: Tensor) -> Tensor:
        return keys


class ScalarDecay(Decay):
    """One factor per step. The products between all pairs of steps are kept in a matrix."""

    def __init__(self, decay: Tensor) -> None:
        self.between = between(decay.squeeze(-1))
        self.after = self.between[..., :1] * decay[..., :1, :]
        self.before = torch.cat([torch.ones_like(self.after[..., :1, :]), self.after[..., :-1, :]], dim=-2)
        self.kept = self.after[..., -1:, :]

    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        return _products(x, keys) * _repeated(self._left(after), x.shape[-2], keys.shape[-2])

    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        return _spread(scores, self._left(after), keys)

    def _left(self, after: bool) -> Tensor:
        return self.between if after else pad(self.between[..., :-1, :], (0, 0, 1, 0))

    def since(self, x: Tensor, after: bool) -> Tensor:
        return x * (self.after if after else self.before).unsqueeze(-2)

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

    def __init__(self, decay: Tensor) -> None:
        self.levels = [
            Level(decay.unsqueeze(-2), torch.ones_like(decay).unsqueeze(-2), torch.ones_like(decay).unsqueeze(-2))
        ]
        while self.levels[-1].after.shape[-3] > 1:
            self.levels.append(self.levels[-1].doubled())
        self.kept = self.levels[-1].after[..., 0, -1:, :]

    def scores(self, x: Tensor, keys: Tensor, after: bool) -> Tensor:
        x, keys = x.unsqueeze(-3), keys.unsqueeze(-3)  # blocks of one step
        found = _products(x, keys)
        found = found if after else torch.zeros_like(found)
        for level in self.levels[:-1]:
            found = self._doubled(found, level, x, keys, after)
            x, keys = (y.unflatten(-4, (-1, 2)).flatten(-4, -3) for y in (x, keys))
        return found.squeeze(-3)

    def _doubled(self, found: Tensor, level: "Level", x: Tensor, keys: Tensor, after: bool) -> Tensor:
        """The scores of blocks twice as long."""
        since = level.after if after else level.before
        later = x[..., 1::2, :, :, :] * since[..., 1::2, :, None, :]
        earlier = keys[..., ::2, :, :, :] * level.until[..., ::2, :, None, :]
        corner = _products(later, earlier)
        first, second = found[..., ::2, :, :], found[..., 1::2, :, :]
        upper = torch.cat([first, first.new_zeros(()).expand_as(first)], dim=-1)
        return torch.cat([upper, torch.cat([corner, second], dim=-1)], dim=-2)

    def spread(self, scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        C = keys.shape[-3]
        own = _diagonal(scores.unflatten(-1, (C, -1)).unflatten(-3, (C, -1))) @ keys
        found = (own if after else torch.zeros_like(own)).unsqueeze(-3)
        keys = keys.unsqueeze(-3)  # blocks of one step
        for level in self.levels[:-1]:
            found = self._spread_on(found, level, scores, keys, after)
            keys = keys.unflatten(-4, (-1, 2)).flatten(-4, -3)
        return found.squeeze(-4).flatten(-3, -2)

    def _spread_on(self, found: Tensor, level: "Level", scores: Tensor, keys: Tensor, after: bool) -> Tensor:
        """The same for blocks twice as long, `[..., blocks, steps, n, K]`: the later half reads the earlier."""
        pairs, steps = keys.shape[-4] // 2, keys.shape[-3]
        since = (level.after if after else level.before)[..., 1::2, :, None, :]
        earlier = keys[..., ::2, :, :, :] * level.until[..., ::2, :, None, :]
        corner = _diagonal(
            scores.unflatten(-1, (pairs, 2, -1)).unflatten(-4, (pairs, 2, -1)).select(-5, 1).select(-2, 0)
        )
        seen = (corner @ earlier.flatten(-3, -2)).unflatten(-2, (steps, -1)) * since
        return torch.cat([found[..., ::2, :, :, :], found[..., 1::2, :, :, :] + seen], dim=-3)

    def since(self, x: Tensor, after: bool) -> Tensor:
        whole = self.levels[-1]
        return x * (whole.after if after else whole.before)[..., 0, :, None, :]

    def until(self, keys: Tensor) -> Tensor:
        return keys * self.levels[-1].until[..., 0, :, None, :]


class Level:
    """Products of decays in blocks `[..., blocks, steps, K]`: from the start up to a step, up to the step before,
    and after the step until the end."""

    def __init__(self, after: Tensor, before: Tensor, until: Tensor) -> None:
        self.after, self.before, self.until = after, before, until

    def doubled(self) -> "Level":
        """The products in blocks of twice the size."""
        total = self.after[..., -1:, :]
        first, second = total[..., ::2, :, :], total[..., 1::2, :, :]
        return Level(
            torch.cat([self.after[..., ::2, :, :], self.after[..., 1::2, :, :] * first], -2),
            torch.cat([self.before[..., ::2, :, :], self.before[..., 1::2, :, :] * first], -2),
            torch.cat([self.until[..., ::2, :, :] * second, self.until[..., 1::2, :, :]], -2),
        )


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
