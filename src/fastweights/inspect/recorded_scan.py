"""The scans of a model, collected while it runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from fastweights.call.scan_call import ScanCall
from fastweights.dispatch import WATCHERS


class RecordedScan(NamedTuple):
    """Recorded call of `scan`.

    Attributes:
        name: Name of the module of the memory in the model.
        call: Arguments of the call.
    """

    name: str
    call: ScanCall


@contextmanager
def record_scans(model: nn.Module) -> Iterator[list[RecordedScan]]:
    """Context manager that records every scan that a model runs in this thread, for `analyze`.

    Memories that run on other kernels, such as `torch.nn.LSTM`, are not recorded. For a model under `torch.compile`,
    pass `model._orig_mod`.

    Args:
        model: Model whose scans are recorded.

    Yields:
        The list of recorded scans, in order. Each call of the model appends to it.

    Example:
        >>> from fastweights.layers import DeltaNet
        >>> model = nn.Sequential(DeltaNet(8, num_heads=2))
        >>> with record_scans(model) as scans:
        ...     y, state = model(torch.randn(1, 5, 8))
        >>> scans[0].name
        '0'
    """
    recorded: list[RecordedScan] = []
    inside: list[str] = []
    thread = threading.get_ident()

    def note(call: ScanCall) -> None:
        if inside and threading.get_ident() == thread:
            keep = Tensor.detach if call.out is None else torch.clone  # before the state is overwritten
            recorded.append(RecordedScan(inside[-1], call.replace(tree_map_only(Tensor, keep, call.tensors))))

    handles = [hook for name, module in model.named_modules() for hook in _hooks(module, name, inside)]
    WATCHERS.append(note)
    try:
        yield recorded
    finally:
        WATCHERS.remove(note)
        for handle in handles:
            handle.remove()


def _hooks(module: nn.Module, name: str, inside: list[str]) -> tuple[Any, Any]:
    def enter(*_: Any) -> None:
        inside.append(name)

    def leave(*_: Any) -> None:
        inside.pop()

    return module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)
