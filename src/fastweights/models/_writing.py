"""Generation token by token, with a state from which it can be resumed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.errors import require
from fastweights.core.padding import check_ends, check_lengths
from fastweights.models._sampling import Sampling
from fastweights.models._tokens import check_tokens
from fastweights.state import register_state
from fastweights.steps import Recurrence, compiled_after

SEEDS = 2**64
"""Number of different seeds of a generator."""

LONG = 256
"""Smallest number of new tokens for which the step of the model is compiled, which takes seconds."""

Generators = list[torch.Generator]
"""One generator per member of the batch, so that the samples of a member do not depend on the others."""


@register_state
class StreamState(NamedTuple):
    """The state of a stream: the state of the model, the last token, which it has not read, and the generators.

    It can be saved, loaded and forked like any state.
    """

    memory: Any
    last: Tensor  # int64 [B, 1]
    random: Tensor  # uint8 [B, n], the states of generators


class Prefix(NamedTuple):
    """The tokens that are read first, and the state before them."""

    tokens: Tensor  # int64 [B, T]
    lengths: Tensor | None
    memory: Any  # the state before the first token, later a `Recurrence`
    generators: Generators
    done: Tensor  # bool [B, 1]


class TokenStream(Iterator[Tensor]):
    """Yields tokens int `[B, 1]`. Its `state` can be read between two tokens.

    Args:
        model: Maps tokens and a state to logits and the next state.
        read: Maps tokens, a state and lengths to the logits of the next token, `[B, N]`, and the next state.
        start: The tokens that are read first, and the state before them.
        max_new_tokens: Maximum number of new tokens.
        sampling: How tokens are drawn from logits.
        eos_token_id: The token that ends a member.
    """

    def __init__(
        self,
        model: nn.Module,
        read: Callable[[Tensor, Any, Tensor | None], tuple[Tensor, Any]],
        start: Prefix,
        max_new_tokens: int,
        sampling: Sampling,
        eos_token_id: int | None,
    ) -> None:
        self._model, self._read, self._sampling = model, read, sampling
        self._end, self._remaining = eos_token_id, max_new_tokens
        self._prefix = start
        self._compiled_after = 0 if max_new_tokens >= LONG else None

    @torch.inference_mode()
    def __next__(self) -> Tensor:
        tokens, lengths, memory, generators, done = self._prefix
        if self._remaining == 0 or (self._end is not None and done.all()):
            raise StopIteration
        # The choice depends on the arguments of the call alone, so that a seed always gives the same tokens.
        with compiled_after(self._compiled_after):
            if isinstance(memory, Recurrence):
                logits = memory(tokens)[:, -1]
            else:
                logits, state = self._read(tokens, memory, lengths)
                memory = Recurrence(self._model, state)
        new = self._sampling.draw(logits, generators)
        if self._end is not None:
            new = torch.where(done, self._end, new)
            done = new == self._end
        self._prefix, self._remaining = Prefix(new, None, memory, generators, done), self._remaining - 1
        return new

    @property
    def state(self) -> StreamState:
        """State of the stream, from which a later `stream` continues. `InputError` before the first token."""
        prefix = self._prefix
        started = isinstance(prefix.memory, Recurrence)
        require(started, "state", "read after a token", "a read before the first one")
        return StreamState(prefix.memory.state, prefix.tokens, _states(prefix.generators))


def load_stream_state(memory: Any, file: str | Path) -> StreamState:
    """Loads the file of `state.save(file)`; `memory` is an initial state of the model."""
    last = torch.zeros(1, 1, dtype=torch.long)
    state: StreamState = StreamState(memory, last, _states(_seeded(0, last))).load(file)  # type: ignore[attr-defined]
    return state


def begin(
    prompt: Tensor | None, lengths: Tensor | None, state: Any, seed: int | None, eos_token_id: int | None
) -> Prefix:
    """The first tokens to read after a state, which is that of a stream, with or without a prompt, or of a model."""
    if prompt is not None:
        check_prompt(prompt, lengths)
    if isinstance(state, StreamState):
        return _resume(prompt, lengths, state, seed, eos_token_id)
    require(prompt is not None, "prompt", "given, unless the state is that of a stream", "None")
    assert prompt is not None
    return Prefix(prompt, lengths, state, _seeded(seed, prompt), torch.zeros_like(prompt[:, :1], dtype=torch.bool))


def _resume(
    prompt: Tensor | None, lengths: Tensor | None, state: StreamState, seed: int | None, eos_token_id: int | None
) -> Prefix:
    last, generators = state.last, _restore(state) if seed is None else _seeded(seed, state.last)
    unfinished = torch.zeros_like(last, dtype=torch.bool)
    if prompt is None:
        return Prefix(
            last, None, state.memory, generators, unfinished if eos_token_id is None else last == eos_token_id
        )
    require(len(prompt) == len(last), "prompt", f"a batch of {len(last)} members, like the state", len(prompt))
    tokens, more = torch.cat([last, prompt], dim=1), None if lengths is None else lengths + 1
    return Prefix(tokens, more, state.memory, generators, unfinished)


def check_prompt(prompt: Tensor, lengths: Tensor | None) -> None:
    """Raises unless every member has at least one token."""
    check_tokens(prompt, "prompt")
    if lengths is not None:
        check_lengths(lengths, len(prompt), prompt.device)
        check_ends(lengths, prompt.shape[1])
        require(bool((lengths > 0).all()), "lengths", "at least 1", 0, "Start every prompt with a token.")


def _seeded(seed: int | None, tokens: Tensor) -> Generators:
    """Generators from a seed: member b gets `seed + b`."""
    if seed is None:
        seed = int(torch.randint(1 << 62, ()))
    require(isinstance(seed, int) and 0 <= seed < SEEDS, "seed", "a whole number from 0 to 2**64 - 1", repr(seed))
    return [torch.Generator(tokens.device).manual_seed((seed + b) % SEEDS) for b in range(len(tokens))]


def _states(generators: Generators) -> Tensor:
    return torch.stack([generator.get_state() for generator in generators])


def _restore(stream: StreamState) -> Generators:
    """Restores the generators from their states."""
    generators = [torch.Generator(stream.last.device) for _ in stream.random]
    for generator, state in zip(generators, stream.random, strict=True):
        generator.set_state(state.cpu().clone())
    return generators
