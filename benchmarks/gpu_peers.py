"""Forward passes of other libraries for the same rule and shape.

These are flash-linear-attention, FlashQLA, and PyTorch's softmax attention. A library is imported when its function is
created, so that a missing library affects one row only.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from fastweights.testing.samples import Shape

Leaves = Mapping[str, Tensor]
Forward = Callable[[Leaves], Tensor]


def of_fla(cell: str) -> Forward:
    """The chunk kernel of flash-linear-attention for the rule of a cell."""
    import fla.ops as ops
    from fla.ops.rwkv7 import chunk_rwkv7

    def log(x: Tensor) -> Tensor:
        return x.float().log()

    forwards: dict[str, Forward] = {
        "sum": lambda x: ops.chunk_linear_attn(x["q"], x["k"], x["v"], normalize=False)[0],
        "gated": lambda x: ops.chunk_simple_gla(x["q"], x["k"], x["v"], log(x["beta"]))[0],
        "delta": lambda x: ops.chunk_delta_rule(x["q"], x["k"], x["v"], x["beta"])[0],
        "gated-delta": lambda x: ops.chunk_gated_delta_rule(x["q"], x["k"], x["v"], log(x["decay"]), x["beta"])[0],
        "gla": lambda x: ops.chunk_gla(x["q"], x["k"], x["v"], log(x["decay"]))[0],
        "kda": lambda x: ops.chunk_kda(x["q"], x["k"], x["v"], log(x["decay"]), x["beta"])[0],
        "rwkv7": lambda x: chunk_rwkv7(
            x["q"], log(x["decay"]), x["k"], x["v"], -x["removed"], x["removed"] * x["rate"]
        )[0],
    }
    return forwards[cell]


def of_flash_qla(_: str) -> Forward:
    """The chunk kernel of FlashQLA, which supports the gated delta rule only."""
    from flash_qla import chunk_gated_delta_rule

    return lambda x: chunk_gated_delta_rule(x["q"], x["k"], x["v"], g=x["decay"].float().log(), beta=x["beta"])[0]


def of_attention(_: str) -> Forward:
    """Causal softmax attention with heads of the same size."""

    def forward(x: Leaves) -> Tensor:
        q, k, v = (x[name].transpose(1, 2) for name in "qkv")
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    return forward


PEERS = {"flash-linear-attention": of_fla, "FlashQLA": of_flash_qla, "softmax attention": of_attention}


def sample(cell: str, shape: Shape, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Random inputs `[B, T, H, ...]` of a rule: keys of length 1, decays near 1, rates between 0 and 1."""
    leading, generator = (shape.B, shape.T, shape.H), torch.Generator(device).manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(*leading, *size, generator=generator, device=device)

    by_column = cell in ("gla", "kda", "rwkv7")
    named: dict[str, Any] = {
        "q": drawn(shape.K),
        "k": normalize(drawn(shape.K), dim=-1),
        "v": drawn(shape.V),
        "beta": drawn().sigmoid(),
        "decay": (drawn(*[shape.K] * by_column) + 3).sigmoid(),
        "removed": normalize(drawn(shape.K), dim=-1),
        "rate": drawn(shape.K).sigmoid(),
        "forget": drawn() + 3,
        "write": drawn(),
    }
    return {name: x.to(dtype).requires_grad_() for name, x in named.items()}
