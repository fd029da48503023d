"""Parts of the models of flash-linear-attention, with the names that its checkpoints have."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from fastweights.adapters.fla.activations import swiglu_linear
from fastweights.adapters.fla.norms import rms_norm, rms_norm_gated
from fastweights.adapters.transformers.replacement import channels_per_head, in_heads
from fastweights.cell import Cell
from fastweights.cells.short_convolution import ShortConvolutionInputs, make_short_convolution
from fastweights.dispatch import scan
from fastweights.layers.base.like import first_float


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, and the output gate of a layer."""

    def __init__(self, size: int, eps: float, is_affine: bool = True, activation: str = "swish") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size)) if is_affine else None
        self.eps = eps
        self.activation = activation

    def forward(self, x: Tensor, g: Tensor | None = None) -> Tensor:
        """Normalises x `[..., D]`; times the activation of g `[..., D]` if it is given."""
        y = (
            rms_norm(x, self.weight, None, eps=self.eps)
            if g is None
            else rms_norm_gated(x, g, self.weight, None, self.activation, eps=self.eps)
        )
        return y  # type: ignore[return-value]


class GatedMLP(nn.Module):
    """W_down (swish(W_gate x) * W_up x)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps x `[..., D]`."""
        return swiglu_linear(self.gate_proj(x), self.up_proj(x), self.down_proj.weight, None)


class ShortConvolution(nn.Module):
    """A causal convolution per channel, with SiLU or without an activation."""

    def __init__(self, channels: int, width: int, has_activation: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, width))
        self.cell = Cell.from_function(make_short_convolution(width, has_activation))

    def forward(self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Filters x `[B, T, D]`, and returns the state after it."""
        weight = in_heads(self.weight[:, 0].mT).transpose(0, 1)
        params = self.cell.Params(weight, torch.zeros_like(weight[:, 0]))  # type: ignore[misc]
        y, state = scan(self.cell, ShortConvolutionInputs(in_heads(x)), state, params, reset, lengths)
        return y.flatten(2), state

    def initial_state(self, batch_size: int) -> Any:
        """Zeros for the inputs before the first one."""
        channels, _, width = self.weight.shape
        size = channels_per_head(channels)
        return self.cell.State(zeros(self, batch_size, channels // size, width - 1, size))


class Activation(nn.Module):
    """SiLU or the identity, in place of a convolution."""

    def __init__(self, has_activation: bool) -> None:
        super().__init__()
        self.has_activation = has_activation

    def forward(self, x: Tensor, state: Any, reset: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Maps x `[B, T, D]`; the state is empty."""
        return silu(x) if self.has_activation else x, state

    def initial_state(self, batch_size: int) -> Any:
        """No tensors."""
        return ()


def zeros(module: nn.Module, *shape: int) -> Tensor:
    """The initial state of a memory: float32, or float64 like the module."""
    like = first_float(module)
    assert like is not None
    return torch.zeros(shape, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)
