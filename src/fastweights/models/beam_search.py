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
    bos_token_id: Tensor,
    eos_token_id: int,
    max_length: Size | Tensor,
    num_beams: Size,
    length_penalty: NotNegative,
) -> list[list[Hypothesis]]:
    """Searches the most probable sequences with a beam.

        "score" = log p(y) / n^"length_penalty"

    The search of a member of the batch ends when `num_beams` of its sequences have ended, or after `max_length` tokens.
    If no sequence has ended by then, the unfinished ones are returned. The result of a member does not depend on the
    others.

    Source: Wu et al. 2016 (Google's Neural Machine Translation System, arXiv:1609.08144), Sec. 7, normalised by the
    length to the power of `length_penalty`.

    Args:
        step: Function from tokens int `[N, 1]` and a state of N members to logits `[N, 1, V]` and the next state.
        state: State of B members before the first token. Its method `select` reorders it.
        bos_token_id: First token of the sequences of every member, int `[B]`.
        eos_token_id: Token that ends a sequence.
        max_length: Maximum number of tokens, including the end token: one number, or int `[B]` with one per member.
        num_beams: Number of hypotheses per member; 1 is greedy decoding.
        length_penalty: Exponent of the length n: 0 prefers short sequences, 1 compares means over tokens.

    Returns:
        At most `num_beams` hypotheses per member, the best one first. A hypothesis has `tokens`, without the begin and
        the end token, and a `score`.

    Raises:
        InputError: `num_beams` or `max_length` is below 1, or `length_penalty` is negative.
    """
    limits = _limits(max_length, len(bos_token_id))
    search = _Search(bos_token_id, num_beams, eos_token_id, length_penalty, limits)
    state = state.select(torch.arange(len(bos_token_id), device=bos_token_id.device).repeat_interleave(num_beams))
    for _ in range(max(limits, default=0)):
        logits, state = step(search.tokens, state)
        state = state.select(search.extend(logits[:, -1].float().log_softmax(-1)))
        if search.done:
            break
    return search.best()


def _limits(max_length: int | Tensor, members: int) -> list[int]:
    """The maximum number of tokens of every member."""
    limits = [max_length] * members if isinstance(max_length, int) else max_length.tolist()
    require(len(limits) == members, "max_length", f"one number or [B] with B={members}", len(limits))
    shortest = min(limits, default=1)
    require(shortest >= 1, "max_length", "at least 1", shortest)
    return limits


class _Search:
    """The sequences so far: `num_beams` unfinished hypotheses per member, and those that have ended."""

    def __init__(
        self, bos_token_id: Tensor, num_beams: int, eos_token_id: int, length_penalty: float, limits: list[int]
    ) -> None:
        self.num_beams, self.eos_token_id, self.length_penalty, self.limits = (
            num_beams,
            eos_token_id,
            length_penalty,
            limits,
        )
        self.tokens = bos_token_id.repeat_interleave(num_beams).unsqueeze(1)
        self.written = bos_token_id.new_empty((len(bos_token_id), num_beams, 0), dtype=torch.long)
        # All hypotheses start equal, so only the first one counts.
        self.scores = bos_token_id.new_full((len(bos_token_id), num_beams), -torch.inf, dtype=torch.float32)
        self.scores[:, 0] = 0
        self.ended: list[list[Hypothesis]] = [[] for _ in bos_token_id]
        self.results: dict[int, list[Hypothesis]] = {}

    @property
    def done(self) -> bool:
        """Whether every member has its result."""
        return len(self.results) == len(self.ended)

    def extend(self, log_p: Tensor) -> Tensor:
        """Extends the best hypotheses by `log_p` `[B beam, V]`; returns the index of the parent of each."""
        batch, vocab_size = len(self.scores), log_p.shape[-1]
        total = self.scores.unsqueeze(-1) + log_p.view(batch, self.num_beams, vocab_size)
        # Twice as many as the beam: even if every hypothesis ends once, enough remain.
        scores, flat = total.flatten(1).topk(min(2 * self.num_beams, self.num_beams * vocab_size))
        parent, token = flat // vocab_size, flat % vocab_size
        ends = token == self.eos_token_id
        self._collect_ended(scores, parent, ends)
        order = (ends | scores.isinf()).long().sort(dim=1, stable=True).indices[:, : self.num_beams]
        ended = ends.gather(1, order)
        parent, token = parent.gather(1, order), token.gather(1, order)
        self.scores = scores.gather(1, order).masked_fill(ended, -torch.inf)
        before = self.written.gather(1, parent.unsqueeze(-1).expand(-1, -1, self.written.shape[-1]))
        self.written = torch.cat([before, token.unsqueeze(-1)], dim=-1)
        self.tokens = token.flatten().unsqueeze(-1)
        self._finish()
        return (torch.arange(batch, device=parent.device).unsqueeze(1) * self.num_beams + parent).flatten()

    def _collect_ended(self, scores: Tensor, parent: Tensor, ends: Tensor) -> None:
        """Stores hypotheses that end among the best `num_beams`, for members without a result."""
        for member, rank in ends[:, : self.num_beams].nonzero().tolist():
            score = scores[member, rank].item()
            if score > -torch.inf and member not in self.results and len(self.ended[member]) < self.num_beams:
                tokens = self.written[member, parent[member, rank]].tolist()
                self.ended[member].append(Hypothesis(tokens, self._normed(score, len(tokens) + 1)))

    def _normed(self, score: float, length: int) -> float:
        return score / float(length**self.length_penalty)

    def _finish(self) -> None:
        """Sets the results of members with `num_beams` ended sequences or at their limit: the ended ones, if any."""
        length = self.written.shape[-1]
        for member, ended in enumerate(self.ended):
            if member not in self.results and (len(ended) >= self.num_beams or length == self.limits[member]):
                self.results[member] = sorted(ended or self._unfinished(member), key=lambda one: -one.score)

    def best(self) -> list[list[Hypothesis]]:
        """The result of every member."""
        return [self.results[member] for member in range(len(self.ended))]

    def _unfinished(self, member: int) -> list[Hypothesis]:
        alive = zip(self.written[member].tolist(), self.scores[member].tolist(), strict=True)
        return [Hypothesis(tokens, self._normed(score, len(tokens))) for tokens, score in alive if score > -torch.inf]
