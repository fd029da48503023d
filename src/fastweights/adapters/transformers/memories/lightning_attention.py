"""The lightning attention of MiniMax."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fastweights import functional
from fastweights.adapters.transformers.replacement import Draw, Replacement, SampleCall, runs_in_chunks
from fastweights.core.autocast import at_least_float32


def _forward(
    self: Any,
    hidden_states: Tensor,
    position_embeddings: Any,
    attention_mask: Tensor | None,
    past_key_values: Any = None,
    cache: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """The whole layer, since transformers has no function for its memory. `past_key_values` is `cache` before 5.24.

    Older versions mask the values only, and only without a cache.
    """
    from transformers.models.minimax import modeling_minimax

    cache = past_key_values if cache is None else cache
    state = None if cache is None else cache.get_linear_cache(self.layer_idx)
    qkv = self.act_fn(self.qkv_proj(hidden_states))
    masks_all = hasattr(modeling_minimax, "apply_mask_to_padding_states")
    if masks_all and attention_mask is not None:
        qkv = (qkv * attention_mask[:, :, None]).to(qkv.dtype)
    q, k, v = qkv.unflatten(-1, (self.num_attention_heads, 3 * self.head_dim)).split(self.head_dim, dim=3)
    if not masks_all and attention_mask is not None and state is None:
        v = v * attention_mask[:, :, None, None].bool()
    state = None if state is None else at_least_float32(state)
    g = -at_least_float32(self.slope_rate).flatten().expand(q.shape[:3])
    y, last = functional.simple_gla(q, k, v, g, 1.0, state, output_final_state=True)
    y = torch.sigmoid(self.output_gate(hidden_states)) * self.norm(y.flatten(2))
    after = None if last is None else last.to(v.dtype)
    if cache is not None:
        cache.set_linear_cache(self.layer_idx, after)
    return self.out_proj(y), after


LARGE = 1 << 15
"""Numbers of a state from which a kernel computes a single token faster than a few operations of PyTorch."""


def _fits(self: Any, hidden_states: Tensor, *arguments: Any, **options: Any) -> bool:
    is_large = self.num_attention_heads * self.head_dim**2 >= LARGE
    return runs_in_chunks(hidden_states) and (hidden_states.shape[1] > 1 or is_large)


class _Cache:
    """A cache of one layer that forgets new states, which the layer returns as well."""

    def __init__(self, state: Tensor) -> None:
        self.state = state

    def get_linear_cache(self, layer_idx: int) -> Tensor:
        return self.state

    def set_linear_cache(self, layer_idx: int, state: Tensor) -> None:
        pass


def _trials(module: ModuleType, draw: Draw) -> list[SampleCall]:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    kinds = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "block_size": 4}
    layer = module.MiniMaxLightningAttention(module.MiniMaxConfig(**sizes, **kinds), 0).float()
    for parameter in layer.parameters():
        parameter.data = draw(*parameter.shape) - 0.5
    mask = (torch.arange(6) > 0)[None].long()
    whole = SampleCall((layer, draw(1, 6, 16) - 0.5, None, mask))
    return [whole, SampleCall((layer, draw(1, 2, 16) - 0.5, None, None, _Cache(draw(1, 2, 8, 8))))]


LIGHTNING = Replacement(
    "MiniMaxLightningAttention.forward",
    "the lightning attention of MiniMax",
    ("self", "hidden_states", "position_embeddings", "attention_mask"),
    frozenset(),
    _fits,
    _forward,
    _trials,
)
