"""Sequence to sequence: an encoder reads the whole source, and a decoder with a memory generates the target."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Probability, Size, checked
from fastweights.core.padding import check_ends, check_lengths, valid_steps
from fastweights.layers import LayerKinds
from fastweights.layers.base.initialise import change_initial
from fastweights.layers.base.layer import NO_CONTROLS, call_layer
from fastweights.models._embedding import Embedding, TiedLinear, tokens_of
from fastweights.models._tokens import check_known, check_tokens
from fastweights.models.beam_search import Hypothesis, beam_search
from fastweights.models.block import feed_forward
from fastweights.models.blocks import Blocks
from fastweights.models.cross_attention import BidirectionalAttention, make_cross_attention
from fastweights.models.dropout import Dropout
from fastweights.models.positions.ascending import Ascending
from fastweights.models.stack import Stack, make_block
from fastweights.registry import NORMS
from fastweights.state import register_state


@register_state
class TranslatorState(NamedTuple):
    """State of the decoder: the positions, one layer state per block, and the encoded source for each block."""

    positions: Any
    layers: tuple[Any, ...]
    memories: tuple[Any, ...]


class DecoderBlock(nn.Module):
    """A layer over the target, cross-attention to the source, and a network, each with a residual connection.

    Args:
        layer: Any layer.
        cross_feature_map: Feature map of the attention to the source. None: softmax attention.
        blocks: The configuration of the decoder, which the block belongs to.
    """

    @checked
    def __init__(self, layer: nn.Module, cross_feature_map: str | None, blocks: Blocks) -> None:
        super().__init__()
        D = blocks.d_model
        self.layer = layer
        self.cross = make_cross_attention(D, blocks.num_heads, cross_feature_map)
        self.feed_forward = feed_forward(D, blocks.width, blocks.dropout)
        self.layer_norm, self.cross_norm, self.feed_forward_norm = (NORMS.load(blocks.norm)(D) for _ in range(3))
        self.dropout = Dropout(blocks.dropout)

    def forward(self, x: Tensor, state: Any, memory: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Maps x `[B, T, D]`, the layer state and the memory of `cross` to y `[B, T, D]` and the state."""
        read = self.layer_norm.read(x)
        y, state = call_layer(self.layer, read, state, None, lengths, NO_CONTROLS)
        x = self.layer_norm.join(x, read, self.dropout(y))
        read = self.cross_norm.read(x)
        x = self.cross_norm.join(x, read, self.dropout(self.cross(read, memory)))
        read = self.feed_forward_norm.read(x)
        return self.feed_forward_norm.join(x, read, self.dropout(self.feed_forward(read))), state


