"""Norms of flash-linear-attention, with an optional residual and an optional output gate.

A residual is added to x first. With `prenorm` a function returns the sum as well, in the dtype of the residual.
Everything is computed in float32; a result has the dtype of x.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from fastweights.core.autocast import at_least_float32

OutputAndResidual = Tensor | tuple[Tensor, Tensor]


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
    num_groups: int = 1,
) -> OutputAndResidual:
    """Normalises x `[..., D]` in groups of D / num_groups features; without subtracting the mean if `is_rms_norm`."""
    total = at_least_float32(x) if residual is None else at_least_float32(x) + at_least_float32(residual)
    y = _normalised(total.unflatten(-1, (num_groups, -1)), eps, is_rms_norm).flatten(-2)
    y = y if weight is None else y * weight
    y = (y if bias is None else y + bias).to(x.dtype)
    if not prenorm:
        return y
    dtype = residual.dtype if residual is not None else torch.float32 if residual_in_fp32 else x.dtype
    return y, total.to(dtype)


def layer_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
) -> OutputAndResidual:
    """`group_norm` with one group."""
    return group_norm(x, weight, bias, residual, eps, prenorm, residual_in_fp32, is_rms_norm)


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> OutputAndResidual:
    """`layer_norm` without subtracting the mean."""
    return group_norm(x, weight, bias, residual, eps, prenorm, residual_in_fp32, True)


def layer_norm_linear(
    x: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
    num_groups: int = 1,
) -> OutputAndResidual:
    """`group_norm`, then a linear map."""
    y, total = group_norm(x, norm_weight, norm_bias, residual, eps, True, residual_in_fp32, is_rms_norm, num_groups)
    y = linear(y.to(linear_weight.dtype), linear_weight, linear_bias)
    return (y, total) if prenorm else y


def rms_norm_linear(
    x: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-5,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> OutputAndResidual:
    """`rms_norm`, then a linear map."""
    options = (residual, eps, prenorm, residual_in_fp32, True)
    return layer_norm_linear(x, norm_weight, norm_bias, linear_weight, linear_bias, *options)


def layer_norm_gated(
    x: Tensor,
    g: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    activation: str = "swish",
    residual: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    eps: float = 1e-6,
) -> OutputAndResidual:
    """`layer_norm` times an activation of g, "swish", "silu" or "sigmoid"."""
    return _gated(x, g, weight, bias, activation, residual, prenorm, residual_in_fp32, eps, False)


def rms_norm_gated(
    x: Tensor,
    g: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    activation: str = "swish",
    residual: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    eps: float = 1e-6,
) -> OutputAndResidual:
    """`rms_norm` times an activation of g."""
    return _gated(x, g, weight, bias, activation, residual, prenorm, residual_in_fp32, eps, True)


def rms_norm_swish_gate_linear(
    x: Tensor,
    g: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    residual: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    eps: float = 1e-6,
) -> OutputAndResidual:
    """`rms_norm_gated` with "swish", then a linear map."""
    y, total = rms_norm_gated(x, g, norm_weight, norm_bias, "swish", residual, True, residual_in_fp32, eps)
    y = linear(y.to(linear_weight.dtype), linear_weight, linear_bias)
    return (y, total) if prenorm else y


def rmsnorm_fn(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    z: Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
) -> Tensor:
    """The norm of Mamba-2: `rms_norm` in groups of `group_size`, with the gate silu(z) before or after it."""
    y = at_least_float32(x)
    if z is not None and not norm_before_gate:
        y = y * silu(at_least_float32(z))
    groups = 1 if group_size is None else x.shape[-1] // group_size
    y = group_norm(y, weight, bias, eps=eps, is_rms_norm=True, num_groups=groups)  # type: ignore[assignment]
    if z is not None and norm_before_gate:
        y = y * silu(at_least_float32(z))
    return y.to(x.dtype)


def l2norm(x: Tensor, eps: float = 1e-6, output_dtype: torch.dtype | None = None) -> Tensor:
    """x / sqrt(|x|^2 + eps) over the last axis."""
    y = at_least_float32(x)
    return (y * (y.square().sum(-1, keepdim=True) + eps).rsqrt()).to(output_dtype or x.dtype)


def _gated(
    x: Tensor,
    g: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    activation: str,
    residual: Tensor | None,
    prenorm: bool,
    residual_in_fp32: bool,
    eps: float,
    is_rms_norm: bool,
) -> OutputAndResidual:
    wide = at_least_float32(x)  # The gate multiplies numbers that are not rounded yet.
    y, total = group_norm(wide, weight, bias, residual, eps, True, residual_in_fp32, is_rms_norm)
    gate = at_least_float32(g)
    y = (y * (gate.sigmoid() if activation == "sigmoid" else silu(gate))).to(x.dtype)
    dtype = x.dtype if residual is None and not residual_in_fp32 else total.dtype
    return (y, total.to(dtype)) if prenorm else y


def _normalised(x: Tensor, eps: float, is_rms_norm: bool) -> Tensor:
    x = x if is_rms_norm else x - x.mean(-1, keepdim=True)
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
