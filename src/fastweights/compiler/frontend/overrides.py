"""Replaces functions of PyTorch by others while a step is traced."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Replaced(TorchFunctionMode):
    """Calls the replacement of every function in a table while it is active."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """One-hot encoding without reading values. PyTorch reads the largest one if `num_classes` is missing."""
    if num_classes < 0:
        return F.one_hot(tensor, num_classes)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).long()


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> Tensor:
    """softmax(q k^T / sqrt(K)) v, without dropout and without a named mask such as `is_causal`."""
    if dropout_p or is_causal or more.keys() - {"scale"}:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **more)
    scale = more.get("scale")
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is None:
        return scores.softmax(-1) @ value
    if attn_mask.is_floating_point():
        return (scores + attn_mask).softmax(-1) @ value
    # The output is 0 for a query whose keys are all masked.
    weights = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min).softmax(-1)
    return (weights * attn_mask.any(-1, keepdim=True)) @ value


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "") -> Tensor:
    """The p-norm of the difference of every pair of rows."""
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


PLAIN: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys([F.one_hot, torch._C._nn.one_hot], one_hot),
    F.scaled_dot_product_attention: attention,
    torch.cdist: cdist,
}
"""Replacements for functions that branch on values or choose a kernel of their own."""
