"""The adaptive softmax, tied to the embedding: rare words in clusters that are computed when a target lies in them."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fastweights.core.arguments import checked
from fastweights.core.autocast import at_least_float32
from fastweights.core.errors import require
from fastweights.core.padding import can_be_read
from fastweights.models._chosen_logits import chosen_logits


class AdaptiveSoftmax(nn.Module):
    """Adaptive softmax with tied weights, for large vocabularies.

        log p(w) = log p(w | head)
        log p(w) = log p(c_w | head) + log p(w | c_w)

    The first equation is for the frequent words of the head, the second for a word w in a cluster c_w. A cluster is
    computed only if a target is in it. Log-probabilities are in float32 or float64, also under autocast. The score of
    word w is E_w h + b_w, where E is the weight of the embedding, so that every cluster has the full width. Words must
    be sorted by frequency, most frequent first. The head has the words below the first cut-off and one learned row per
    cluster. Cluster i, counted from 1, has column -i of it, as in the authors' code.

    Source: Grave et al. 2017 (arXiv:1609.04309), Sec. 4; tied and at full width: Schlag et al. 2021 (arXiv:2102.11174),
    code of the language models.

    Args:
        embedding: Embedding whose weight is shared. Its N rows are the words.
        cutoffs: First word of every cluster, ascending. The language models use 20,000, 40,000 and 200,000.

    Raises:
        InputError: there is no cut-off, or the cut-offs do not ascend between 0 and N.

    Example:
        >>> softmax = AdaptiveSoftmax(nn.Embedding(100, 16), cutoffs=(20, 50))
        >>> h, targets = torch.randn(2, 5, 16), torch.randint(100, (2, 5))
        >>> softmax(h).shape, softmax.nll(h, targets).shape
        (torch.Size([2, 5, 100]), torch.Size([2, 5]))
    """

    starts: Tensor

    @checked
    def __init__(self, embedding: nn.Embedding, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        words, d_model = embedding.weight.shape
        fits = len(cutoffs) > 0 and all(a < b for a, b in pairwise((0, *cutoffs, words)))
        require(fits, "cutoffs", f"ascending between 0 and N={words}, at least one", cutoffs)
        self.embedding = embedding
        self.bias = nn.Parameter(torch.empty(words))
        self.cutoffs = tuple(cutoffs)
        self.register_buffer("starts", torch.empty(len(cutoffs), dtype=torch.int64), persistent=False)
        self.reset_parameters()
        self.clusters = nn.Linear(d_model, len(cutoffs))
        self.sizes = [stop - start for start, stop in pairwise((0, *cutoffs, words))]

    def reset_parameters(self) -> None:
        """Resets the bias to 0, and fills the buffer of cut-offs. `embedding` and `clusters` have their own method."""
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            self.starts.copy_(torch.tensor(self.cutoffs))

    def forward(self, h: Tensor) -> Tensor:
        """Computes the logits of all words, which are their log-probabilities.

        Args:
            h: Hidden states `[..., D]`.

        Returns:
            The log-probabilities `[..., N]`.
        """
        return self.log_prob(h)

    def log_prob(self, h: Tensor) -> Tensor:
        """Computes the log-probability of every word.

        Args:
            h: Hidden states `[..., D]`.

        Returns:
            The log-probabilities `[..., N]`, in float32 or float64.
        """
        head, *rest = self._parts()
        words, clusters = self._head(h, *head).split([self.cutoffs[0], len(self.cutoffs)], dim=-1)
        tails = [clusters[..., -i, None] + _tail_log_prob(h, *part) for i, part in enumerate(rest, 1)]
        return torch.cat([words, *tails], dim=-1)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        """Computes the negative log-likelihood of targets.

        Only clusters that contain a target are computed. Logits are not stored: the backward pass recomputes them, some
        rows at a time. It has first derivatives only; `log_prob` has second ones.

        Args:
            h: Hidden states `[..., D]`.
            targets: Words, int `[...]`. The loss is 0 where a target is negative, and NaN where a word of N or above
                cannot be refused without a synchronisation: on GPUs and inside torch.compile.

        Returns:
            The losses -log p(target) in nats, `[...]`, in float32 or float64.

        Raises:
            InputError: `targets` has another shape than h without its last axis, or a word that is not below N; or a
                second derivative is computed.
        """
        require(targets.shape == h.shape[:-1], "targets", f"{list(h.shape[:-1])} like h", list(targets.shape))
        words, N = targets.flatten(), len(self.bias)
        if can_be_read(words) and words.numel():
            largest = int(words.max())
            require(largest < N, "targets", f"below N={N}", largest)
        is_unknown, words = words >= N, words.clamp(max=N - 1)
        cluster = torch.bucketize(words, self.starts, right=True).masked_fill(words < 0, -1)
        # Sorted, the targets of a cluster are a range, whose bounds the host need not know.
        cluster, order = cluster.sort(stable=True)
        ends = torch.searchsorted(cluster, torch.arange(-1, len(self.sizes), device=cluster.device), right=True)
        h, words = h.reshape(-1, h.shape[-1]).index_select(0, order), words.index_select(0, order)
        part, *rest = self._parts()
        losses = self._head_nll(h, *part, words, cluster, ends[:: len(self.sizes)])
        for n, (first, part) in enumerate(zip(self.cutoffs, rest, strict=True), start=1):
            logits, totals = chosen_logits(h, *part, words - first, ends[n : n + 2])
            losses = losses + (totals - logits)
        losses = torch.zeros_like(losses).index_copy(0, order, losses)
        return losses.masked_fill(is_unknown, float("nan")).view(targets.shape)

    def _head_nll(
        self, h: Tensor, weight: Tensor, bias: Tensor, words: Tensor, cluster: Tensor, bounds: Tensor
    ) -> Tensor:
        """-log p of a word of the head, or of a cluster above 0; 0 for cluster -1."""
        logits, totals = chosen_logits(h, weight, bias, words.clamp(max=len(bias) - 1), bounds)
        # A call of the module, which may be wrapped or adapted.
        clusters = at_least_float32(self.clusters(h))
        column = (clusters.shape[-1] - cluster).clamp(max=clusters.shape[-1] - 1)
        chosen = torch.where(cluster == 0, logits, clusters.gather(-1, column[:, None]).squeeze(-1))
        losses = torch.logaddexp(totals, clusters.logsumexp(-1)) - chosen
        return losses.masked_fill(cluster < 0, 0.0)

    def _parts(self) -> list[tuple[Tensor, Tensor]]:
        """Rows of E and b for the head and for every cluster."""
        # One split, since the gradient of a separate slice would be as large as E and mostly zeros.
        return list(zip(self.embedding.weight.split(self.sizes), self.bias.split(self.sizes), strict=True))

    def _head(self, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """log p of the words below the first cut-off and of the clusters."""
        return at_least_float32(torch.cat([linear(h, weight, bias), self.clusters(h)], dim=-1)).log_softmax(-1)


def _tail_log_prob(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """log p of the words of a cluster, given the cluster."""
    return at_least_float32(linear(h, weight, bias)).log_softmax(-1)
