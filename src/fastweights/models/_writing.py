"""Text that a model writes token by token, and can go on with on another day."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.padding import at_end, check_ends, check_lengths
from fastweights.models._sampling import Sampling
from fastweights.models._tokens import check_tokens
from fastweights.state import with_methods

SEEDS = 2**64
"""How many seeds a generator tells apart."""

Generators = list[torch.Generator]
"""One for each member of the batch, so that what one is given depends on no other."""


@with_methods
class Written(NamedTuple):
    """Where a text stands: what was read, the token that was said but not read, and the random numbers to come.

    It can be saved, loaded and forked like any state.
    """

    memory: Any
    last: Tensor  # int64 [B, 1]
    random: Tensor  # uint8 [B, n], the states of generators


class Start(NamedTuple):
    """What a text begins with, or goes on with."""

    tokens: Tensor  # int64 [B, T]
    lengths: Tensor | None
    memory: Any
    generators: Generators
    done: Tensor  # bool [B, 1]


class Writing(Iterator[Tensor]):
    """Yields tokens int `[B, 1]`, and knows at any time where the text stands.

    Args:
        hidden: Tokens, a state and lengths -> what `output` reads, and the next state.
        output: That -> logits.
        start: What is read first.
        length: Number of tokens to write, at most.
        sampling: How to draw.
        end: A token that is the last one of a member.
    """

    def __init__(
        self,
        hidden: Callable[..., tuple[Tensor, Any]],
        output: Callable[[Tensor], Tensor],
        start: Start,
        length: int,
        sampling: Sampling,
        end: int | None,
    ) -> None:
        self._hidden, self._output, self._sampling, self._end, self._left = hidden, output, sampling, end, length
        self._now = start

    @torch.inference_mode()
    def __next__(self) -> Tensor:
        tokens, lengths, memory, generators, done = self._now
        if self._left == 0 or (self._end is not None and done.all()):
            raise StopIteration
        h, memory = self._hidden(tokens, memory, lengths=lengths)
        said = self._sampling.draw(self._output(h[:, -1] if lengths is None else at_end(h, lengths - 1)), generators)
        if self._end is not None:
            said = torch.where(done, self._end, said)
            done = said == self._end
        self._now, self._left = Start(said, None, memory, generators, done), self._left - 1
        return said

    @property
    def state(self) -> Written:
        """Where the text stands: a later `stream` goes on with it. `InputError` before the first token."""
        now = self._now
        begun = now.memory is not None and now.lengths is None and now.tokens.shape[1] == 1
        require(begun, "state", "asked for behind a token", "before the first one")
        return Written(now.memory, now.tokens, _states(now.generators))


def load_written(memory: Any, file: str | Path) -> Written:
    """What `state.save(file)` wrote of a text; `memory` is an initial state of its model."""
    last = torch.zeros(1, 1, dtype=torch.long)
    written: Written = Written(memory, last, _states(_seeded(0, last))).load(file)  # type: ignore[attr-defined]
    return written


def begin(prompt: Tensor | None, lengths: Tensor | None, state: Any, seed: int | None, end: int | None) -> Start:
    """The start of a text behind a state: that of a text, which its prompt if any follows, or that of a model."""
    if prompt is not None:
        check_prompt(prompt, lengths)
    if isinstance(state, Written):
        return _go_on(prompt, lengths, state, seed, end)
    require(prompt is not None, "prompt", "tokens, or left out behind the state of a stream", "neither")
    assert prompt is not None
    return Start(prompt, lengths, state, _seeded(seed, prompt), torch.zeros_like(prompt[:, :1], dtype=torch.bool))


def _go_on(prompt: Tensor | None, lengths: Tensor | None, written: Written, seed: int | None, end: int | None) -> Start:
    last, generators = written.last, _restored(written) if seed is None else _seeded(seed, written.last)
    nobody = torch.zeros_like(last, dtype=torch.bool)
    if prompt is None:
        return Start(last, None, written.memory, generators, nobody if end is None else last == end)
    require(len(prompt) == len(last), "prompt", f"of {len(last)} members like the state", len(prompt))
    tokens, more = torch.cat([last, prompt], dim=1), None if lengths is None else lengths + 1
    return Start(tokens, more, written.memory, generators, nobody)


def check_prompt(prompt: Tensor, lengths: Tensor | None) -> None:
    """Raises unless every member has a token to begin with."""
    check_tokens(prompt, "prompt")
    if lengths is not None:
        check_lengths(lengths, len(prompt), prompt.device)
        check_ends(lengths, prompt.shape[1])
        require(bool((lengths > 0).all()), "lengths", "at least 1", 0, "Begin every prompt with a token.")


def _seeded(seed: int | None, tokens: Tensor) -> Generators:
    """Generators from a seed: that of member b has `seed + b`."""
    if seed is None:
        seed = int(torch.randint(1 << 62, ()))
    require(isinstance(seed, int) and 0 <= seed < SEEDS, "seed", "a whole number from 0 to 2**64 - 1", repr(seed))
    return [torch.Generator(tokens.device).manual_seed((seed + b) % SEEDS) for b in range(len(tokens))]


def _states(generators: Generators) -> Tensor:
    return torch.stack([generator.get_state() for generator in generators])


def _restored(written: Written) -> Generators:
    """Generators as they were."""
    generators = [torch.Generator(written.last.device) for _ in written.random]
    for generator, state in zip(generators, written.random, strict=True):
        generator.set_state(state.cpu().clone())
    return generators
