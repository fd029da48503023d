"""The configuration of a stack of blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fastweights.layers import LayerKinds, make_layers


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The configuration of a stack of blocks that are alike but for their layers.

    Args:
        layer: A layer as `make_layer` takes it, or several that take turns, as in `make_layers`.
        d_model: Size of the input and output, D.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks. None: `4 * d_model`.
        dropout: Dropout probability.
        norm: Placement of LayerNorm around the layers, from `fastweights list norms`.
        feed_forward_norm: Placement of LayerNorm around the feed-forward networks. None: `norm`.
        conv_size: Kernel size of a causal convolution in front of every layer; 0 for none.
        positions: Positional encoding that is added to the input before dropout, from `fastweights list positions`.
            None: no positional encoding.
        options: Options of the layers, by name.

    >>> Blocks(layer="delta-net", d_model=64, num_layers=2, num_heads=4).width
    256
    """

    layer: LayerKinds
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int | None = None
    dropout: float = 0.0
    norm: str = "pre"
    feed_forward_norm: str | None = None
    conv_size: int = 0
    positions: str | None = None
    options: Mapping[str, Any] | None = None

    @property
    def width(self) -> int:
        """The width of the feed-forward networks."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def layers(self) -> Iterator[nn.Module]:
        """New layers, one per block.

        Raises:
            InputError: there are more layers than blocks, or no layer has one of the options.
        """
        return make_layers(self.layer, self.num_layers, self.d_model, self.num_heads, **(self.options or {}))
