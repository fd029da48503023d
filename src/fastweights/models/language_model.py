"""A causal language model over any layer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.core.errors import require
from fastweights.core.other_names import unexpected
from fastweights.core.padding import at_end, can_be_read, mask_steps, valid_steps
from fastweights.layers import LayerKinds
from fastweights.layers.base.layer import CALL, Controls
from fastweights.layers.base.validation import check_marks
from fastweights.models._embedding import Embedding, TiedLinear, tokens_of
from fastweights.models._sampling import Sampling
from fastweights.models._tokens import check_known, check_targets, check_tokens, token_losses
from fastweights.models._writing import StreamState, TokenStream, begin, load_stream_state
from fastweights.models.adaptive_softmax import AdaptiveSoftmax
from fastweights.models.blocks import Blocks
from fastweights.models.dropout import Dropout
from fastweights.models.initialisation import init_small_
from fastweights.models.stack import StackState, make_stack
from fastweights.models.word_dropout import WordDropout
from fastweights.steps import step_of


class LanguageModel(nn.Module):
    """Causal language model over any layer.

    Embedding, blocks, LayerNorm (only for pre-LN), linear map to the logits of the next token. The state holds one
    layer state per block. It can be carried from window to window and from token to token. `state`, `reset`, `lengths`
    and `controls` are those of a layer. Padding may have any value; its logits are 0, and the state is that after the
    last token.

    Args:
        vocab_size: Number of tokens N.
        layer: Layer, or several that alternate, as in `make_layers`.
        d_model: Size D of the embeddings and the hidden states.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks. None: `4 * d_model`.
        dropout: Dropout probability of the embeddings and the blocks.
        norm: Position of LayerNorm, from `fastweights list norms`. Only "pre" has a LayerNorm at the end.
        conv_size: Width of a causal convolution in front of every layer; 0 for none.
        options: Options of the layers, by name.
        tie_word_embeddings: Whether the output layer shares the weight of the embedding.
        cutoffs: First word of every cluster of a tied `AdaptiveSoftmax`, which replaces the output layer. The logits
            are then log-probabilities. Empty: a linear output layer.
        positions: Positional encoding that is added to the embeddings, from `fastweights list positions`. None: no
            encoding.
        scale_embeddings: Whether embeddings are multiplied by sqrt(D).
        output_dropout: Dropout probability in front of the output layer.
        small_init: Whether all weights are initialised as in the papers, see `init_small_`.
        word_dropout: Probability of dropping a word at all of its positions, see `WordDropout`.

    Example:
        >>> model = LanguageModel(
        ...     vocab_size=100, layer="delta-net", d_model=16, num_layers=2, num_heads=2
        ... )
        >>> logits, state = model(torch.randint(100, (2, 10)))
        >>> logits.shape
        torch.Size([2, 10, 100])
        >>> model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=5).shape
        torch.Size([1, 5])
    """

    @checked
    def __init__(
        self,
        vocab_size: Size,
        layer: LayerKinds = "delta-net",
        d_model: Size = 128,
        num_layers: Size = 4,
        num_heads: Size = 8,
        d_ff: Size | None = None,
        dropout: Probability = 0.0,
        norm: str = "pre",
        conv_size: Count = 0,
        options: dict[str, Any] | None = None,
        tie_word_embeddings: bool = False,
        cutoffs: tuple[int, ...] = (),
        positions: str | None = None,
        scale_embeddings: bool = False,
        output_dropout: Probability = 0.0,
        small_init: bool = False,
        word_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.embedding: nn.Embedding = Embedding(vocab_size, d_model)
        self.dropout = Dropout(0.0 if positions else dropout)  # else it comes behind the positions
        self.word_dropout = WordDropout(word_dropout)
        self.scale = d_model**0.5 if scale_embeddings else 1.0
        self.output_dropout = Dropout(output_dropout)
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            conv_size=conv_size,
            positions=positions,
            options=options,
        )
        self.blocks = make_stack(blocks)
        self.norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = _output(self.embedding, tie_word_embeddings, cutoffs)
        if small_init:
            init_small_(self)

    def reset_parameters(self) -> None:
        """Ties the output to the embedding if they share weights. The parts of the model initialise themselves."""
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
        **unknown: object,
    ) -> tuple[Tensor, Any]:
        """Computes the logits of the next token, or the losses of targets.

        Args:
            tokens: Tokens, int `[B, T]`.
            state: State before the first token. None: the initial state.
            reset: Resets, bool `[B, T]`. Where True, the state returns to the initial state before the token.
            lengths: Number of tokens of each sequence, int `[B]`. The rest is padding. None: T.
            controls: Control signals by name, `[B, T]`, for layers that accept them.
            targets: Targets, int `[B, T]`. The loss is 0 where a target is negative, and at padding.

        Returns:
            The logits `[B, T, N]`, or with targets the losses in nats, `[B, T]` in float32 or float64 also under
            autocast; and the state after the last token.

        Raises:
            InputError: an argument does not fit the model.
        """
        if unknown:
            raise unexpected(next(iter(unknown)), ("tokens", *CALL[1:], "targets"), type(self).__name__)
        check_tokens(tokens)
        is_plain = reset is None and lengths is None and controls is None and targets is None
        step = step_of(self, tokens, state) if is_plain else None
        if step is not None:
            result: tuple[Tensor, Any] = step(self, tokens, state)
            return result
        h, state = self.hidden(tokens, state, reset, lengths, controls)
        if targets is None:
            return _unpadded(self.output(h), lengths), state
        check_targets(targets, tokens)
        inside = targets.long()
        if lengths is not None:
            inside = inside.masked_fill(~valid_steps(lengths, targets.shape[1]), -1)
        return _losses(self.output, h, inside), state

    def hidden(
        self,
        tokens: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
    ) -> tuple[Tensor, Any]:
        """Computes the hidden states in front of the output layer.

        Args:
            tokens: Tokens, int `[B, T]`.
            state: State before the first token. None: the initial state.
            reset: Resets, bool `[B, T]`.
            lengths: Number of tokens of each sequence, int `[B]`. None: T.
            controls: Control signals by name, `[B, T]`, for layers that accept them.

        Returns:
            The inputs of `output`, `[B, T, D]`, and the state after the last token.
        """
        check_tokens(tokens)
        check_marks(tokens, reset, lengths)
        if lengths is not None:
            # Padding often has a number outside of the vocabulary.
            tokens = tokens.masked_fill(~valid_steps(lengths, tokens.shape[1]), 0)
        words = tokens_of(self.embedding)
        check_known(tokens, words)
        x = self.word_dropout(self.embedding(tokens), tokens, words)
        return self.hidden_from_embeddings(x, state, reset, lengths, controls)

    def hidden_from_embeddings(
        self,
        x: Tensor,
        state: Any = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
        controls: Controls | None = None,
    ) -> tuple[Tensor, Any]:
        """Computes the hidden states for embeddings instead of tokens, as in prompt tuning.

        Args:
            x: Embeddings `[B, T, D]`.
            state: State before the first token. None: the initial state.
            reset: Resets, bool `[B, T]`.
            lengths: Number of tokens of each sequence, int `[B]`. None: T.
            controls: Control signals by name, `[B, T]`, for layers that accept them.

        Returns:
            The inputs of `output`, `[B, T, D]`, and the state after the last token.
        """
        h, state = self.blocks(self.dropout(self.scale * x), state, reset, lengths, controls)
        return _unpadded(self.output_dropout(self.norm(h)), lengths), state

    def _next_logits(self, tokens: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Logits `[B, N]` behind the last token of every member, and the state after it."""
        h, state = self.hidden(tokens, state, lengths=lengths)
        return self.output(h[:, -1] if lengths is None else at_end(h, lengths - 1)), state

    def initial_state(self, batch_size: int) -> StackState:
        """Returns the initial state, with one layer state per block.

        Args:
            batch_size: Number of sequences B.

        Returns:
            The state, with the batch as the first axis of every tensor.
        """
        return self.blocks.initial_state(batch_size)

    @checked
    def stream(
        self,
        prompt: Tensor | None,
        max_new_tokens: Count,
        temperature: float = 1.0,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        eos_token_id: int | None = None,
        state: Any = None,
        lengths: Tensor | None = None,
    ) -> TokenStream:
        """Generates tokens one by one, with a carried state.

        The `state` of the returned iterator after the last token can be saved, forked with `select`, and passed to
        another call. Without a prompt and a seed, that call continues as if the stream had not stopped.

        Args:
            prompt: Tokens to read first, int `[B, T]`. None: continue a stream without new tokens.
            max_new_tokens: Maximum number of new tokens.
            temperature: Temperature of sampling; 0 selects the most probable token.
            seed: Seed of sampling. Member b of the batch gets the tokens that it would get alone with `seed + b`. None:
                a random seed.
            top_k: Number of most probable tokens to sample from. None: all.
            top_p: Sample from the fewest most probable tokens that together have this probability.
            eos_token_id: Token that ends a member of the batch. The member repeats it from then on. The stream ends
                when all members have ended. None: no such token.
            state: State before the prompt, of a stream or of a call of the model. None: the initial state.
            lengths: Number of tokens of the prompt of each member, int `[B]`, from 1 to T. The rest is padding. None:
                T.

        Returns:
            An iterator of tokens, int `[B, 1]`.

        Raises:
            InputError: an argument is out of its range.
        """
        vocab_size = tokens_of(self.embedding)
        fits = eos_token_id is None or 0 <= eos_token_id < vocab_size
        require(fits, "eos_token_id", f"a token, from 0 to {vocab_size - 1}", repr(eos_token_id))
        start = begin(prompt, lengths, state, seed, eos_token_id)
        sampling = Sampling(temperature, top_k, top_p)
        return TokenStream(self, self._next_logits, start, max_new_tokens, sampling, eos_token_id)

    @checked
    @torch.no_grad()
    def snapshots(self, tokens: Tensor, every: Size, state: Any = None) -> Iterator[tuple[int, StackState]]:
        """Reads tokens and yields the state at regular intervals.

        A prefix cache stores these states: a prompt with a known prefix continues from the last state before the
        prompts differ.

        Args:
            tokens: Tokens, int `[B, T]`.
            every: Number of tokens between two states, at least 1.
            state: State before the first token. None: the initial state.

        Yields:
            The number of tokens read and the state, every `every` tokens and at the end.

        Raises:
            InputError: `every` is below 1.
        """
        check_tokens(tokens)
        for start in range(0, tokens.shape[1], every):
            piece = tokens[:, start : start + every]
            _, state = self.hidden(piece, state)
            yield start + piece.shape[1], state

    @checked
    def load(self, file: str | Path) -> StreamState:
        """Loads the state of a stream, for `stream` and `generate`. Nothing is unpickled.

        Args:
            file: File that `stream.state.save(file)` wrote.

        Returns:
            The state.

        Raises:
            InputError: the file is from another model.
        """
        return load_stream_state(self.initial_state(1), file)

    @checked
    def generate(
        self,
        prompt: Tensor | None,
        max_new_tokens: Count,
        temperature: float = 1.0,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float = 1.0,
        eos_token_id: int | None = None,
        state: Any = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Generates tokens.

        Args:
            prompt: Tokens to read first, int `[B, T]`. None: continue a stream without new tokens.
            max_new_tokens: Maximum number of new tokens.
            temperature: Temperature of sampling; 0 selects the most probable token.
            seed: Seed of sampling. Member b of the batch gets the tokens that it would get alone with `seed + b`. None:
                a random seed.
            top_k: Number of most probable tokens to sample from. None: all.
            top_p: Sample from the fewest most probable tokens that together have this probability.
            eos_token_id: Token that ends a member of the batch. The member repeats it from then on. None: no such
                token.
            state: State before the prompt, of a stream or of a call of the model. None: the initial state.
            lengths: Number of tokens of the prompt of each member, int `[B]`, from 1 to T. None: T.

        Returns:
            The new tokens, int `[B, n]` with n of at most `max_new_tokens`, without the prompt.
        """
        tokens = list(
            self.stream(prompt, max_new_tokens, temperature, seed, top_k, top_p, eos_token_id, state, lengths)
        )
        empty = (state.last if prompt is None else prompt)[:, :0]
        return torch.cat([empty, *tokens], dim=1)


def _unpadded(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x `[B, T, .]` with 0 after the end of every sequence."""
    return x if lengths is None else mask_steps(valid_steps(lengths, x.shape[1]), x)


def _losses(output: nn.Module, h: Tensor, targets: Tensor) -> Tensor:
    """-log p(target), h `[B, T, D]` and targets int `[B, T]` -> `[B, T]`; 0 where a target is negative."""
    if isinstance(output, AdaptiveSoftmax):
        return output.nll(h, targets)
    has_target = targets >= 0
    if torch.is_grad_enabled() and not can_be_read(targets):
        # The host would wait for the number of targets. In training, most time steps have one.
        return token_losses(output(h), targets.clamp(min=0)).masked_fill(~has_target, 0.0)
    loss = token_losses(output(h[has_target]), targets[has_target])
    return loss.new_zeros(targets.shape).masked_scatter(has_target, loss)


def _output(embedding: nn.Embedding, tie_word_embeddings: bool, cutoffs: tuple[int, ...]) -> nn.Module:
    if cutoffs:
        return AdaptiveSoftmax(embedding, cutoffs)
    return (
        TiedLinear(embedding) if tie_word_embeddings else nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
    )
