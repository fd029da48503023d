"""The adaptive softmax, tied to the embedding: rare words in clusters that are computed when a target lies in them."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fastweights.errors import require


class AdaptiveSoftmax(nn.Module):
    """log p(w) = log p(w | head), or log p(cluster of w | head) + log p(w | cluster) from the first cut-off on.

    Word w scores E_w h + b_w, where E is the embedding itself: every cluster has its full width. Words are to be
    numbered by frequency, most frequent first. The head holds the words below the first cut-off and one learned row a
    cluster; cluster i, counted from 1, has column -i of it, as in the authors' code.

    Source: Grave et al. 2017, Sec. 4; tied and at full width: Schlag et al. 2021 (code of the language models).

    Args:
        embedding: The embedding to share; its N rows are the words.
        cutoffs: Where the clusters begin, ascending; the language models have 20,000, 40,000 and 200,000.

    Raises:
        InputError: there is no cut-off, or they do not ascend between 0 and N.
    """

    def __init__(self, embedding: nn.Embedding, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        words, d_model = embedding.weight.shape
        fits = len(cutoffs) > 0 and all(a < b for a, b in pairwise((0, *cutoffs, words)))
        require(fits, "cutoffs", f"ascending between 0 and N={words}, at least one", cutoffs)
        self.embedding = embedding
        self.bias = nn.Parameter(torch.zeros(words))
        self.clusters = nn.Linear(d_model, len(cutoffs))
        self.cutoffs = tuple(cutoffs)
        self.ranges = list(pairwise((0, *cutoffs, words)))

    def forward(self, h: Tensor) -> Tensor:
        """`log_prob`: log-probabilities are logits, too."""
        return self.log_prob(h)

    def log_prob(self, h: Tensor) -> Tensor:
        """Log-probability of every word, h `[..., D]` -> `[..., N]`."""
        words, clusters = self._head(h).split([self.cutoffs[0], len(self.cutoffs)], dim=-1)
        tails = [clusters[..., -i, None] + self._inside(h, i) for i in range(1, len(self.ranges))]
        return torch.cat([words, *tails], dim=-1)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        """-log p(target), h `[..., D]` and targets int `[...]` -> `[...]`; computes only clusters that hold a target.

        Raises:
            InputError: `targets` has another shape than h without its last axis.
        """
        require(targets.shape == h.shape[:-1], "targets", f"{list(h.shape[:-1])} like h", list(targets.shape))
        h, words = h.flatten(0, -2), targets.flatten()
        cluster = torch.bucketize(words, torch.tensor(self.cutoffs, device=words.device), right=True)
        column = torch.where(cluster == 0, words, self.cutoffs[0] + len(self.cutoffs) - cluster)
        log_prob = _pick(self._head(h), column)
        for i in range(1, len(self.ranges)):
            rows = (cluster == i).nonzero().squeeze(1)
            if len(rows):
                inside = _pick(self._inside(h[rows], i), words[rows] - self.ranges[i][0])
                log_prob = log_prob.index_add(0, rows, inside)
        return -log_prob.view(targets.shape)

    def _head(self, h: Tensor) -> Tensor:
        """log p of the words below the first cut-off and of the clusters."""
        return torch.cat([self._scores(h, 0), self.clusters(h)], dim=-1).log_softmax(-1)

    def _inside(self, h: Tensor, i: int) -> Tensor:
        """log p of the words of cluster i, given the cluster."""
        return self._scores(h, i).log_softmax(-1)

    def _scores(self, h: Tensor, i: int) -> Tensor:
        start, stop = self.ranges[i]
        return linear(h, self.embedding.weight[start:stop], self.bias[start:stop])


def _pick(log_prob: Tensor, index: Tensor) -> Tensor:
    return log_prob.gather(-1, index.unsqueeze(-1)).squeeze(-1)
