"""A causal language model over any layer."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.errors import require
from fastweights.layers import behind_convolution, make_layer
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.block import Block
from fastweights.state import with_methods

COLDEST, HOTTEST = 1e-6, 1e6
"""Temperatures that logits can be divided by."""


@with_methods
class LanguageModelState(NamedTuple):
    """One layer's state a block."""

    layers: tuple[Any, ...]


class LanguageModel(nn.Module):
    """Embedding, blocks, LayerNorm (pre-LN only), linear: logits of the next token from the state and this token.

    The state has one layer's state a block. It can be carried from window to window and from token to token.

    Args:
        vocabulary: Number of tokens.
        layer: A name from `fastweights list layers`; `options` go to it.
        convolution: Width of a causal convolution in front of every layer; 0 for none.
        d_ff: Width of the feed-forward networks; `4 * d_model` if None.
        norm: "pre" or "post".
        tied: Whether the last linear map shares the embedding's weights.
        cutoffs: Where the clusters of a tied `AdaptiveSoftmax` begin; it then takes the last linear map's place, and
            `forward` returns log-probabilities, which are logits, too.
    """

    def __init__(
        self,
        vocabulary: int,
        layer: str = "delta-net",
        d_model: int = 128,
        depth: int = 4,
        heads: int = 8,
        d_ff: int | None = None,
        dropout: float = 0.0,
        norm: str = "pre",
        convolution: int = 0,
        options: dict[str, Any] | None = None,
        tied: bool = False,
        cutoffs: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        require(depth >= 1, "depth", "at least 1", depth)
        self.embedding = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.dropout = nn.Dropout(dropout)

        def block() -> Block:
            memory = make_layer(layer, d_model, heads, **(options or {}))
            memory = behind_convolution(memory, d_model, convolution)
            return Block(memory, d_model, d_ff or 4 * d_model, dropout, norm)

        self.blocks = nn.ModuleList(block() for _ in range(depth))
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = _output(self.embedding, tied, cutoffs)

    def forward(self, tokens: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """tokens int `[B, T]` -> logits `[B, T, N]` and the state after the last token."""
        h, state = self.hidden(tokens, state, reset)
        return self.output(h), state

    def hidden(self, tokens: Tensor, state: Any = None, reset: Tensor | None = None) -> tuple[Tensor, Any]:
        """What `output` reads, `[B, T, D]`, and the state: for `output.nll`, which needs no logits of rare words."""
        h = self.dropout(self.embedding(tokens))
        given = [None] * len(self.blocks) if state is None else state.layers
        after = []
        for block, before in zip(self.blocks, given, strict=True):
            h, new = block(h, before, reset)
            after.append(new)
        return self.norm(h), LanguageModelState(tuple(after))

    def initial_state(self, batch_size: int) -> Any:
        """One layer's initial state a block."""
        states = (block.initial_state(batch_size) for block in self.blocks)  # type: ignore[operator]
        return LanguageModelState(tuple(states))

    @torch.inference_mode()
    def stream(
        self, prompt: Tensor, length: int, temperature: float = 1.0, seed: int | None = None
    ) -> Iterator[Tensor]:
        """Continues `prompt`, int `[B, T]`, by `length` tokens `[B, 1]`, one at a time from carried state.

        Temperature 0 takes the most probable token.
        """
        require(prompt.ndim == 2 and prompt.shape[1] > 0, "prompt", "[B, T] with T of at least 1", list(prompt.shape))
        fits = temperature == 0 or COLDEST <= temperature <= HOTTEST
        require(fits, "temperature", f"0, or from {COLDEST:g} to {HOTTEST:g}", temperature)
        generator = None if seed is None else torch.Generator(prompt.device).manual_seed(seed)
        tokens, state = prompt, None
        for _ in range(length):
            logits, state = self(tokens, state)
            tokens = _draw(logits[:, -1], temperature, generator)
            yield tokens

    def generate(self, prompt: Tensor, length: int, temperature: float = 1.0, seed: int | None = None) -> Tensor:
        """What `stream` yields, as int `[B, length]`."""
        tokens = list(self.stream(prompt, length, temperature, seed))
        return torch.cat([prompt[:, :0], *tokens], dim=1)


def _output(embedding: nn.Embedding, tied: bool, cutoffs: tuple[int, ...]) -> nn.Module:
    if cutoffs:
        return AdaptiveSoftmax(embedding, cutoffs)
    output = nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
    if tied:
        output.weight = embedding.weight
    return output


def _draw(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
