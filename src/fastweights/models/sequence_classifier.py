"""A classifier of sequences of different lengths."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Count, Probability, Size, checked
from fastweights.core.padding import only, within
from fastweights.layers import LayerKinds
from fastweights.models._reader import make_reader
from fastweights.models.blocks import Blocks
from fastweights.models.stack import make_stack


class SequenceClassifier(nn.Module):
    """y = W mean_t(h_t) + b, h the normalised output of blocks over any layer, at the steps before the padding.

    Args:
        kind: "tokens" or "features".
        input_size: Number of tokens or of features.
        output_size: Number of classes.
        layer: What `make_layer` takes, or several that take turns, as in `make_layers`; `options` go to them.
        d_model: D.
        depth: Number of blocks.
        heads: Number of heads of every layer.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        convolution: Width of a causal convolution in front of every layer; 0 for none.
        norm: Position of LayerNorm, from `fastweights list norms`.
    """

    @checked
    def __init__(
        self,
        kind: str,
        input_size: Size,
        output_size: Size,
        layer: LayerKinds = "delta-net",
        d_model: Size = 64,
        depth: Size = 2,
        heads: Size = 4,
        d_ff: Size = 128,
        dropout: Probability = 0.0,
        convolution: Count = 0,
        norm: str = "pre",
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.reader = make_reader(kind, input_size, d_model)
        blocks = Blocks(
            layer=layer,
            d_model=d_model,
            depth=depth,
            heads=heads,
            d_ff=d_ff,
            dropout=dropout,
            norm=norm,
            convolution=convolution,
            options=options,
        )
        self.blocks = make_stack(blocks)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, output_size)

    def forward(self, inputs: Any, answers: int = 1) -> Tensor:
        """Padded sequences, `inputs.values` `[B, T]` or `[B, T, .]` of `inputs.lengths` -> logits `[B, 1, classes]`."""
        values, lengths = inputs
        h, _ = self.blocks(self.reader(values), lengths=lengths)
        kept = only(within(lengths, h.shape[1]), self.norm(h))
        logits: Tensor = self.head(kept.sum(1, keepdim=True) / lengths[:, None, None])
        return logits
