"""A digest of all the code that a cell is made of, so that a kernel on disk is found without tracing the cell again."""

import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fastweights.cell import Cell

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, type(...))
KNOWN = {"torch", "numpy", "builtins", "math", "cmath", "operator", "functools", "itertools", "typing", "collections"}
"""Packages whose code is told by their version."""


class Unknown(Exception):
    """Something whose content cannot be told."""


def fingerprint(cell: Cell) -> str:
    """The digest of a cell's step, with every function, constant and tensor that it can reach, and of this compiler;
    empty if it reaches something whose content cannot be told, such as an object of the user's own."""
    slots = repr((cell.slots, cell.output))
    try:
        parts = "\0".join(_content(cell.step, set()))
    except Unknown:
        return ""
    return hashlib.sha256("\0".join([slots, parts, sys.version, _compiler()]).encode()).hexdigest()


@cache
def _compiler() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _content(value: Any, seen: set[int]) -> Iterator[str]:
    """What a value is, as text."""
    if isinstance(value, PLAIN):
        yield repr(value)
    elif id(value) in seen:
        yield "again"
    else:
        seen.add(id(value))
        yield from _deep(value, seen)


def _deep(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, types.FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, types.CodeType):
        yield from _code(value, seen)
    elif isinstance(value, types.ModuleType) or _home(value) in KNOWN:
        yield _of_known(value)
    elif isinstance(value, Tensor):
        yield f"{value.dtype} {value.tolist()}"
    elif isinstance(value, type):
        yield from _class(value, seen)
    else:
        yield from _composite(value, seen)


def _of_known(value: Any) -> str:
    """A part of a package that is told by its version."""
    name = value.__name__ if isinstance(value, types.ModuleType) else _home(value)
    if name.split(".")[0] not in KNOWN:
        raise Unknown(name)
    version = getattr(sys.modules[name.split(".")[0]], "__version__", "")
    return f"{name} {version} {getattr(value, '__qualname__', repr(value))}"


def _home(value: Any) -> str:
    """The package of a function or class, or of the class of a typing construct."""
    callable_or_class = isinstance(value, type | types.BuiltinFunctionType) or hasattr(value, "__qualname__")
    module = value.__module__ if callable_or_class else type(value).__module__
    top = (module or "builtins").split(".")[0]
    return top if callable_or_class or top in ("typing", "torch") else ""


def _function(function: types.FunctionType, seen: set[int]) -> Iterator[str]:
    if _home(function) in KNOWN:
        yield _of_known(function)
        return
    yield from _content(function.__code__, seen)
    yield from _content(function.__defaults__, seen)
    yield from _content(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        yield from _content(cell.cell_contents, seen)
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name
            yield from _content(function.__globals__[name], seen)


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that the code, and the code inside it, may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _code(code: types.CodeType, seen: set[int]) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_firstlineno, Path(code.co_filename).name))
    yield from _content(code.co_consts, seen)


def _class(kind: type, seen: set[int]) -> Iterator[str]:
    """A NamedTuple: its fields, and the methods that it was given."""
    if not hasattr(kind, "_fields"):
        raise Unknown(kind.__qualname__)
    yield repr((kind.__qualname__, kind._fields))
    for name, value in vars(kind).items():
        if isinstance(value, Callable) and not name.startswith("_"):  # type: ignore[arg-type]
            yield from _content(value, seen)


def _composite(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, tuple | list | frozenset) and (
        type(value).__module__ == "builtins" or hasattr(value, "_fields")
    ):
        yield type(value).__qualname__
        for item in sorted(value, key=repr) if isinstance(value, frozenset) else value:
            yield from _content(item, seen)
    elif type(value) is dict:
        for key, item in value.items():
            yield repr(key)
            yield from _content(item, seen)
    elif isinstance(value, partial):
        yield from _content((value.func, value.args, value.keywords), seen)
    else:
        raise Unknown(type(value).__qualname__)
