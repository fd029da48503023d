"""Decides whether a module is still the one that was traced, and finds the memory of its weights."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from operator import getitem, is_, itemgetter
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as modules

END = object()
"""The end of a list of objects: a longer list has another object in its place."""


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
        self._variables, self._flags = list(map(vars, parts)), [part.training for part in parts]
        self._children = [part._modules for part in parts]
        self._submodules = [dict(table) for table in self._children]
        self._hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        self._tables = [table for part in parts for table in (part._parameters, part._buffers) if table]
        slots = [_slot_of(module, name) for name in names]
        self._weight_tables, self._weight_keys = [table for table, _ in slots], [key for _, key in slots]
        self._follow()
        self._kinds = self._describe(self._all)

    def holds(self) -> bool:
        """Whether a trace of the module is still valid. Refreshes `weights` and `places`."""
        if any(self._hooks) or modules._global_forward_hooks or modules._global_forward_pre_hooks:
            return False
        if list(map(_TRAINING, self._variables)) != self._flags or self._children != self._submodules:
            return False
        if all(map(is_, _values(self._tables), self._all)) and list(map(Tensor.data_ptr, self.weights)) == self.places:
            return True
        kinds = self._describe(list(_values(self._tables)))
        if kinds == self._kinds:
            self._follow()
        return kinds == self._kinds

    def _follow(self) -> None:
        self._all: list[Any] = list(_values(self._tables))
        self.weights: list[Tensor] = list(map(getitem, self._weight_tables, self._weight_keys))
        """The tensors of the named weights."""
        self.places = list(map(Tensor.data_ptr, self.weights))
        """The addresses of the named weights."""

    def _describe(self, weights: Sequence[Any]) -> Hashable:
        """The properties of the weights that must not change: shape, strides, type, device, shared tensors."""
        first: dict[int, int] = {}
        kinds = [
            (x.shape, x.stride(), x.dtype, x.device, first.setdefault(id(x), len(first)))
            if isinstance(x, Tensor)
            else None
            for x in weights
        ]
        return tuple(kinds)


_TRAINING = itemgetter("training")


def _values(tables: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """The values of all tables, and the end."""
    return chain(chain.from_iterable(map(dict.values, tables)), (END,))


def _slot_of(module: nn.Module, name: str) -> tuple[Mapping[str, Any], str]:
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if leaf in owner._parameters else owner._buffers), leaf
