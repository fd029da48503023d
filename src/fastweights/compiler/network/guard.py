"""Decides whether a module is still the one that was traced, and finds the memory of its weights."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from operator import getitem, is_
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as modules

Slot = tuple[Mapping[str, Any], str]


class ModuleGuard:
    """The submodules, training flags and weights of a module when it was traced.

    The numbers in a weight may change, and a weight may be replaced by a tensor of the same kind. All other changes
    need a new trace. The guard has no reference to the module itself, so that the module can be collected.

    Args:
        module: The module.
        names: The names of the weights whose addresses are wanted.
    """

    def __init__(self, module: nn.Module, names: Sequence[str]) -> None:
        parts = list(module.modules())
        children = [part._modules for part in parts]
        fixed = [*((vars(part), "training") for part in parts), *_slots(children)]
        self._tables, self._keys = zip(*fixed, strict=True)
        self._objects = list(map(getitem, self._tables, self._keys))
        self._children, self._counts = children, list(map(len, children))
        self._hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        weights = _slots([table for part in parts for table in (part._parameters, part._buffers)])
        wanted = [_slot_of(module, name) for name in names]
        self._weight_tables = [table for table, _ in (*wanted, *weights)]
        self._weight_keys = [key for _, key in (*wanted, *weights)]
        self._count = len(wanted)
        self._follow()
        self._kinds = self._describe(self._all)

    def holds(self) -> bool:
        """Whether a trace of the module is still valid. Refreshes `weights` and `places`."""
        if any(self._hooks) or modules._global_forward_hooks or modules._global_forward_pre_hooks:
            return False
        same = all(map(is_, map(getitem, self._tables, self._keys), self._objects))
        if not same or list(map(len, self._children)) != self._counts:
            return False
        current = map(getitem, self._weight_tables, self._weight_keys)
        if all(map(is_, current, self._all)) and list(map(Tensor.data_ptr, self.weights)) == self.places:
            return True
        kinds = self._describe([*map(getitem, self._weight_tables, self._weight_keys)])
        if kinds == self._kinds:
            self._follow()
        return kinds == self._kinds

    def _follow(self) -> None:
        self._all: list[Any] = list(map(getitem, self._weight_tables, self._weight_keys))
        self.weights: list[Tensor] = self._all[: self._count]
        """The tensors of the wanted weights."""
        self.places = list(map(Tensor.data_ptr, self.weights))
        """The addresses of the wanted weights."""

    def _describe(self, weights: Sequence[Any]) -> Hashable:
        """The properties of the weights that must not change: shape, strides, type, device, shared tensors."""
        first: dict[int, int] = {}
        kinds = [
            None if x is None else (x.shape, x.stride(), x.dtype, x.device, first.setdefault(id(x), len(first)))
            for x in weights
        ]
        return tuple(kinds)


def _slots(tables: Sequence[Mapping[str, Any]]) -> list[Slot]:
    return list(chain.from_iterable([(table, key) for key in table] for table in tables))


def _slot_of(module: nn.Module, name: str) -> Slot:
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if leaf in owner._parameters else owner._buffers), leaf
