"""Tokens of Mixture-of-Memories, grouped by the memories that read them."""

import torch
from torch import Tensor


def transform(
    x: Tensor, routing_mask: Tensor, num_memories: int, selected_memories: Tensor, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor, Tensor]:
    """Groups the tokens of a batch by memory, in their order in time.

    The original sorts tokens by memory with an unstable sort. On a CPU that sort exchanges tokens of one memory, so
    that outputs depend on later tokens and a cached step differs from the whole sequence.

    Args:
        x: Tokens `[B, T, D]`.
        routing_mask: 1 where a token reaches a memory, `[B, T, M]`. Padding is set to 0 in place.
        num_memories: Number of memories M.
        selected_memories: The memories of every token, `[B, T, K]`.
        attention_mask: False at padding, `[B, T]` or longer on the left.

    Returns:
        Tokens by memory `[M, B, L, D]`; their places among the sorted tokens `[B M, L]`; the sorted order `[B T K]`;
        the largest number of tokens L; and which places hold a token, `[B M, L]` and `[M, B, L]`.
    """
    (B, T, _), K = x.shape, selected_memories.shape[-1]
    rows = torch.arange(B, device=x.device)[:, None].expand(B, T)
    if attention_mask is not None:
        is_padding = ~attention_mask[:, -T:]
        routing_mask[is_padding] = 0
        rows = rows.masked_fill(is_padding, B)
    order = (rows[..., None] * num_memories + selected_memories).flatten().argsort(stable=True)
    places, is_used = _places(routing_mask.sum(1).flatten())
    by_memory = x.flatten(0, 1)[order[places] // K].unflatten(0, (B, num_memories)).transpose(0, 1)
    used_by_memory = is_used.unflatten(0, (B, num_memories)).transpose(0, 1)
    return by_memory, places, order, places.shape[1], is_used, used_by_memory


def _places(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Places `[N, L]` of N consecutive runs of the given lengths, 0 after the end of a run; and a mask of the runs."""
    ends = lengths.cumsum(0)[:, None]
    places = ends - lengths[:, None] + torch.arange(int(lengths.max()), device=lengths.device)
    is_used = places < ends
    return places.where(is_used, 0), is_used
