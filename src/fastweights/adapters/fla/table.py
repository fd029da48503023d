"""All functions of flash-linear-attention that are replaced on a CPU, by module and name."""

from collections.abc import Callable, Mapping
from typing import Any

from fastweights.adapters.fla import (
    activations,
    delta_memories,
    gated_memories,
    losses,
    mamba_layers,
    memories,
    mesa,
    norms,
    positions,
    preconditioned_memories,
    routing,
    rwkv_parts,
    short_convolution,
    slot_attention,
)

Functions = Mapping[str, Callable[..., Any]]


def _by_name(*functions: Callable[..., Any]) -> Functions:
    return {function.__name__: function for function in functions}


TABLE: Mapping[str, Functions] = {
    "fla.modules.norm.layernorm": _by_name(
        norms.layer_norm, norms.group_norm, norms.rms_norm, norms.layer_norm_linear, norms.rms_norm_linear
    ),
    "fla.modules.norm.fused_norm_gate": _by_name(
        norms.layer_norm_gated, norms.rms_norm_gated, norms.rms_norm_swish_gate_linear
    ),
    "fla.modules.norm.layernorm_gated": _by_name(norms.rmsnorm_fn),
    "fla.modules.norm.l2norm": _by_name(norms.l2norm),
    "fla.modules.activations.ops": _by_name(
        activations.swish,
        activations.sigmoid,
        activations.logsigmoid,
        activations.elu_p1,
        activations.swiglu,
        activations.swiglu_linear,
    ),
    "fla.modules.causal_conv1d.ops": _by_name(short_convolution.causal_conv1d, short_convolution.causal_conv1d_update),
    "fla.modules.rotary.ops": _by_name(positions.rotary_embedding),
    "fla.modules.token_shift": _by_name(positions.token_shift),
    "fla.modules.fused_cross_entropy.ops": _by_name(losses.cross_entropy_loss),
    "fla.modules.fused_linear_cross_entropy.ops": _by_name(losses.fused_linear_cross_entropy_loss),
    "fla.ops.rwkv7.fused_addcmul": _by_name(rwkv_parts.fused_addcmul_rwkv7),
    "fla.ops.rwkv7.fused_k_update": _by_name(rwkv_parts.fused_k_rwkv7),
    "fla.ops.rwkv7.gate_output_correction": _by_name(rwkv_parts.gate_output_correction),
    "fla.layers.mom": _by_name(routing.transform),
    "fla.ops.linear_attn.chunk": {"chunk_linear_attn": memories.chunk_linear_attn},
    "fla.ops.linear_attn.fused_chunk": {"fused_chunk_linear_attn": memories.fused_chunk_linear_attn},
    "fla.ops.linear_attn.fused_recurrent": _by_name(memories.fused_recurrent_linear_attn),
    "fla.ops.delta_rule.chunk": _by_name(memories.chunk_delta_rule),
    "fla.ops.delta_rule.fused_recurrent": _by_name(memories.fused_recurrent_delta_rule),
    "fla.ops.gated_delta_rule.chunk": _by_name(memories.chunk_gated_delta_rule),
    "fla.ops.gated_delta_rule.fused_recurrent": _by_name(memories.fused_recurrent_gated_delta_rule),
    "fla.ops.gated_delta_product.chunk": _by_name(delta_memories.chunk_gated_delta_product),
    "fla.ops.comba.chunk": _by_name(delta_memories.chunk_comba),
    "fla.ops.comba.fused_recurrent": {"fused_recurrent_comba": delta_memories.chunk_comba},
    "fla.ops.kda.chunk": _by_name(memories.chunk_kda),
    "fla.ops.kda.fused_recurrent": _by_name(memories.fused_recurrent_kda),
    "fla.ops.gdn2.chunk": _by_name(delta_memories.chunk_gdn2),
    "fla.ops.gdn2.fused_recurrent": {"fused_recurrent_gdn2": delta_memories.chunk_gdn2},
    "fla.ops.gla.chunk": _by_name(memories.chunk_gla),
    "fla.ops.gla.fused_recurrent": _by_name(memories.fused_recurrent_gla),
    "fla.ops.simple_gla.chunk": _by_name(gated_memories.chunk_simple_gla),
    "fla.ops.simple_gla.fused_recurrent": {"fused_recurrent_simple_gla": gated_memories.chunk_simple_gla},
    "fla.ops.retention.chunk": _by_name(gated_memories.chunk_retention),
    "fla.ops.retention.fused_recurrent": {"fused_recurrent_retention": gated_memories.chunk_retention},
    "fla.ops.hgrn.chunk": _by_name(gated_memories.chunk_hgrn),
    "fla.ops.hgrn.fused_recurrent": {"fused_recurrent_hgrn": gated_memories.chunk_hgrn},
    "fla.ops.rwkv6.chunk": _by_name(gated_memories.chunk_rwkv6),
    "fla.ops.rwkv6.fused_recurrent": {"fused_recurrent_rwkv6": gated_memories.chunk_rwkv6},
    "fla.ops.rwkv7.chunk": _by_name(memories.chunk_rwkv7),
    "fla.ops.rwkv7.fused_recurrent": _by_name(memories.fused_recurrent_rwkv7, memories.fused_mul_recurrent_rwkv7),
    "fla.ops.gsa.chunk": _by_name(slot_attention.chunk_gsa),
    "fla.ops.gsa.fused_recurrent": {"fused_recurrent_gsa": slot_attention.chunk_gsa},
    "fla.ops.mesa_net.chunk": _by_name(mesa.chunk_mesa_net),
    "fla.ops.mesa_net.decoding_one_step": _by_name(mesa.mesa_net_decoding_one_step),
    "fla.ops.abc.chunk": _by_name(slot_attention.chunk_abc),
    "fla.ops.kda.gate": {"fused_kda_gate": memories.kda_decay},
    "fla.ops.precond_gated_delta_rule.chunk": _by_name(preconditioned_memories.chunk_precond_gated_delta_rule),
    "fla.ops.precond_gated_delta_rule.fused_recurrent": {
        "fused_recurrent_precond_gated_delta_rule": preconditioned_memories.chunk_precond_gated_delta_rule
    },
    "fla.ops.precond_kda.chunk": _by_name(preconditioned_memories.chunk_precond_kda),
    "fla.ops.precond_kda.fused_recurrent": {"fused_recurrent_precond_kda": preconditioned_memories.chunk_precond_kda},
    "fla.ops.lightnet.chunk": _by_name(gated_memories.chunk_lightnet),
    "fla.ops.lightnet.fused_recurrent": {"fused_recurrent_lightnet": gated_memories.chunk_lightnet},
}

METHODS: Mapping[str, Functions] = {
    "fla.modules.fused_cross_entropy.ops.FusedCrossEntropyLoss": {"forward": losses.criterion},
    "fla.layers.mamba.Mamba": _by_name(mamba_layers.slow_forward),
    "fla.layers.mamba2.Mamba2": _by_name(mamba_layers.torch_forward),
}
"""Methods that are replaced on a CPU, by class: a loss that refuses tensors there, and layers that are slow."""
