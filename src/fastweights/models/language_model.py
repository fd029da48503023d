"""A causal language model over any layer."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.errors import require
from fastweights.layers import LayerKinds
from fastweights.layers._given import check_marks
from fastweights.layers._layer import Controls
from fastweights.lengths import only, within
from fastweights.models._sampling import Sampling
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.stack import StackState, make_stack


class LanguageModel(nn.Module):
    """Embedding, blocks, LayerNorm (pre-LN only), linear: logits of the next token from the state and this token.

    The state has one layer's state a block. It can be carried from window to window and from token to token. State,
    reset, lengths and controls are those of a layer: what follows the end of a sequence may be any number, its logits
    are 0, and the state is that after the sequence's own last token.

    Args:
        vocabulary: Number of tokens.
        layer: What `make_layer` takes, or several that take turns, as in `make_layers`; `options` go to them.
        convolution: Width of a causal convolution in front of every layer; 0 for none.
        d_ff: Width of the feed-forward networks; `4 * d_model` if None.
        norm: Where LayerNorm stands, from `fastweights list norms`; there is one at the end only for "pre".
        positions: What is added to the embeddings, from `fastweights list positions`; nothing if None.
        scaled: Whether embeddings are multiplied by sqrt(D).
        output_dropout: Probability of dropping a unit in front of the last linear map.
        tied: Whether the last linear map shares the embedding's weights.
        cutoffs: Where the clusters of a tied `AdaptiveSoftmax` begin; it then takes the last linear map's place, and
            `forward` returns log-probabilities, which are logits, too.
    """

    def __init__(
        self,
        vocabulary: int,
        layer: LayerKinds = "delta-net",
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
        positions: str | None = None,
        scaled: bool = False,
        output_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.dropout = nn.Dropout(0.0 if positions else dropout)  # else it comes behind the positions
        self.scale = d_model**0.5 if scaled else 1.0
        self.output_dropout = nn.Dropout(output_dropout)
        d_ff = d_ff or 4 * d_model
        self.blocks = make_stack(
            layer, d_model, depth, heads, d_ff, dropout, norm, convolution, options, positions=positions
        )
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = _output(self.embedding, tied, cutoffs)

    def forward(
        self,
        tokens: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
    ) -> tuple[Tensor, Any]:
        """tokens int `[B, T]` -> logits `[B, T, N]` and the state after the last token."""
        h, state = self.hidden(tokens, state, reset, lengths, controls)
        return _unpadded(self.output(h), lengths), state

    def hidden(
        self,
        tokens: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
    ) -> tuple[Tensor, Any]:
        """What `output` reads, `[B, T, D]`, and the state: for `output.nll`, which needs no logits of rare words."""
        check_marks(tokens, reset, lengths)
        if lengths is not None:
            # Padding is often marked with a number that no token has.
            tokens = tokens.masked_fill(~within(lengths, tokens.shape[1]), 0)
        h, state = self.blocks(self.dropout(self.scale * self.embedding(tokens)), state, reset, lengths, controls)
        return _unpadded(self.output_dropout(self.norm(h)), lengths), state

    def initial_state(self, batch_size: int) -> StackState:
        """One layer's initial state a block."""
        return self.blocks.initial_state(batch_size)

    def stream(
        self,
        prompt: Tensor,
        length: int,
        temperature: float = 1.0,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        end: int | None = None,
        state: Any = None,
    ) -> Iterator[Tensor]:
        """Continues `prompt` token by token from carried state: yields int `[B, 1]` at most `length` times.

        Args:
            prompt: int `[B, T]`.
            length: Number of tokens, at most.
            temperature: 0 takes the most probable token.
            seed: For the same tokens every time.
            top_k: Only so many of the most probable tokens are drawn from; all if None.
            top_p: Only the fewest most probable tokens that together have this probability.
            end: A token after which a member of the batch is done: it says nothing else from then on. The stream ends
                when all are done.
            state: What the prompt follows, from an earlier call of the model; None for nothing.

        Raises:
            InputError: an argument is out of its range.
        """
        require(prompt.ndim == 2 and prompt.shape[1] > 0, "prompt", "[B, T] with T of at least 1", list(prompt.shape))
        require(length >= 0, "length", "at least 0", length)
        known = self.embedding.num_embeddings
        require(end is None or 0 <= end < known, "end", f"a token, from 0 to {known - 1}", end)
        sampling, generator = Sampling(temperature, top_k, top_p), _generator(seed, prompt.device)
        return self._continue(prompt, length, lambda logits: sampling.draw(logits, generator), end, state)

    @torch.inference_mode()
    def _continue(
        self, tokens: Tensor, length: int, draw: Callable[[Tensor], Tensor], end: int | None, state: Any
    ) -> Iterator[Tensor]:
        done = torch.zeros_like(tokens[:, :1], dtype=torch.bool)
        for _ in range(length):
            logits, state = self(tokens, state)
            tokens = draw(logits[:, -1])
            if end is not None:
                tokens = torch.where(done, end, tokens)
                done = tokens == end
            yield tokens
            if done.all():
                return

    def generate(
        self,
        prompt: Tensor,
        length: int,
        temperature: float = 1.0,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        end: int | None = None,
        state: Any = None,
    ) -> Tensor:
        """What `stream` yields, as int `[B, .]` of at most `length` tokens."""
        tokens = list(self.stream(prompt, length, temperature, seed, top_k, top_p, end, state))
        return torch.cat([prompt[:, :0], *tokens], dim=1)


def _unpadded(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x `[B, T, .]` with 0 behind the end of every sequence."""
    return x if lengths is None else only(within(lengths, x.shape[1]), x)


def _output(embedding: nn.Embedding, tied: bool, cutoffs: tuple[int, ...]) -> nn.Module:
    if cutoffs:
        return AdaptiveSoftmax(embedding, cutoffs)
    output = nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
    if tied:
        output.weight = embedding.weight
    return output


def _generator(seed: int | None, device: torch.device) -> torch.Generator | None:
    if seed is None:
        return None
    require(0 <= seed < 2**64, "seed", "from 0 to 2**64 - 1", seed)
    return torch.Generator(device).manual_seed(seed)
