"""The guard of a step: a test in a microsecond whether the step may have changed since it was compiled.

A step can be guarded if it reaches nothing but functions, among them PyTorch's and Python's own, numbers, strings,
tuples of these, and NamedTuples with fields only. Such a step is unchanged as long as every name refers to the same
object. A step that reaches a tensor, a module, a list or an object of a class is inspected at every call instead.
"""

import builtins
import dis
import sys
import types
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from fastweights import state
from fastweights.cell import Cell

PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, type(None), type(...))
PYTHON = {
    *(abs, all, any, divmod, getattr, hasattr, isinstance, len, max, min, pow, round, sorted, sum),
    *(bool, complex, dict, enumerate, float, frozenset, int, list, map, range, reversed, set, slice, str, tuple, zip),
    *(ArithmeticError, AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError, partial),
}
BUILTINS = dict(vars(builtins))
"""A copy, since `torch.export` replaces `min` and `max` while it traces."""
MODULES = ("torch", "math", "operator")
CHANGES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "LOAD_BUILD_CLASS"}
ASKS = ("is_", "are_", "get_", "has_", "initial_seed", "backends")
"""Prefixes of names in PyTorch whose answer may differ from call to call."""

MARKS = {"inner_cell", "key_maps", "made_by", "rates", "__wrapped__"}
"""Attributes that the library sets on functions and that no step reads."""
HIDDEN = {
    *("__orig_bases__", "__annotate_func__", "__annotate__", "__slotnames__"),
    *("__firstlineno__", "__static_attributes__"),  # of Python 3.13
}
"""Attributes of a NamedTuple that do not affect a step."""


class Unguardable(Exception):
    """A step reaches an object that may differ at the next call."""


class Guard:
    """The objects behind every name that the step of a cell reaches.

    Raises:
        Unguardable: the step reaches an object that may change unnoticed.
    """

    def __init__(self, cell: Cell) -> None:
        self.names: list[tuple[Mapping[str, Any], str, Any]] = []
        self.cells: list[tuple[types.CellType, Any]] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType, Any]] = []
        self._visited: set[int] = set()
        for part in (cell.step, cell.State, cell.Inputs, cell.Params):
            self._reach(part)

    def holds(self) -> bool:
        """Whether every name still refers to the same object."""
        for names, name, meant in self.names:
            if names.get(name, Unguardable) is not meant:
                return False
        for cell, meant in self.cells:
            try:  # not by `_content`: this loop runs at every call
                content = cell.cell_contents
            except ValueError:
                content = Unguardable
            if content is not meant:
                return False
        for function, code, defaults in self.codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
        return True

    def _reach(self, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self._visited:
            return
        self._visited.add(id(value))
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif type(value) in (tuple, frozenset):
            for each in value:
                self._reach(each)
        elif isinstance(value, type) and hasattr(value, "_fields"):
            self._record(value)
        elif not _stays(value):
            raise Unguardable(value)

    def _function(self, function: types.FunctionType) -> None:
        if _is_of_torch(function):
            return
        if function.__kwdefaults__ or function.__dict__.keys() - MARKS:
            raise Unguardable(function)
        self.codes.append((function, function.__code__, function.__defaults__))
        self._reach(function.__defaults__)
        for cell in function.__closure__ or ():
            meant = _content(cell)
            self.cells.append((cell, meant))
            self._reach(meant)
        for name in _globals_of(function.__code__):
            meant = function.__globals__.get(name, Unguardable)
            self.names.append((function.__globals__, name, meant))
            self._reach(BUILTINS.get(name) if meant is Unguardable else meant)

    def _record(self, kind: Any) -> None:
        """A NamedTuple with fields, the methods of a state, and nothing else."""
        own, fields = vars(kind), kind._fields
        # Held by a name: what `vars` shows of a class is emptied with it.
        model: Any = NamedTuple("model", [(name, Any) for name in fields])  # type: ignore[misc]
        plain = vars(model)
        more = own.keys() - plain.keys() - HIDDEN
        is_own = any(own[name] is not getattr(state, name, None) for name in more)
        is_hidden = any(type(own.get(name)) is not type(plain[name]) for name in fields)
        if kind.__bases__ != (tuple,) or kind._field_defaults or is_own or is_hidden:
            raise Unguardable(kind)
        self.names.extend((own, name, own[name]) for name in (*fields, "__new__"))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Unguardable  # the cell is empty


def _stays(value: Any) -> bool:
    """Whether something is a part of Python or of PyTorch that does the same at every call."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in MODULES
    if isinstance(value, types.BuiltinFunctionType):
        return value in PYTHON or _is_of_torch(value)
    return isinstance(value, type) and (value in PYTHON or value.__module__ == "torch")


def _is_of_torch(function: Any) -> bool:
    """Whether a function is found under its name in one of `MODULES`, and asks for nothing but its arguments."""
    module_name, name = (function.__module__ or "").lstrip("_"), function.__name__
    is_found = getattr(sys.modules.get(module_name), name, None) is function
    return is_found and module_name.partition(".")[0] in MODULES and not name.startswith(ASKS)


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """The global names that a function and those inside it look up.

    Raises:
        Unguardable: it sets any, or asks PyTorch for what may change.
    """
    for instruction in dis.get_instructions(code):
        does, name = instruction.opname, instruction.argval
        asks = does in ("LOAD_ATTR", "LOAD_METHOD") and name.startswith(ASKS)
        if asks or does in CHANGES or (does == "STORE_DEREF" and name in code.co_freevars):
            raise Unguardable(code)
        if does == "LOAD_GLOBAL":
            yield name
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)
