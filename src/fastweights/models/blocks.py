"""The configuration of a stack of blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fastweights.layers import LayerKinds, make_layers


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Configuration of a stack of blocks that differ only in their layers.

    Args:
        layer: Layer, as in `make_layer`, or several that alternate, as in `make_layers`.
        d_model: Size D of the input and the output.
        num_layers: Number of blocks.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks. None: `4 * d_model`.
        dropout: Dropout probability.
        norm: Position of LayerNorm around the layers, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks. None: `norm`.
        conv_size: Width of a causal convolution in front of every layer; 0 for none.
        positions: Positional encoding that is added to the input before dropout, from `fastweights list positions`.
            None: no encoding.
        options: Options of the layers, by name.

    Example:
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
        """Creates new layers, one per block.

        Returns:
            An iterator over the layers.

        Raises:
            InputError: there are more layers than blocks, or no layer has one of the options.
        """
        return make_layers(self.layer, self.num_layers, self.d_model, self.num_heads, **(self.options or {}))
