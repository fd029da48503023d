"""Interpolated Kneser-Ney: the n-gram baseline for text."""

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import require

Numbers = NDArray[np.int64]


class KneserNey:
    """p_n(w | h) = max(c(h w) - D, 0) / c(h) + D N(h) / c(h) p_{n-1}(w | h'), down to the uniform distribution.

    c counts n-grams at the highest order and distinct predecessors below it; N(h) is the number of distinct
    continuations of h; h' is h without its first token; D = n1 / (n1 + 2 n2) from how many c are 1 and 2. For an unseen
    history p_n is p_{n-1}.

    Args:
        tokens: The training sequence, integers from 0 to `vocabulary - 1`.
        vocab_size: Number of tokens.
        order: Length n of the longest n-gram; 1 is the unigram model.

    Source: Kneser and Ney 1995; Chen and Goodman 1999, Sec. 2.7 and Eq. 26 (discount).
    """

    def __init__(self, tokens: Numbers, vocab_size: int, order: int) -> None:
        require(order >= 1, "order", "at least 1", order)
        require(len(tokens) >= order, "tokens", f"at least {order} for order {order}", len(tokens))
        self.vocab_size = vocab_size
        # Every n-gram is a number: that of its history among those of n - 1 tokens, and its last token.
        codes, ends = [], []
        grams = np.zeros(len(tokens) + 1, dtype=np.int64)
        for _ in range(order):
            pairs = grams[:-1] * vocab_size + tokens[len(tokens) + 1 - len(grams) :]
            distinct, end, grams = np.unique(pairs, return_index=True, return_inverse=True)
            codes.append(distinct)
            ends.append((end, grams))
        self.levels = [_Level(distinct, vocab_size, _counts(*ends[n : n + 2])) for n, distinct in enumerate(codes)]

    def bits(self, tokens: Numbers) -> float:
        """Mean bits per token, over all but the first, for which there is no prediction."""
        return float(-np.log2(self.probabilities(tokens)[1:]).mean())

    def probabilities(self, tokens: Numbers) -> NDArray[np.float64]:
        """Probability of every token given the tokens before it; the first ones have shorter histories."""
        p = np.full(len(tokens), 1 / self.vocab_size)
        grams = np.zeros(len(tokens) + 1, dtype=np.int64)
        for level in self.levels:
            start = len(tokens) + 1 - len(grams)
            histories = grams[:-1]
            grams = level.find(histories, tokens[start:])
            p[start:] = level.interpolate(grams, histories, p[start:])
        return p


def _counts(shorter: tuple[Numbers, Numbers], longer: tuple[Numbers, Numbers] | None = None) -> Numbers:
    """Number of occurrences of every n-gram or, below the highest order, of different tokens before it.

    Each order is given by the first positions of its different n-grams, and by the index of every n-gram.
    """
    _, grams = shorter
    chosen = grams if longer is None else grams[longer[0] + 1]
    return np.bincount(chosen, minlength=int(grams.max()) + 1)


class _Level:
    """Counts of one order.

    Args:
        codes: Sorted codes of the n-grams, `history * vocabulary + token`; the index of an n-gram is its position.
        vocab_size: Number of tokens.
        counts: Count of every n-gram.
    """

    def __init__(self, codes: Numbers, vocab_size: int, counts: Numbers) -> None:
        self.codes, self.counts = codes, counts
        self.vocab_size = vocab_size
        histories = codes // vocab_size
        self.totals = np.bincount(histories, weights=counts)
        self.continuations = np.bincount(histories, weights=counts > 0)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        self.discount = once / (once + 2 * twice) if once else 0.0

    def find(self, histories: Numbers, tokens: Numbers) -> Numbers:
        """Index of the n-gram of every token after its history; -1 if it is unseen."""
        code = histories * self.vocab_size + tokens
        index = np.searchsorted(self.codes, code).clip(max=len(self.codes) - 1)
        return np.where((self.codes[index] == code) & (histories >= 0), index, -1)

    def interpolate(self, grams: Numbers, histories: Numbers, lower: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities at this order from those at the order below."""
        is_seen = (histories >= 0) & (histories < len(self.totals))
        rows = np.where(is_seen, histories, 0)
        totals = np.where(is_seen, self.totals[rows], 0.0)
        counts = np.where(grams >= 0, self.counts[grams], 0)
        shared = self.discount * self.continuations[rows]
        mixed = (np.maximum(counts - self.discount, 0) + shared * lower) / np.maximum(totals, 1)
        return np.where(totals > 0, mixed, lower)
