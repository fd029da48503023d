"""Whether gradients are needed: it decides what a scan saves and whether it may overwrite its inputs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import _C, Tensor


def wants_gradients(tensors: Iterable[Tensor]) -> bool:
    """Whether a gradient of any of them is recorded.

    >>> x = torch.ones(2, requires_grad=True)
    >>> wants_gradients([x]), wants_gradients([x.detach()])
    (True, False)
    """
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Suspends the saved-tensor hooks of the caller, for a run of a step that only inspects the step.

    Gradient checkpointing counts the tensors that go through its hooks, in the forward pass and in the recomputation.
    An inspection happens once only. Transforms of torch.func refuse to run under any hook.
    """
    hooks = []
    while (hook := _C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(hook)
        _C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hook in reversed(hooks):
            _C._autograd._push_saved_tensors_default_hooks(*hook)