class Translator(nn.Module):
    """Encoder-decoder model for translation, with any layer in the decoder.

    Both languages and the output share one vocabulary and one embedding. Positions are sinusoidal. Each of the
    attentions can be linear, since the paper that compares them does not say which are.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), Secs. 3.1 to 3.5 (D = 1024, 6 layers, 16 heads, D_ff = 4096: its big
    model); Schlag et al. 2021 (arXiv:2102.11174), Sec. 6.2, with linear attention and DPFP.

    Args:
        vocab_size: Number of tokens N.
        layer: Layer of the decoder, or several that alternate, as in `make_layers`.
        encoder_feature_map: Feature map of the self-attention of the encoder, from `fastweights list feature-maps`.
            None: softmax attention.
        cross_feature_map: Feature map of the cross-attention of the decoder. None: softmax attention.
        d_model: Size D of the residual streams.
        num_layers: Number of blocks of the encoder, and of the decoder.
        num_heads: Number of heads of every attention.
        d_ff: Width of the feed-forward networks.
        dropout: Dropout probability.
        norm: Position of LayerNorm, from `fastweights list norms`. Only "pre" has LayerNorm at the ends.
        options: Options of the layers of the decoder, by name.

    Example:
        >>> import torch
        >>> model = Translator(
        ...     vocab_size=50, d_model=16, num_layers=1, num_heads=2, d_ff=32
        ... ).eval()
        >>> source, target = torch.randint(50, (2, 7)), torch.randint(50, (2, 5))
        >>> model(source, None, target, None).shape
        torch.Size([2, 5, 50])
        >>> hypotheses = model.translate(
        ...     source, None, bos_token_id=1, eos_token_id=2, max_length=4, num_beams=2
        ... )
        >>> len(hypotheses)
        2
    """

    @checked
    def __init__(
        self,
        vocab_size: Size,
        layer: LayerKinds = "linear-attention",
        encoder_feature_map: str | None = None,
        cross_feature_map: str | None = None,
        d_model: Size = 256,
        num_layers: Size = 3,
        num_heads: Size = 4,
        d_ff: Size = 1024,
        dropout: Probability = 0.1,
        norm: str = "post",
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocab_size, d_model)
        self.scale = d_model**0.5
        self.positions = Ascending(d_model, dropout)
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            options=options,
        )
        attentions = (BidirectionalAttention(d_model, num_heads, encoder_feature_map) for _ in range(num_layers))
        self.encoder = Stack((make_block(attention, blocks) for attention in attentions), d_model)
        self.decoder: Any = nn.ModuleList(DecoderBlock(one, cross_feature_map, blocks) for one in blocks.layers())
        self.source_norm, self.norm = (nn.LayerNorm(d_model) if norm == "pre" else nn.Identity() for _ in range(2))
        self.output = TiedLinear(self.embedding, bias=False)
        for name, module in self.named_modules():
            if type(module) is nn.Linear and ".layer." not in name:
                change_initial(module, _initialise)

    def reset_parameters(self) -> None:
        """Ties the output to the embedding. The parts of the model initialise themselves."""
        self.output.tie(self.embedding)

    def forward(
        self, source: Tensor, source_lengths: Tensor | None, target: Tensor, target_lengths: Tensor | None
    ) -> Tensor:
        """Computes the logits of the next target tokens.

        Args:
            source: Source tokens, int `[B, S]`.
            source_lengths: Number of tokens of each source, int `[B]`. None: S.
            target: Target tokens, int `[B, T]`.
            target_lengths: Number of tokens of each target, int `[B]`. None: T.

        Returns:
            The logits `[B, T, N]`.
        """
        logits, _ = self.decode(target, self.encode(source, source_lengths), target_lengths)
        return logits

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> TranslatorState:
        """Encodes sources as the initial state of the decoder.

        Args:
            source: Source tokens, int `[B, S]`.
            lengths: Number of tokens of each source, int `[B]`. None: S.

        Returns:
            The state of the decoder.
        """
        x, _ = self._embed(source, None, lengths)
        return self.encode_embedded(x, lengths)

    def encode_embedded(self, x: Tensor, lengths: Tensor | None = None) -> TranslatorState:
        """Encodes embedded sources as the initial state of the decoder.

        Args:
            x: Embedded source tokens with positions, `[B, S, D]`.
            lengths: Number of tokens of each source, int `[B]`. None: S.

        Returns:
            The state of the decoder.
        """
        h, _ = self.encoder(x, lengths=lengths)
        h = self.source_norm(h)
        memories = tuple(block.cross.encode(h, lengths) for block in self.decoder)
        # None rather than initial states, so that attention has no empty cache to read.
        states = (None,) * len(self.decoder)
        return TranslatorState(self.positions.initial_state(len(x)), states, memories)

    def decode(
        self, target: Tensor, state: TranslatorState, lengths: Tensor | None = None
    ) -> tuple[Tensor, TranslatorState]:
        """Reads target tokens and computes the logits of the next ones.

        Args:
            target: Target tokens, int `[B, T]`.
            state: State of the decoder, of `encode` or of the last call.
            lengths: Number of tokens of each target, int `[B]`. None: T.

        Returns:
            The logits `[B, T, N]` and the state after the last token.
        """
        x, positions = self._embed(target, state.positions, lengths)
        after = []
        for block, before, memory in zip(self.decoder, state.layers, state.memories, strict=True):
            x, new = block(x, before, memory, lengths)
            after.append(new)
        logits = self.output(self.norm(x))
        return logits, TranslatorState(positions, tuple(after), state.memories)

    def translate(
        self,
        source: Tensor,
        lengths: Tensor | None,
        bos_token_id: int,
        eos_token_id: int,
        max_length: int | Tensor,
        num_beams: int = 4,
        length_penalty: float = 1,
    ) -> list[list[Hypothesis]]:
        """Searches the most probable targets with `beam_search`.

        Args:
            source: Source tokens, int `[B, S]`.
            lengths: Number of tokens of each source, int `[B]`. None: S.
            bos_token_id: First token of every target.
            eos_token_id: Token that ends a target.
            max_length: Maximum number of tokens, including the end token: one number, or int `[B]` with one per source.
            num_beams: Number of hypotheses per source; 1 is greedy decoding.
            length_penalty: Exponent of the length: 0 prefers short targets, 1 compares means over tokens.

        Returns:
            At most `num_beams` hypotheses per source, the best one first.
        """
        state = self.encode(source, lengths)
        return beam_search(
            self.decode,
            state,
            source.new_full((len(source),), bos_token_id),
            eos_token_id,
            max_length,
            num_beams,
            length_penalty,
        )

    def _embed(self, tokens: Tensor, positions: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        check_tokens(tokens)
        check_lengths(lengths, len(tokens), tokens.device)
        check_ends(lengths, tokens.shape[1])
        if lengths is not None:
            # Padding often has a number outside of the vocabulary.
            tokens = tokens.masked_fill(~valid_steps(lengths, tokens.shape[1]), 0)
        check_known(tokens, tokens_of(self.embedding))
        x, positions = self.positions(self.scale * self.embedding(tokens), positions, lengths=lengths)
        return x, positions


def _initialise(linear: nn.Linear) -> None:
    """Sets Glorot's bounds and biases of 0, for linear maps outside of the memories (code of Vaswani et al. 2017)."""
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
