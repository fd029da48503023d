"""All functions of transformers that this library replaces."""

from fastweights.adapters.transformers.memories import (
    convolution,
    delta_rules,
    lightning_attention,
    linear_recurrence,
    mlstm,
    rwkv4,
    selective_scan,
    ssd,
)

TABLE = (
    delta_rules.GATED,
    delta_rules.KIMI,
    selective_scan.SCAN,
    selective_scan.STEP,
    ssd.SCAN,
    ssd.STEP,
    ssd.FUSED_LAYER,
    mlstm.MLSTM,
    linear_recurrence.RG_LRU,
    rwkv4.WKV,
    lightning_attention.LIGHTNING,
    convolution.NEXT_TO_MAMBA,
    convolution.CONVOLUTION,
    convolution.UPDATE,
)
"""One row per function. The first row that matches a function counts."""
