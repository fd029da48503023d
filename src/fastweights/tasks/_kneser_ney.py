"""Interpolated Kneser-Ney: the n-gram baseline for text."""

import numpy as np
from numpy.typing import NDArray

from fastweights.errors import require

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


class KneserNey:
    """p_n(w | h) = max(c(h w) - D, 0) / c(h) + D N(h) / c(h) p_{n-1}(w | h'), down to the uniform distribution.

    c counts n-grams at the highest order and distinct predecessors below it; N(h) is the number of distinct
    continuations of h; h' is h without its first token; D = n1 / (n1 + 2 n2) from how many c are 1 and 2. A history
    that was never seen leaves all to the order below.

    Args:
        tokens: The training sequence, integers from 0 to `vocabulary - 1`.
        vocabulary: Number of tokens.
        order: Length n of the longest n-gram; 1 is the unigram model.

    Source: Kneser and Ney 1995; Chen and Goodman 1999, Sec. 2.7 and Eq. 26 (discount).
    """

    def __init__(self, tokens: NDArray[np.int64], vocabulary: int, order: int) -> None:
        require(order >= 1, "order", "at least 1", order)
        require(len(tokens) >= order, "tokens", f"at least {order} for order {order}", len(tokens))
        longest = self.longest(vocabulary)
        require(order <= longest, "order", f"at most {longest} for {vocabulary} different tokens", order)
        self.vocabulary = vocabulary
        self.order = order
        self.levels = [_Level(self._counts(tokens, n), vocabulary) for n in range(1, order + 1)]

    @staticmethod
    def longest(vocabulary: int) -> int:
        """The longest n-gram that fits into 63 bits."""
        return int(63 / np.log2(max(vocabulary, 2)))

    def bits(self, tokens: NDArray[np.int64]) -> float:
        """Mean bits a token, over all but the first (which a model that predicts the next token cannot predict)."""
        return float(-np.log2(self.probabilities(tokens)[1:]).mean())

    def probabilities(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """p of every token given those before it; the first ones have shorter histories."""
        p = np.full(len(tokens), 1 / self.vocabulary)
        for n, level in enumerate(self.levels, start=1):
            p[n - 1 :] = level.interpolate(_codes(tokens, n, self.vocabulary), p[n - 1 :])
        return p

    def _counts(self, tokens: NDArray[np.int64], n: int) -> Counts:
        if n == self.order:
            return np.unique(_codes(tokens, n, self.vocabulary), return_counts=True)
        longer = np.unique(_codes(tokens, n + 1, self.vocabulary))
        return np.unique(longer % self.vocabulary**n, return_counts=True)


class _Level:
    """Counts of one order."""

    def __init__(self, counts: Counts, vocabulary: int) -> None:
        self.grams, self.counts = counts
        self.vocabulary = vocabulary
        self.histories, first = np.unique(self.grams // vocabulary, return_index=True)
        self.totals = np.add.reduceat(self.counts, first)
        self.continuations = np.diff(np.append(first, len(self.grams)))
        once, twice = (self.counts == 1).sum(), (self.counts == 2).sum()
        self.discount = once / (once + 2 * twice) if once else 0.0

    def interpolate(self, codes: NDArray[np.int64], lower: NDArray[np.float64]) -> NDArray[np.float64]:
        counts = _look_up(self.grams, self.counts, codes)
        totals = _look_up(self.histories, self.totals, codes // self.vocabulary)
        continuations = _look_up(self.histories, self.continuations, codes // self.vocabulary)
        seen = np.maximum(totals, 1)
        mixed = np.maximum(counts - self.discount, 0) / seen + self.discount * continuations / seen * lower
        return np.where(totals > 0, mixed, lower)


def _codes(tokens: NDArray[np.int64], n: int, vocabulary: int) -> NDArray[np.int64]:
    """Every n-gram as one number in base `vocabulary`, in order of appearance."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.int64), n)
    return windows @ vocabulary ** np.arange(n - 1, -1, -1, dtype=np.int64)


def _look_up(keys: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value of each wanted key; 0 for a key that is not there. Keys are sorted."""
    place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
