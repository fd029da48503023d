"""Functions of PyTorch in the place of others while a step is looked at."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Replaced(TorchFunctionMode):
    """Calls what a table has for a function while it is on."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the number that an element is; without `num_classes` PyTorch would look for the highest."""
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
    """softmax(q k^T / sqrt(K)) v, where nothing drops out and no mask is told by a word."""
    if dropout_p or is_causal or more.keys() - {"scale"}:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **more)
    scale = more.get("scale")
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is None:
        return scores.softmax(-1) @ value
    if attn_mask.is_floating_point():
        return (scores + attn_mask).softmax(-1) @ value
    # Who may look at nothing reads 0.
    seen = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min).softmax(-1)
    return (seen * attn_mask.any(-1, keepdim=True)) @ value


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "") -> Tensor:
    """The norm of every difference of rows."""
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


PLAIN: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys([F.one_hot, torch._C._nn.one_hot], one_hot),
    F.scaled_dot_product_attention: attention,
    torch.cdist: cdist,
}
"""Functions that look at numbers, or choose a kernel of their own: what these come to."""
