"""Beam search for the most probable sequences."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.arguments import NotNegative, Size, checked
from fastweights.core.errors import require

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


class Hypothesis(NamedTuple):
    """Tokens without the begin and end tokens, and log p / n^penalty for n tokens, with the end token."""

    tokens: list[int]
    score: float


@checked
@torch.inference_mode()
def beam_search(
    step: Step,
    state: Any,
    begin: Tensor,
    end: int,
    longest: Size | Tensor,
    beam: Size,
    penalty: NotNegative,
) -> list[list[Hypothesis]]:
    """Returns at most `beam` sequences per member of the batch, the best one first.

    The search of a member ends when `beam` of its sequences have ended, or after `longest` tokens. If none has ended
    by then, its unfinished sequences are returned. The result of a member does not depend on the others.

    Args:
        step: Maps tokens int `[N, 1]` and a state of N members to logits `[N, 1, V]` and the state after them.
        state: State of B members before the first token; its method `select` reorders it.
        begin: First token of the sequences of every member, int `[B]`.
        end: Token that ends a sequence.
        longest: Maximum number of tokens, with the end token: one number, or int `[B]` with one per member.
        beam: Number of hypotheses per member; 1 is greedy decoding.
        penalty: Exponent of the length: 0 prefers short sequences, 1 compares means over tokens.

    Source: Wu et al. 2016 (Google's Neural Machine Translation System), Sec. 7, with the length to the power of
    `penalty` as its norm.

    Raises:
        InputError: `beam` or `longest` is below 1, or `penalty` no number from 0.
    """
    limits = _limits(longest, len(begin))
    search = _Search(begin, beam, end, penalty, limits)
    state = state.select(torch.arange(len(begin), device=begin.device).repeat_interleave(beam))
    for _ in range(max(limits, default=0)):
        logits, state = step(search.tokens, state)
        state = state.select(search.extend(logits[:, -1].float().log_softmax(-1)))
        if search.done:
            break
    return search.best()


def _limits(longest: int | Tensor, members: int) -> list[int]:
    """The maximum number of tokens of every member."""
    limits = [longest] * members if isinstance(longest, int) else longest.tolist()
    require(len(limits) == members, "longest", f"one number or [B] with B={members}", len(limits))
    shortest = min(limits, default=1)
    require(shortest >= 1, "longest", "at least 1", shortest)
    return limits


class _Search:
    """The sequences so far: `beam` unfinished hypotheses per member, and those that have ended."""

    def __init__(self, begin: Tensor, beam: int, end: int, penalty: float, limits: list[int]) -> None:
        self.beam, self.end, self.penalty, self.limits = beam, end, penalty, limits
        self.tokens = begin.repeat_interleave(beam).unsqueeze(1)
        self.written = begin.new_empty((len(begin), beam, 0), dtype=torch.long)
        # All hypotheses start equal, so only the first one counts.
        self.scores = begin.new_full((len(begin), beam), -torch.inf, dtype=torch.float32)
        self.scores[:, 0] = 0
        self.ended: list[list[Hypothesis]] = [[] for _ in begin]
        self.results: dict[int, list[Hypothesis]] = {}

    @property
    def done(self) -> bool:
        """Whether every member has its result."""
        return len(self.results) == len(self.ended)

    def extend(self, log_p: Tensor) -> Tensor:
        """Extends the best hypotheses by `log_p` `[B beam, V]`; returns the index of the parent of each."""
        batch, vocabulary = len(self.scores), log_p.shape[-1]
        total = self.scores.unsqueeze(-1) + log_p.view(batch, self.beam, vocabulary)
        # Twice as many as the beam: even if every hypothesis ends once, enough remain.
        scores, flat = total.flatten(1).topk(min(2 * self.beam, self.beam * vocabulary))
        parent, token = flat // vocabulary, flat % vocabulary
        ends = token == self.end
        self._collect_ended(scores, parent, ends)
        order = (ends | scores.isinf()).long().sort(dim=1, stable=True).indices[:, : self.beam]
        ended = ends.gather(1, order)
        parent, token = parent.gather(1, order), token.gather(1, order)
        self.scores = scores.gather(1, order).masked_fill(ended, -torch.inf)
        before = self.written.gather(1, parent.unsqueeze(-1).expand(-1, -1, self.written.shape[-1]))
        self.written = torch.cat([before, token.unsqueeze(-1)], dim=-1)
        self.tokens = token.flatten().unsqueeze(-1)
        self._finish()
        return (torch.arange(batch, device=parent.device).unsqueeze(1) * self.beam + parent).flatten()

    def _collect_ended(self, scores: Tensor, parent: Tensor, ends: Tensor) -> None:
        """Stores hypotheses that end among the best `beam`, for members without a result."""
        for member, rank in ends[:, : self.beam].nonzero().tolist():
            score = scores[member, rank].item()
            if score > -torch.inf and member not in self.results and len(self.ended[member]) < self.beam:
                tokens = self.written[member, parent[member, rank]].tolist()
                self.ended[member].append(Hypothesis(tokens, self._normed(score, len(tokens) + 1)))

    def _normed(self, score: float, length: int) -> float:
        return score / float(length**self.penalty)

    def _finish(self) -> None:
        """Sets the results of members with `beam` ended sequences or at their limit: the ended ones, if any."""
        length = self.written.shape[-1]
        for member, ended in enumerate(self.ended):
            if member not in self.results and (len(ended) >= self.beam or length == self.limits[member]):
                self.results[member] = sorted(ended or self._unfinished(member), key=lambda one: -one.score)

    def best(self) -> list[list[Hypothesis]]:
        """The result of every member."""
        return [self.results[member] for member in range(len(self.ended))]

    def _unfinished(self, member: int) -> list[Hypothesis]:
        alive = zip(self.written[member].tolist(), self.scores[member].tolist(), strict=True)
        return [Hypothesis(tokens, self._normed(score, len(tokens))) for tokens, score in alive if score > -torch.inf]
