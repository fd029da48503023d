"""A causal language model over any layer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.core.errors import require
from fastweights.core.padding import only, within
from fastweights.layers import LayerKinds
from fastweights.layers.base.layer import Controls
from fastweights.layers.base.validation import check_marks
from fastweights.models._embedding import Embedding, TiedLinear, tokens_of
from fastweights.models._sampling import Sampling
from fastweights.models._tokens import check_known, check_targets, check_tokens, token_losses
from fastweights.models._writing import Writing, Written, begin, load_written
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.blocks import Blocks
from fastweights.models.dropout import Dropout
from fastweights.models.initialisation import start_small
from fastweights.models.stack import StackState, make_stack
from fastweights.models.word_dropout import WordDropout


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
        word_dropout: Probability of dropping a word wherever it occurs, see `WordDropout`.
        small_start: Whether all weights begin as the papers' do, see `start_small`.
        tied: Whether the last linear map shares the embedding's weights.
        cutoffs: Where the clusters of a tied `AdaptiveSoftmax` begin; it then takes the last linear map's place, and
            `forward` returns log-probabilities, which are logits, too.
    """

    @checked
    def __init__(
        self,
        vocabulary: Size,
        layer: LayerKinds = "delta-net",
        d_model: Size = 128,
        depth: Size = 4,
        heads: Size = 8,
        d_ff: Size | None = None,
        dropout: Probability = 0.0,
        norm: str = "pre",
        convolution: Count = 0,
        options: dict[str, Any] | None = None,
        tied: bool = False,
        cutoffs: tuple[int, ...] = (),
        positions: str | None = None,
        scaled: bool = False,
        output_dropout: Probability = 0.0,
        small_start: bool = False,
        word_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.embedding: nn.Embedding = Embedding(vocabulary, d_model)
        self.dropout = Dropout(0.0 if positions else dropout)  # else it comes behind the positions
        self.word_dropout = WordDropout(word_dropout)
        self.scale = d_model**0.5 if scaled else 1.0
        self.output_dropout = Dropout(output_dropout)
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            depth=depth,
            heads=heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            convolution=convolution,
            positions=positions,
            options=options,
        )
        self.blocks = make_stack(blocks)
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = _output(self.embedding, tied, cutoffs)
        if small_start:
            start_small(self)

    def reset_parameters(self) -> None:
        """Ties the output to the embedding if they share weights; the parts of the model initialise themselves."""
        if isinstance(self.output, TiedLinear):
            self.output.tie(self.embedding)

    def forward(
        self,
        tokens: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
        targets: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """tokens int `[B, T]` -> logits `[B, T, N]` and the state after the last token.

        With targets int `[B, T]`, the losses in nats instead of the logits, `[B, T]` in float32 or float64, under
        autocast too. The loss is 0 where a target is negative and after the end of a sequence. No logits are computed
        for these tokens.
        """
        h, state = self.hidden(tokens, state, reset, lengths, controls)
        if targets is None:
            return _unpadded(self.output(h), lengths), state
        check_targets(targets, tokens)
        asked = targets >= 0 if lengths is None else (targets >= 0) & within(lengths, targets.shape[1])
        loss = _nll(self.output, h[asked], targets[asked].long())
        return loss.new_zeros(targets.shape).masked_scatter(asked, loss), state

    def hidden(
        self,
        tokens: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
    ) -> tuple[Tensor, Any]:
        """What `output` reads, `[B, T, D]`, and the state: for `output.nll`, which needs no logits of rare words."""
        check_tokens(tokens)
        check_marks(tokens, reset, lengths)
        if lengths is not None:
            # Padding is often marked with a number that no token has.
            tokens = tokens.masked_fill(~within(lengths, tokens.shape[1]), 0)
        words = tokens_of(self.embedding)
        check_known(tokens, words)
        x = self.word_dropout(self.embedding(tokens), tokens, words)
        return self.embedded(x, state, reset, lengths, controls)

    def embedded(
        self,
        x: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
    ) -> tuple[Tensor, Any]:
        """The result of `hidden` for embeddings `[B, T, D]` in place of tokens, as prompt tuning needs it."""
        h, state = self.blocks(self.dropout(self.scale * x), state, reset, lengths, controls)
        return _unpadded(self.output_dropout(self.norm(h)), lengths), state

    def initial_state(self, batch_size: int) -> StackState:
        """One layer's initial state a block."""
        return self.blocks.initial_state(batch_size)

    @checked
    def stream(
        self,
        prompt: Tensor | None,
        length: Count,
        temperature: float = 1.0,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        end: int | None = None,
        state: Any = None,
        lengths: Tensor | None = None,
    ) -> Writing:
        """Continues `prompt` token by token from carried state: yields int `[B, 1]` at most `length` times.

        What is returned knows its `state` behind the last token, which can be saved, forked with `members`, and gone on
        with: without a prompt and a seed, a stream goes on as if it had never stopped.

        Args:
            prompt: int `[B, T]`; None to go on with what a stream has said.
            length: Number of tokens, at most.
            temperature: 0 takes the most probable token.
            seed: For the same tokens every time. Member b is given what it would be given alone with `seed + b`.
            top_k: Only so many of the most probable tokens are drawn from; all if None.
            top_p: Only the fewest most probable tokens that together have this probability.
            end: A token after which a member of the batch is done: it says nothing else from then on. The stream ends
                when all are done.
            state: What the prompt follows: the state of a stream, or that of a call of the model; None for nothing.
            lengths: How many tokens the prompt of each member has, int `[B]`, from 1 to T; what follows them is
                padding. All have T if None.

        Raises:
            InputError: an argument is out of its range.
        """
        known = tokens_of(self.embedding)
        fits = end is None or 0 <= end < known
        require(fits, "end", f"a token, from 0 to {known - 1}", repr(end))
        start = begin(prompt, lengths, state, seed, end)
        return Writing(self.hidden, self.output, start, length, Sampling(temperature, top_k, top_p), end)

    @checked
    @torch.no_grad()
    def snapshots(self, tokens: Tensor, every: Size, state: Any = None) -> Iterator[tuple[int, StackState]]:
        """Reads tokens `[B, T]` once: yields how many are read, and the state, every so many tokens and at the end.

        What a prefix cache keeps: a prompt that begins like one which was read goes on from the last place where they
        are the same. `InputError` unless `every` is at least 1.
        """
        check_tokens(tokens)
        for start in range(0, tokens.shape[1], every):
            piece = tokens[:, start : start + every]
            _, state = self.hidden(piece, state)
            yield start + piece.shape[1], state

    @checked
    def load(self, file: str | Path) -> Written:
        """The state of a stream, as `stream.state.save(file)` wrote it: what `stream` and `generate` take as a state.

        `InputError` for the file of another model. Nothing is unpickled.
        """
        return load_written(self.initial_state(1), file)

    def generate(
        self,
        prompt: Tensor | None,
        length: int,
        temperature: float = 1.0,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        end: int | None = None,
        state: Any = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """What `stream` yields, as int `[B, .]` of at most `length` tokens."""
        tokens = list(self.stream(prompt, length, temperature, seed, top_k, top_p, end, state, lengths))
        nothing = (state.last if prompt is None else prompt)[:, :0]
        return torch.cat([nothing, *tokens], dim=1)


def _unpadded(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x `[B, T, .]` with 0 behind the end of every sequence."""
    return x if lengths is None else only(within(lengths, x.shape[1]), x)


def _nll(output: nn.Module, h: Tensor, targets: Tensor) -> Tensor:
    """-log p(target), h `[n, D]` and targets int `[n]` -> `[n]`."""
    if isinstance(output, AdaptiveSoftmax):
        return output.nll(h, targets)
    return token_losses(output(h), targets)


def _output(embedding: nn.Embedding, tied: bool, cutoffs: tuple[int, ...]) -> nn.Module:
    if cutoffs:
        return AdaptiveSoftmax(embedding, cutoffs)
    return TiedLinear(embedding) if tied else nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
