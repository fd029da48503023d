"""A short convolution in front of a layer."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastweights.core.arguments import Size
from fastweights.core.errors import require
from fastweights.layers.base.layer import Controls, Layer, call_layer, controls_of
from fastweights.layers.base.like import zeros
from fastweights.layers.base.window_cache import PaddedWindow
from fastweights.state import register_state


@register_state
class WithShortConvolutionState(NamedTuple):
    """The state of the layer, and the last `width - 1` inputs `[B, width - 1, D]`, zeros before the first step."""

    layer: Any
    tail: Tensor


class WithShortConvolution(Layer):
    """Short causal convolution in front of a layer.

        z_t = silu(sum_j w_j * x_(t-j)), j = 0, ..., "width" - 1
        y = layer(z)

    A memory without recurrence reads one time step at a time. With the convolution per channel, its keys and values
    depend on the last `width` steps. Language models need this.

    Source: Yang et al. 2024 (Parallelizing Linear Transformers with the Delta Rule, arXiv:2406.06484), Sec. 3.3.

    Args:
        layer: Layer behind the convolution.
        d_model: Size D of its input.
        width: Width of the convolution in time steps, at least 2.

    Raises:
        InputError: `width` is below 2.

    Example:
        >>> from fastweights.layers import DeltaNet
        >>> layer = WithShortConvolution(DeltaNet(16, num_heads=2), d_model=16)
        >>> y, state = layer(torch.randn(2, 10, 16))
        >>> y.shape
        torch.Size([2, 10, 16])
    """

    def __init__(self, layer: nn.Module, d_model: Size, width: Size = 4) -> None:
        super().__init__()
        require(width >= 2, "width", "at least 2", width, "Use the layer alone to have no convolution.")
        self.input_size = d_model
        self.controls = controls_of(layer)
        self.layer = layer
        self.weight = nn.Parameter(torch.empty(width, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights of the convolution. The layer initialises itself."""
        bound = len(self.weight) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def run(
        self,
        x: Tensor,
        state: WithShortConvolutionState | None,
        reset: Tensor | None,
        lengths: Tensor | None,
        controls: Controls,
    ) -> tuple[Tensor, WithShortConvolutionState]:
        """Runs the layer on checked inputs."""
        # A layer that is given no state may skip work, such as attention to an empty window.
        inner, tail = (None, self._empty_tail(x.shape[0])) if state is None else state
        past = PaddedWindow(tail, x, reset, lengths)
        mixed = sum(weight * past.earlier(back) for back, weight in enumerate(self.weight))
        y, after = call_layer(self.layer, nn.functional.silu(mixed), inner, reset, lengths, controls)
        return y, WithShortConvolutionState(after, past.tail())

    def initial_state(self, batch_size: int) -> WithShortConvolutionState:
        """Returns the initial state of the layer, and zeros."""
        inner = self.layer.initial_state(batch_size)  # type: ignore[operator]
        return WithShortConvolutionState(inner, self._empty_tail(batch_size))

    def _empty_tail(self, batch_size: int) -> Tensor:
        return zeros(self, batch_size, len(self.weight) - 1, self.weight.shape[1])


def with_short_convolution(layer: nn.Module, d_model: int, width: int) -> nn.Module:
    """Returns a layer behind a short convolution, or the layer itself if the width is 0.

    Args:
        layer: Layer with the common interface.
        d_model: Size D of its input.
        width: Width of the convolution in time steps; 0 for none.

    Returns:
        The `WithShortConvolution` layer, or `layer`.
    """
    return WithShortConvolution(layer, d_model, width) if width else layer
