"""Whether anybody wants a gradient: what would be kept for one, or built, or written over, depends on it."""

from collections.abc import Iterable

import torch
from torch import Tensor


def wants_gradients(tensors: Iterable[Tensor]) -> bool:
    """Whether a gradient of any of them is recorded.

    >>> x = torch.ones(2, requires_grad=True)
    >>> wants_gradients([x]), wants_gradients([x.detach()])
    (True, False)
    """
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
