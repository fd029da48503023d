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


class Watched(NamedTuple):
    """A scan call of a memory; `name` is the name of its module in the model."""

    name: str
    call: ScanCall


@contextmanager
def watch(model: nn.Module) -> Iterator[list[Watched]]:
    """Collects every scan that the model runs in this thread, in order: what `look_into` looks into.

        with watch(model) as scans:
            model(tokens)

    Memories that other kernels run, such as `torch.nn.LSTM`'s, are no scans. A model under `torch.compile` is watched
    as `model._orig_mod`.
    """
    found: list[Watched] = []
    inside: list[str] = []
    thread = threading.get_ident()

    def note(call: ScanCall) -> None:
        if inside and threading.get_ident() == thread:
            keep = Tensor.detach if call.out is None else torch.clone  # before the state is overwritten
            found.append(Watched(inside[-1], call.replace(tree_map_only(Tensor, keep, call.tensors))))

    handles = [hook for name, module in model.named_modules() for hook in _hooks(module, name, inside)]
    WATCHERS.append(note)
    try:
        yield found
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
