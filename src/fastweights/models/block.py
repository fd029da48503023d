"""A block: a sequence layer and a feed-forward network, each with a residual connection."""

from typing import Any

from torch import Tensor, nn

from fastweights.core.arguments import Probability, Size
from fastweights.layers.base.layer import Controls, Layer, call_layer, controls_of
from fastweights.layers.base.like import first_float
from fastweights.models.dropout import Dropout
from fastweights.registry import NORMS


class Block(Layer):
    """Block of a stack: a sequence layer and a feed-forward network, each with a residual connection.

        h = x + "layer"(LN(x))
        y = h + W_2 relu(W_1 LN(h) + b_1) + b_2

    `norm` chooses another position of LayerNorm. Dropout is applied on both branches and inside the feed-forward
    network.

    Args:
        layer: Layer with the common interface.
        d_model: Size D of the input and the output.
        d_ff: Width of the feed-forward network.
        dropout: Dropout probability.
        norm: Position of LayerNorm, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward network. None: `norm`.

    Example:
        >>> import torch
        >>> from fastweights.layers import DeltaNet
        >>> block = Block(DeltaNet(16, num_heads=2), d_model=16, d_ff=32)
        >>> y, state = block(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        layer: nn.Module,
        d_model: Size,
        d_ff: Size,
        dropout: Probability = 0.0,
        norm: str = "pre",
        feed_forward_norm: str | None = None,
    ) -> None:
        super().__init__()
        self.input_size = d_model
        self.controls = controls_of(layer)
        self.layer = layer
        self.layer_norm = NORMS.load(norm)(d_model)
        self.feed_forward = feed_forward(d_model, d_ff, dropout)
        self.feed_forward_norm = NORMS.load(feed_forward_norm or norm)(d_model)
        self.dropout = Dropout(dropout)

    @property
    def like(self) -> Tensor | None:
        """A parameter of the feed-forward network, since the layer may have parameters in several dtypes."""
        return first_float(self.feed_forward)

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, Any]:
        """Runs the block on checked inputs."""
        read = self.layer_norm.read(x)
        y, state = call_layer(self.layer, read, state, reset, lengths, controls)
        h = self.layer_norm.join(x, read, self.dropout(y))
        read = self.feed_forward_norm.read(h)
        return self.feed_forward_norm.join(h, read, self.dropout(self.feed_forward(read))), state

    def check_state(self, state: Any, x: Tensor) -> Any:
        """Returns the state unchanged, since the layer checks it."""
        return state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the initial state of the layer."""
        return self.layer.initial_state(batch_size)  # type: ignore[operator]


def feed_forward(d_model: int, d_ff: int, dropout: float) -> nn.Sequential:
    """Returns the network W_2 dropout(relu(W_1 h + b_1)) + b_2."""
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), Dropout(dropout), nn.Linear(d_ff, d_model))
