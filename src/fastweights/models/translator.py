"""From one sequence to another: an encoder reads the whole source, a decoder with a memory writes the target."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from fastweights.core.arguments import Probability, Size, checked
from fastweights.core.padding import check_ends, check_lengths, within
from fastweights.layers import LayerKinds
from fastweights.layers.base.initialise import change_initial
from fastweights.layers.base.layer import NO_CONTROLS, call
from fastweights.models._embedding import Embedding, TiedLinear, tokens_of
from fastweights.models._tokens import check_known, check_tokens
from fastweights.models.beam_search import Hypothesis, beam_search
from fastweights.models.block import feed_forward
from fastweights.models.blocks import Blocks
from fastweights.models.cross_attention import WholeAttention, make_cross_attention
from fastweights.models.dropout import Dropout
from fastweights.models.positions.ascending import Ascending
from fastweights.models.stack import Stack, make_block
from fastweights.registry import NORMS
from fastweights.state import with_methods


@with_methods
class TranslatorState(NamedTuple):
    """What the decoder carries: its place, one layer's state a block, and what its blocks attend to of the source."""

    place: Any
    layers: tuple[Any, ...]
    memories: tuple[Any, ...]


class DecoderBlock(nn.Module):
    """A layer that remembers the target, attention to the source, a network: each with a residual connection.

    Args:
        layer: Any layer.
        cross: Feature map of the attention to the source. None: softmax attention.
        blocks: The configuration of the decoder, which the block belongs to.
    """

    @checked
    def __init__(self, layer: nn.Module, cross: str | None, blocks: Blocks) -> None:
        super().__init__()
        D = blocks.d_model
        self.layer = layer
        self.cross = make_cross_attention(D, blocks.heads, cross)
        self.feed_forward = feed_forward(D, blocks.width, blocks.dropout)
        self.layer_norm, self.cross_norm, self.feed_forward_norm = (NORMS.load(blocks.norm)(D) for _ in range(3))
        self.dropout = Dropout(blocks.dropout)

    def forward(self, x: Tensor, state: Any, memory: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """x `[B, T, D]`, the layer's state and what `cross` remembers of the source -> y `[B, T, D]` and the state."""
        read = self.layer_norm.read(x)
        y, state = call(self.layer, read, state, None, lengths, NO_CONTROLS)
        x = self.layer_norm.join(x, read, self.dropout(y))
        read = self.cross_norm.read(x)
        x = self.cross_norm.join(x, read, self.dropout(self.cross(read, memory)))
        read = self.feed_forward_norm.read(x)
        return self.feed_forward_norm.join(x, read, self.dropout(self.feed_forward(read))), state


class Translator(nn.Module):
    """Logits of the next token of the target from the source and the target so far.

    One vocabulary and one table of embeddings for both languages and for the output; sinusoidal positions. Which
    attentions are linear is to be chosen, since the paper that compares them does not say.

    Source: Vaswani et al. 2017, Secs. 3.1 to 3.5 (D = 1024, depth 6, 16 heads, D_ff = 4096: its big model); Schlag et
    al. 2021, Sec. 6.2, with linear attention and DPFP.

    Args:
        vocabulary: Number of tokens.
        layer: Of the decoder: what `make_layer` takes, or several that take turns, as in `make_layers`; `options` go to
            them.
        encoder: Feature map of the encoder's attention (`fastweights list feature-maps`); softmax attention if None.
        cross: The same for the decoder's attention to the source.
        d_model: D.
        depth: Number of blocks of the encoder, and of the decoder.
        heads: Of every attention.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        norm: Where LayerNorm stands, from `fastweights list norms`; there is one at the ends only for "pre".
    """

    @checked
    def __init__(
        self,
        vocabulary: Size,
        layer: LayerKinds = "linear-attention",
        encoder: str | None = None,
        cross: str | None = None,
        d_model: Size = 256,
        depth: Size = 3,
        heads: Size = 4,
        d_ff: Size = 1024,
        dropout: Probability = 0.1,
        norm: str = "post",
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary, d_model)
        self.scale = d_model**0.5
        self.positions = Ascending(d_model, dropout)
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            depth=depth,
            heads=heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            options=options,
        )
        attentions = (WholeAttention(d_model, heads, encoder) for _ in range(depth))
        self.encoder = Stack((make_block(attention, blocks) for attention in attentions), d_model)
        self.decoder: Any = nn.ModuleList(DecoderBlock(one, cross, blocks) for one in blocks.layers())
        self.source_norm, self.norm = (nn.LayerNorm(d_model) if norm == "pre" else nn.Identity() for _ in range(2))
        self.output = TiedLinear(self.embedding, bias=False)
        for name, module in self.named_modules():
            if type(module) is nn.Linear and ".layer." not in name:
                change_initial(module, _as_in_the_paper)

    def reset_parameters(self) -> None:
        """Ties the output to the embedding; the parts of the model initialise themselves."""
        self.output.tie(self.embedding)

    def forward(
        self, source: Tensor, source_lengths: Tensor | None, target: Tensor, target_lengths: Tensor | None
    ) -> Tensor:
        """source int `[B, S]`, target int `[B, T]` -> logits `[B, T, N]` of what follows each token of the target."""
        logits, _ = self.decode(target, self.encode(source, source_lengths), target_lengths)
        return logits

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> TranslatorState:
        """What a decoder that has written nothing knows of source int `[B, S]`, of `lengths` tokens each."""
        x, _ = self._embed(source, None, lengths)
        h, _ = self.encoder(x, lengths=lengths)
        h = self.source_norm(h)
        memories = tuple(block.cross.remember(h, lengths) for block in self.decoder)
        # No states yet, rather than initial ones: attention then has no empty places to look at.
        nothing = (None,) * len(self.decoder)
        return TranslatorState(self.positions.initial_state(len(source)), nothing, memories)

    def decode(
        self, target: Tensor, state: TranslatorState, lengths: Tensor | None = None
    ) -> tuple[Tensor, TranslatorState]:
        """target int `[B, T]`, any number of tokens -> logits `[B, T, N]`, and the state to go on from."""
        x, place = self._embed(target, state.place, lengths)
        after = []
        for block, before, memory in zip(self.decoder, state.layers, state.memories, strict=True):
            x, new = block(x, before, memory, lengths)
            after.append(new)
        logits = self.output(self.norm(x))
        return logits, TranslatorState(place, tuple(after), state.memories)

    def translate(
        self,
        source: Tensor,
        lengths: Tensor | None,
        begin: int,
        end: int,
        longest: int | Tensor,
        beam: int = 4,
        penalty: float = 1,
    ) -> list[list[Hypothesis]]:
        """source int `[B, S]` -> the most probable targets of every member, the best one first: see `beam_search`."""
        state = self.encode(source, lengths)
        return beam_search(self.decode, state, source.new_full((len(source),), begin), end, longest, beam, penalty)

    def _embed(self, tokens: Tensor, place: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        check_tokens(tokens)
        check_lengths(lengths, len(tokens), tokens.device)
        check_ends(lengths, tokens.shape[1])
        if lengths is not None:
            # Padding is often marked with a number that no token has.
            tokens = tokens.masked_fill(~within(lengths, tokens.shape[1]), 0)
        check_known(tokens, tokens_of(self.embedding))
        x, place = self.positions(self.scale * self.embedding(tokens), place, lengths=lengths)
        return x, place


def _as_in_the_paper(linear: nn.Linear) -> None:
    """Glorot's bounds and biases of 0, for linear maps outside of the memories (code of Vaswani et al. 2017)."""
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
