"""The short causal convolution in front of many memories."""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from fastweights.adapters.transformers.packed_rows import is_packed, resets
from fastweights.adapters.transformers.replacement import (
    Draw,
    Replacement,
    SampleCall,
    has_kernels,
    in_heads,
    is_on_cpu,
)
from fastweights.cell import Cell
from fastweights.cells.short_convolution import ShortConvolutionInputs, make_short_convolution
from fastweights.core.autocast import at_least_float32
from fastweights.core.grad_mode import wants_gradients
from fastweights.core.traced_constant import traced_constant
from fastweights.dispatch import scan

PARAMETERS = ("hidden_states", "weight", "bias", "activation")
ACTIVATIONS = (None, "silu", "swish")
CHANNELS = 128
"""The largest number of channels per head: longer rows in memory count for more here than a state in registers."""


@traced_constant
@cache
def _cell(width: int, has_activation: bool) -> Cell:
    return Cell.from_function(make_short_convolution(width, has_activation))


def _convolve(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **options: Any
) -> Tensor:
    """hidden_states `[B, D, T]`, weight `[D, W]`. Packed sequences do not see each other."""
    (B, _, T), W = hidden_states.shape, weight.shape[1]
    cell = _cell(W, activation is not None)
    Params: Callable[..., Any] = cell.Params  # type: ignore[assignment]
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    params = Params(in_heads(weight.mT, CHANNELS).transpose(0, 1), in_heads(bias, CHANNELS))
    inputs = ShortConvolutionInputs(in_heads(hidden_states.transpose(1, 2), CHANNELS))
    y, _ = scan(cell, inputs, params=params, reset=resets(options, B, T))
    return y.flatten(2).transpose(1, 2)


def _fits(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = None, **options: Any
) -> bool:
    is_known = is_on_cpu(hidden_states) and activation in ACTIVATIONS and weight.shape[1] > 1
    # Without kernels, PyTorch's convolution is faster than the other backends.
    return is_known and (has_kernels("cpu") or is_packed(options))


def _fits_unpacked(*arguments: Any, **options: Any) -> bool:
    return not is_packed(options) and _fits(*arguments, **options)


def _update(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """One token: hidden_states `[B, D, 1]`, weight `[D, W]`. conv_state holds the last L inputs, and is changed.

    A sum of W products in PyTorch is several times as fast as PyTorch's convolution of a single step.
    """
    L, W = conv_state.shape[-1], weight.shape[1]
    window = torch.cat([conv_state[..., L + 1 - W :], hidden_states.to(conv_state.dtype)], -1)
    conv_state.copy_(window[..., -L:])
    y = (at_least_float32(window) * at_least_float32(weight)).sum(-1, keepdim=True)
    y = (y if bias is None else y.add_(bias[:, None])).to(hidden_states.dtype)
    return silu(y, inplace=True) if activation else y


def _fits_update(
    hidden_states: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = None
) -> bool:
    is_token = is_on_cpu(hidden_states) and hidden_states.shape[-1] == 1 and activation in ACTIVATIONS
    holds_window = weight.shape[1] - 1 <= conv_state.shape[-1] <= weight.shape[1]
    return is_token and holds_window and not wants_gradients([hidden_states, conv_state, weight])


def _trial_updates(_: ModuleType, draw: Draw) -> list[SampleCall]:
    B, D, W = 1, 64, 4
    x, weight, bias = draw(B, D, 1) - 0.5, draw(D, W) - 0.5, draw(D)
    return [
        SampleCall((x, draw(B, D, length), weight, *more), {"activation": activation}, in_place=True)
        for length, more, activation in ((W, (bias,), "silu"), (W - 1, (), None))
    ]


def _trials(_: ModuleType, draw: Draw) -> list[SampleCall]:
    B, D, T, W = 1, 64, 6, 4
    x, weight = draw(B, D, T) - 0.5, draw(D, W) - 0.5
    return [SampleCall((x, weight, draw(D)), {"activation": "silu"}), SampleCall((x, weight), {"activation": None})]


CONVOLUTION = Replacement(
    "causal_conv1d_fn", "the short causal convolution", PARAMETERS, frozenset(), _fits, _convolve, _trials
)
NEXT_TO_MAMBA = CONVOLUTION._replace(fits=_fits_unpacked, defined_with="mamba_selective_scan")
"""The convolution of models whose memory cannot keep packed sequences apart: transformers refuses them."""
UPDATE = Replacement(
    "causal_conv1d_update",
    "the short causal convolution",
    ("hidden_states", "conv_state", "weight", "bias", "activation"),
    frozenset(),
    _fits_update,
    _update,
    _trial_updates,
)
