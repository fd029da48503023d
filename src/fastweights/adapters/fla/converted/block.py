"""A block of flash-linear-attention: a layer and a feed-forward network, each behind an RMSNorm."""

from typing import Any

from torch import Tensor, nn

from fastweights.adapters.fla.converted.parts import GatedMLP, RMSNorm
from fastweights.layers.base.layer import Controls, Layer, call_layer


class ConvertedBlock(Layer):
    """h = x + layer(norm(x)), y = h + mlp(norm(h)).

    Args:
        layer: The layer.
        d_model: Model size, D.
        d_ff: Width of the feed-forward network.
        eps: Added to the mean square in the norms.
    """

    def __init__(self, layer: nn.Module, d_model: int, d_ff: int, eps: float) -> None:
        super().__init__()
        self.input_size = d_model
        self.attn_norm = RMSNorm(d_model, eps)
        self.attn = layer
        self.mlp_norm = RMSNorm(d_model, eps)
        self.mlp = GatedMLP(d_model, d_ff)

    def run(
        self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None, controls: Controls
    ) -> tuple[Tensor, Any]:
        """Runs the block on checked inputs."""
        y, state = call_layer(self.attn, self.attn_norm(x), state, reset, lengths, controls)
        h = x + y
        return h + self.mlp(self.mlp_norm(h)), state

    def check_state(self, state: Any, x: Tensor) -> Any:
        """Returns the state unchanged, since the layer checks it."""
        return state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the initial state of the layer."""
        return self.attn.initial_state(batch_size)  # type: ignore[operator]
