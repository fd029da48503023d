"""Whether anybody wants a gradient: what would be kept for one, or built, or written over, depends on it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def wants_gradients(tensors: Iterable[Tensor]) -> bool:
    """Whether a gradient of any of them is recorded.

    >>> x = torch.ones(2, requires_grad=True)
    >>> wants_gradients([x]), wants_gradients([x.detach()])
    (True, False)
    """
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def unsaved() -> Any:
    """A region for a run of a step that only looks at the step: what autograd keeps there goes through no hook of the
    caller.

    Gradient checkpointing counts the tensors that go through its hooks, in the forward pass and in the recomputation.
    """
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(x: Any) -> Any:
    return x
