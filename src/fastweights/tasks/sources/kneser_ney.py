"""Interpolated Kneser-Ney: the n-gram baseline for text."""

import numpy as np
from numpy.typing import NDArray

from fastweights.core.errors import require

Numbers = NDArray[np.int64]


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

    def __init__(self, tokens: Numbers, vocabulary: int, order: int) -> None:
        require(order >= 1, "order", "at least 1", order)
        require(len(tokens) >= order, "tokens", f"at least {order} for order {order}", len(tokens))
        self.vocabulary = vocabulary
        # Every n-gram is a number: that of its history among those of n - 1 tokens, and its last token.
        codes, ends = [], []
        grams = np.zeros(len(tokens) + 1, dtype=np.int64)
        for _ in range(order):
            found = grams[:-1] * vocabulary + tokens[len(tokens) + 1 - len(grams) :]
            known, end, grams = np.unique(found, return_index=True, return_inverse=True)
            codes.append(known)
            ends.append((end, grams))
        self.levels = [_Level(known, vocabulary, _counts(*ends[n : n + 2])) for n, known in enumerate(codes)]

    def bits(self, tokens: Numbers) -> float:
        """Mean bits a token, over all but the first (which a model that predicts the next token cannot predict)."""
        return float(-np.log2(self.probabilities(tokens)[1:]).mean())

    def probabilities(self, tokens: Numbers) -> NDArray[np.float64]:
        """p of every token given those before it; the first ones have shorter histories."""
        p = np.full(len(tokens), 1 / self.vocabulary)
        grams = np.zeros(len(tokens) + 1, dtype=np.int64)
        for level in self.levels:
            start = len(tokens) + 1 - len(grams)
            histories = grams[:-1]
            grams = level.find(histories, tokens[start:])
            p[start:] = level.interpolate(grams, histories, p[start:])
        return p


def _counts(shorter: tuple[Numbers, Numbers], longer: tuple[Numbers, Numbers] | None = None) -> Numbers:
    """How often every n-gram occurs or, below the highest order, with how many different tokens in front.

    Each order is told by where its different n-grams are met first, and by the number of every n-gram in the sequence.
    """
    _, grams = shorter
    chosen = grams if longer is None else grams[longer[0] + 1]
    return np.bincount(chosen, minlength=int(grams.max()) + 1)


class _Level:
    """Counts of one order.

    Args:
        codes: What an n-gram is, `history * vocabulary + token`; sorted: an n-gram is known by its place.
        vocabulary: Number of tokens.
        counts: Of every n-gram.
    """

    def __init__(self, codes: Numbers, vocabulary: int, counts: Numbers) -> None:
        self.codes, self.counts = codes, counts
        self.vocabulary = vocabulary
        histories = codes // vocabulary
        self.totals = np.bincount(histories, weights=counts)
        self.continuations = np.bincount(histories, weights=counts > 0)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        self.discount = once / (once + 2 * twice) if once else 0.0

    def find(self, histories: Numbers, tokens: Numbers) -> Numbers:
        """The n-gram of every token after its history; -1 for one that was never seen."""
        wanted = histories * self.vocabulary + tokens
        place = np.searchsorted(self.codes, wanted).clip(max=len(self.codes) - 1)
        return np.where((self.codes[place] == wanted) & (histories >= 0), place, -1)

    def interpolate(self, grams: Numbers, histories: Numbers, lower: NDArray[np.float64]) -> NDArray[np.float64]:
        """p at this order from p at the order below."""
        seen = (histories >= 0) & (histories < len(self.totals))
        known = np.where(seen, histories, 0)
        totals = np.where(seen, self.totals[known], 0.0)
        counts = np.where(grams >= 0, self.counts[grams], 0)
        shared = self.discount * self.continuations[known]
        mixed = (np.maximum(counts - self.discount, 0) + shared * lower) / np.maximum(totals, 1)
        return np.where(totals > 0, mixed, lower)
