"""The most probable sequences, by a search that keeps a few of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.arguments import NotNegative, Size, checked

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


class Hypothesis(NamedTuple):
    """Tokens without those of beginning and end, and log p / n^penalty for n tokens, the end counted."""

    tokens: list[int]
    score: float


@checked
@torch.inference_mode()
def beam_search(
    step: Step,
    state: Any,
    begin: Tensor,
    end: int,
    longest: Size,
    beam: Size,
    penalty: NotNegative,
) -> list[list[Hypothesis]]:
    """For every member of a batch at most `beam` sequences, the best one first.

    A member is done when `beam` of its sequences have ended. Where `longest` tokens were not enough for any to end,
    those that were kept are returned as they are.

    Args:
        step: Tokens int `[N, 1]` and a state of N members -> logits `[N, 1, V]` and the state after them.
        state: Of B members, before the first token; `members` reorders it.
        begin: The token that the sequences of every member begin with, int `[B]`.
        end: The token that ends them.
        longest: Number of tokens, the end counted.
        beam: How many sequences are kept; 1 takes the best token every time.
        penalty: 0 prefers short sequences, 1 compares means over tokens.

    Source: Wu et al. 2016 (Google's Neural Machine Translation System), Sec. 7, with the length to the power of
    `penalty` as its norm.

    Raises:
        InputError: `beam` or `longest` is below 1, or `penalty` no number from 0.
    """
    search = _Search(begin, beam, end, penalty)
    state = state.members(torch.arange(len(begin), device=begin.device).repeat_interleave(beam))
    for _ in range(longest):
        logits, state = step(search.tokens, state)
        state = state.members(search.extend(logits[:, -1].float().log_softmax(-1)))
        if search.done:
            break
    return search.best()


class _Search:
    """What was written so far: `beam` hypotheses for every member, and those that have ended."""

    def __init__(self, begin: Tensor, beam: int, end: int, penalty: float) -> None:
        self.beam, self.end, self.penalty = beam, end, penalty
        self.tokens = begin.repeat_interleave(beam).unsqueeze(1)
        self.written = begin.new_empty((len(begin), beam, 0), dtype=torch.long)
        # All hypotheses begin alike: only the first one counts.
        self.scores = begin.new_full((len(begin), beam), -torch.inf, dtype=torch.float32)
        self.scores[:, 0] = 0
        self.ended: list[list[Hypothesis]] = [[] for _ in begin]

    @property
    def done(self) -> bool:
        """Whether nothing can be added to any member."""
        return all(len(found) >= self.beam for found in self.ended)

    def extend(self, log_p: Tensor) -> Tensor:
        """Takes the best tokens by `log_p` `[B beam, V]`; returns which hypothesis each kept one goes on from."""
        batch, vocabulary = len(self.scores), log_p.shape[-1]
        total = self.scores.unsqueeze(-1) + log_p.view(batch, self.beam, vocabulary)
        # Twice as many as are kept: even if every hypothesis ends once, enough go on.
        scores, flat = total.flatten(1).topk(min(2 * self.beam, self.beam * vocabulary))
        parent, token = flat // vocabulary, flat % vocabulary
        ends = token == self.end
        self._keep_ended(scores, parent, ends)
        order = (ends | scores.isinf()).long().sort(dim=1, stable=True).indices[:, : self.beam]
        going_on = ends.gather(1, order)
        parent, token = parent.gather(1, order), token.gather(1, order)
        self.scores = scores.gather(1, order).masked_fill(going_on, -torch.inf)
        before = self.written.gather(1, parent.unsqueeze(-1).expand(-1, -1, self.written.shape[-1]))
        self.written = torch.cat([before, token.unsqueeze(-1)], dim=-1)
        self.tokens = token.flatten().unsqueeze(-1)
        return (torch.arange(batch, device=parent.device).unsqueeze(1) * self.beam + parent).flatten()

    def _keep_ended(self, scores: Tensor, parent: Tensor, ends: Tensor) -> None:
        """Hypotheses that end among the best `beam`, for members that are not done."""
        for member, place in ends[:, : self.beam].nonzero().tolist():
            score = scores[member, place].item()
            if score > -torch.inf and len(self.ended[member]) < self.beam:
                tokens = self.written[member, parent[member, place]].tolist()
                self.ended[member].append(Hypothesis(tokens, self._normed(score, len(tokens) + 1)))

    def _normed(self, score: float, length: int) -> float:
        return score / float(length**self.penalty)

    def best(self) -> list[list[Hypothesis]]:
        """For every member what has ended, or else what there is, best first."""
        return [
            sorted(found or self._unfinished(member), key=lambda one: -one.score)
            for member, found in enumerate(self.ended)
        ]

    def _unfinished(self, member: int) -> list[Hypothesis]:
        alive = zip(self.written[member].tolist(), self.scores[member].tolist(), strict=True)
        return [Hypothesis(tokens, self._normed(score, len(tokens))) for tokens, score in alive if score > -torch.inf]
