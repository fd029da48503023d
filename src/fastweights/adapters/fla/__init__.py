"""flash-linear-attention: its functions by their names, and its models on a CPU."""

from fastweights.adapters.fla.converted.checkpoint import load
from fastweights.adapters.fla.enabling import disable, enable
from fastweights.adapters.fla.memories import (
    EPS,
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_gdn,
    chunk_gla,
    chunk_kda,
    chunk_linear_attn,
    chunk_rwkv7,
    fused_chunk_linear_attn,
    fused_mul_recurrent_rwkv7,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gdn,
    fused_recurrent_gla,
    fused_recurrent_kda,
    fused_recurrent_linear_attn,
    fused_recurrent_rwkv7,
)

__all__ = [
    "EPS",
    "chunk_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_gdn",
    "chunk_gla",
    "chunk_kda",
    "chunk_linear_attn",
    "chunk_rwkv7",
    "disable",
    "enable",
    "fused_chunk_linear_attn",
    "fused_mul_recurrent_rwkv7",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_linear_attn",
    "fused_recurrent_rwkv7",
    "load",
]
