"""Elementwise parts of RWKV-7 in flash-linear-attention."""

import torch
from torch import Tensor


def fused_addcmul_rwkv7(
    hidden_states: Tensor,
    delta: Tensor,
    xr: Tensor,
    xw: Tensor,
    xk: Tensor,
    xv: Tensor,
    xa: Tensor,
    xg: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """hidden_states + delta * x for each of the six x; None for an xg of None."""
    return tuple(None if x is None else torch.addcmul(hidden_states, delta, x) for x in (xr, xw, xk, xv, xa, xg))


def fused_k_rwkv7(k: Tensor, a: Tensor, ka: Tensor) -> Tensor:
    """k + k (a - 1) ka."""
    return k.addcmul(k * (a - 1), ka)


def gate_output_correction(o: Tensor, r: Tensor, k: Tensor, r_k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """(o + (r k r_k) v) g: the newest association counts again, with its own weight."""
    return (o + ((r * k * r_k).sum(-1, keepdim=True) * v).view(o.shape)) * g
