"""Steps that cannot change unseen, and whether one has: functions over functions, numbers and other things that stay.

A step is such a one if all that it can reach are functions, PyTorch's and Python's own among them, numbers, strings and
tuples of these, and NamedTuples with fields only. Then it is what it was as long as every name still means the same
object, which takes a microsecond to see. Whoever holds a tensor, a module, a list or an object of a class is no such
step, and is looked at again at every call.
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
"""As they are at first: `torch.export` puts a `min` and a `max` of its own there while it traces."""
MODULES = ("torch", "math", "operator")
CHANGES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "LOAD_BUILD_CLASS"}
ASKS = ("is_", "are_", "get_", "has_", "initial_seed", "backends")
"""How the names begin of what in PyTorch does not answer the same at every call."""

MARKS = {"inside", "key_maps", "made_by", "__wrapped__"}
"""What the library hangs on functions, and no step reads."""
HIDDEN = {
    *("__orig_bases__", "__annotate_func__", "__annotate__", "__slotnames__"),
    *("__firstlineno__", "__static_attributes__"),  # of Python 3.13
}
"""What a NamedTuple may have beside its fields without a step's being able to tell."""


class Changing(Exception):
    """Something that may be another at the next call."""


class Watch:
    """What every name meant that the step of a cell can reach.

    Raises:
        Changing: the step is none that can be watched.
    """

    def __init__(self, cell: Cell) -> None:
        self.names: list[tuple[Mapping[str, Any], str, Any]] = []
        self.cells: list[tuple[types.CellType, Any]] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType, Any]] = []
        self._seen: set[int] = set()
        for part in (cell.step, cell.State, cell.Inputs, cell.Params):
            self._reach(part)

    def holds(self) -> bool:
        """Whether all of it still is the same."""
        for names, name, meant in self.names:
            if names.get(name, Changing) is not meant:
                return False
        for cell, meant in self.cells:
            if _in(cell) is not meant:
                return False
        for function, code, defaults in self.codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
        return True

    def _reach(self, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif type(value) in (tuple, frozenset):
            for each in value:
                self._reach(each)
        elif isinstance(value, type) and hasattr(value, "_fields"):
            self._record(value)
        elif not _stays(value):
            raise Changing(value)

    def _function(self, function: types.FunctionType) -> None:
        if _is_of_torch(function):
            return
        if function.__kwdefaults__ or function.__dict__.keys() - MARKS:
            raise Changing(function)
        self.codes.append((function, function.__code__, function.__defaults__))
        self._reach(function.__defaults__)
        for cell in function.__closure__ or ():
            meant = _in(cell)
            self.cells.append((cell, meant))
            self._reach(meant)
        for name in _globals_of(function.__code__):
            meant = function.__globals__.get(name, Changing)
            self.names.append((function.__globals__, name, meant))
            self._reach(BUILTINS.get(name) if meant is Changing else meant)

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
            raise Changing(kind)
        self.names.extend((own, name, own[name]) for name in (*fields, "__new__"))


def _in(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Changing  # nothing yet, or no longer


def _stays(value: Any) -> bool:
    """Whether something is a part of Python or of PyTorch that does the same at every call."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in MODULES
    if isinstance(value, types.BuiltinFunctionType):
        return value in PYTHON or _is_of_torch(value)
    return isinstance(value, type) and (value in PYTHON or value.__module__ == "torch")


def _is_of_torch(function: Any) -> bool:
    """Whether a function is found under its name in one of `MODULES`, and asks for nothing but its arguments."""
    home, name = (function.__module__ or "").lstrip("_"), function.__name__
    is_found = getattr(sys.modules.get(home), name, None) is function
    return is_found and home.partition(".")[0] in MODULES and not name.startswith(ASKS)


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """The global names that a function and those inside it look up.

    Raises:
        Changing: it sets any, or asks PyTorch for what may change.
    """
    for instruction in dis.get_instructions(code):
        does, name = instruction.opname, instruction.argval
        asks = does in ("LOAD_ATTR", "LOAD_METHOD") and name.startswith(ASKS)
        if asks or does in CHANGES or (does == "STORE_DEREF" and name in code.co_freevars):
            raise Changing(code)
        if does == "LOAD_GLOBAL":
            yield name
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)
